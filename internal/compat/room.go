package compat

import (
	"context"

	"hutch"
	"hutch/internal/caller"
)

// ErrNoRoom is the error for data that does not fit beside what the caller has under way.
var ErrNoRoom = hutch.Errorf(hutch.Exhausted, "the requests and answers of this token that are under way take as much memory as it may have: wait for some, or ask for less at a time").With("limit", "memory of requests")

// Take reports whether the server can hold n more bytes for a request, until the request ends.
func Take(ctx context.Context, n int) bool { return caller.From(ctx).Budget.Take(n) }
