package compat

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"reflect"
	"strconv"
	"sync"
	"time"

	"hutch"
	"hutch/internal/httpio"
)

// smallAnswer is the longest answer that is not charged to the caller's memory budget, in bytes.
const smallAnswer = 128 << 10

// Encode returns v as JSON without escapes for < and &. A large v is charged to the caller before it is encoded;
// [ErrNoRoom] says that it does not fit.
func Encode(ctx context.Context, v any) ([]byte, error) {
	if n := length(reflect.ValueOf(v)); n > smallAnswer && !Take(ctx, n) {
		return nil, ErrNoRoom
	}
	return Marshal(v)
}

// Marshal returns JSON in which <, > and & are as they are, with a line break at the end.
func Marshal(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

// Failed returns the error to answer a request with: err or, if the client has disconnected or the server is closing,
// the cause of that. It logs an internal error: see [LogInternal].
func Failed(log *slog.Logger, r *http.Request, err error) error {
	if cause := context.Cause(r.Context()); cause != nil {
		err = cause
	}
	LogInternal(log, r, err)
	return err
}

// LogInternal logs an internal error of a request with its cause, which the answer does not show. It logs no other errors,
// and no request whose client has disconnected.
func LogInternal(log *slog.Logger, r *http.Request, err error) {
	e := hutch.AsError(err)
	if e.Kind == hutch.Internal && !errors.Is(err, context.Canceled) {
		log.Error("call", "request", r.Method+" "+r.URL.Path, "err", err, "cause", e.Cause)
	}
}

// length estimates the length of a value in JSON, in bytes. A control character in a text counts as six.
func length(v reflect.Value) (n int) {
	switch v.Kind() {
	case reflect.String:
		text := v.String()
		for i := range len(text) {
			if c := text[i]; c < ' ' {
				n += 5
			} else if c == '"' || c == '\\' {
				n++
			}
		}
		return n + len(text) + 2
	case reflect.Pointer, reflect.Interface:
		return length(v.Elem())
	case reflect.Slice, reflect.Array:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			return 2*v.Len() + 2
		}
		for i := range v.Len() {
			n += length(v.Index(i)) + 1
		}
	case reflect.Map:
		for entries := v.MapRange(); entries.Next(); {
			n += length(entries.Key()) + length(entries.Value()) + 2
		}
	case reflect.Struct:
		for i := range v.NumField() {
			n += length(v.Field(i)) + len(v.Type().Field(i).Name) + 4
		}
	}
	return n + 8 // for a number, or for punctuation
}

// RetryAfter sets the header Retry-After, for an error that says when to try again.
func RetryAfter(w http.ResponseWriter, err error) {
	if seconds, ok := hutch.AsError(err).RetryAfter(); ok {
		w.Header().Set("Retry-After", strconv.Itoa(seconds))
	}
}

// Send answers with JSON that is encoded already. A write error means that the client has disconnected.
func Send(w http.ResponseWriter, r *http.Request, status int, body []byte) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	httpio.NewWriter(w, r, Stall).Write(body)
}

// Answer answers with a small value as JSON, for a guard that refuses a request. A write error means that the client
// has disconnected.
func Answer(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	json.NewEncoder(w).Encode(v)
}

// Remembered keeps one value for each owner for a limited time. Owners do not share values: an owner's programs could
// change what the owner's sandboxes report.
type Remembered[T any] struct {
	mu      sync.Mutex
	byOwner map[string]remembered[T]
}

type remembered[T any] struct {
	value T
	until time.Time
}

const (
	fresh     = 5 * time.Minute // how long a value is used
	maxOwners = 1000            // most owners whose values are remembered
)

// Get returns the value of the caller.
func (m *Remembered[T]) Get(ctx context.Context) (T, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	found, ok := m.byOwner[Owner(ctx)]
	return found.value, ok && time.Now().Before(found.until)
}

// Put remembers a value for the caller.
func (m *Remembered[T]) Put(ctx context.Context, value T) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.byOwner == nil || len(m.byOwner) >= maxOwners {
		m.byOwner = map[string]remembered[T]{}
	}
	m.byOwner[Owner(ctx)] = remembered[T]{value, time.Now().Add(fresh)}
}
