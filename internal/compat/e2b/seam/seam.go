// Package seam is what E2B's control plane (package e2b) hands to the services inside a sandbox, which are the
// packages envd and interpreter.
//
// The control plane reads the address of a request, checks its access token, and puts the caller of the sandbox into
// the context. The services then see only a [Target]: they know no host names, no tokens and no engine.
package seam

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"time"

	"hutch"
)

// The ports of E2B's services. No program inside listens there: the server answers for them.
const (
	EnvdPort        = 49983
	InterpreterPort = 49999
)

// EnvdVersion is the version of E2B's envd whose features the sandboxes have. Clients decide by it what to ask for.
const EnvdVersion = "0.6.4"

// Target is the sandbox that a request is for.
type Target struct {
	// Sandbox is the id, for calls of Service.
	Sandbox string
	// Service answers for the caller of the request's context, with the caller's rights, quotas and records.
	Service hutch.Service
	// Record is the sandbox as it was when the request began. It was read without waking the sandbox.
	Record hutch.Sandbox
	// Secret is the access token of the sandbox: signatures of /files are made with it. It is empty for a sandbox
	// whose /files anyone can use.
	Secret string
	// Verified says that the request carried the access token. Without it, only GET /health and a signed request for
	// /files can be answered; the control plane refuses all else before it comes here.
	Verified bool
	// Template is E2B's name of what the sandbox began as, for E2B_TEMPLATE_ID.
	Template string
	// Domain is below which the sandbox's ports have host names; empty for none.
	Domain string
	// OnPause has end called when a client pauses the sandbox, for what outlives its request: a sandbox in use cannot be
	// paused. The returned function forgets it. The context of a request ends by itself then, with ErrPaused; nil has
	// nothing called.
	OnPause func(end func()) (forget func())
}

// ErrPaused ends what is under way in a sandbox for clients when one of them pauses it.
var ErrPaused = hutch.Errorf(hutch.Unavailable, "the sandbox was paused: connect to it again")

type key struct{}

// With returns the context of a request for t.
func With(ctx context.Context, t Target) context.Context { return context.WithValue(ctx, key{}, t) }

// From returns the target of a request. The zero Target means that none was set.
func From(ctx context.Context) Target {
	t, _ := ctx.Value(key{}).(Target)
	return t
}

// endTime is how long a sandbox that broke off can take to be gone.
const endTime = 2 * time.Second

// Vanished reports whether the sandbox of a stream no longer runs, after the stream has ended with err. A sandbox that
// is being destroyed is first only unreachable. Clients recognise the end of a sandbox by a connection that is cut and a
// /health that fails, so the stream is cut once that is so.
func Vanished(ctx context.Context, t Target, err error) bool {
	if errors.Is(err, ErrPaused) {
		return false
	}
	switch hutch.KindOf(err) {
	case hutch.NotFound: // what a stream is about does not vanish otherwise
		return true
	case hutch.Unavailable:
	default:
		return false
	}
	for end := time.Now().Add(endTime); ; time.Sleep(20 * time.Millisecond) {
		sb, err := t.Service.Sandbox(ctx, t.Sandbox)
		if hutch.KindOf(err) == hutch.NotFound || err == nil && (sb.Status == hutch.Destroyed || sb.Status == hutch.Failed) {
			return true
		}
		if time.Now().After(end) {
			return false
		}
	}
}

// Handlers are the services of sandboxes.
type Handlers struct {
	Envd        http.Handler
	Interpreter http.Handler
}

// Refusal is the body of an error, in the shape that E2B's clients turn into their own errors.
type Refusal struct {
	Code    int    `json:"code"`
	Message string `json:"message"`
}

// Refuse answers with an error. E2B's clients read the code of the body, and not only the status.
func Refuse(w http.ResponseWriter, status int, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	json.NewEncoder(w).Encode(Refusal{status, message}) // an error here is a client that has gone
}

// Status is the HTTP status that E2B's clients expect for a kind of error.
func Status(k hutch.Kind) int {
	if status, ok := statuses[k]; ok {
		return status
	}
	return http.StatusInternalServerError
}

var statuses = map[hutch.Kind]int{
	hutch.Invalid:     http.StatusBadRequest,
	hutch.Denied:      http.StatusForbidden,
	hutch.NotFound:    http.StatusNotFound,
	hutch.Conflict:    http.StatusConflict,
	hutch.Exhausted:   http.StatusTooManyRequests,
	hutch.Unsupported: http.StatusNotImplemented,
	hutch.Unavailable: http.StatusServiceUnavailable,
	hutch.Timeout:     http.StatusGatewayTimeout,
}
