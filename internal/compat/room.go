package compat

import (
	"bytes"
	"context"

	"hutch"
	"hutch/internal/caller"
)

// ErrNoRoom is the error for data that exceeds the caller's memory budget.
var ErrNoRoom = hutch.Errorf(hutch.Exhausted, "the requests and answers of this token that are under way take as much memory as it may have: wait for some, or ask for less at a time").With("limit", "memory of requests")

// Take reports whether the server can hold n more bytes for a request, until the request ends.
func Take(ctx context.Context, n int) bool { return caller.From(ctx).Budget.Take(n) }

// TakeJSON does the same as Take, for the decoded form of a JSON text.
func TakeJSON(ctx context.Context, text []byte) bool {
	return caller.From(ctx).Budget.TakeJSON(text)
}

// Buffer holds data up to a number of bytes, and charges it to the caller.
type Buffer struct {
	bytes.Buffer
	ctx context.Context
	max int
}

// NewBuffer returns a buffer for max bytes at most.
func NewBuffer(ctx context.Context, max int) *Buffer { return &Buffer{ctx: ctx, max: max} }

// ErrTooLong is the error for more bytes than a [Buffer] holds.
var ErrTooLong = hutch.Errorf(hutch.Exhausted, "it is larger than an answer can be: read a part of it")

func (b *Buffer) Write(p []byte) (int, error) {
	if b.Len()+len(p) > b.max {
		return 0, ErrTooLong
	}
	if !Take(b.ctx, len(p)) {
		return 0, ErrNoRoom
	}
	return b.Buffer.Write(p)
}
