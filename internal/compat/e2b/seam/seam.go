// Package seam is the interface between E2B's control plane (package e2b) and the services inside a sandbox, the
// packages envd and interpreter.
//
// The control plane reads the address of a request, checks its access token, and puts the caller of the sandbox into
// the context. The services then see only a [Target]: they know no host names, no tokens and no engine.
package seam

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"slices"
	"time"

	"hutch"
)

// The ports of E2B's services. No program inside listens there: the server answers for them.
const (
	EnvdPort        = 49983
	InterpreterPort = 49999
)

// EnvdVersion is the version of E2B's envd whose features the sandboxes have. Clients choose their calls by it.
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
	// /files can be answered; the control plane refuses all other requests before they get here.
	Verified bool
	// Template is E2B's name for the start of the sandbox, for E2B_TEMPLATE_ID.
	Template string
	// Domain is the parent of the host names of the sandbox's ports; empty for none.
	Domain string
	// OnPause registers a function that ends work when a client pauses the sandbox, because a sandbox in use cannot be
	// paused. It is for work that outlives its request: the context of a request ends by itself then, with ErrPaused.
	// The returned function removes the registration. If OnPause is nil, nothing is registered.
	OnPause func(end func()) (forget func())
}

// ErrPaused ends the open calls of clients when one of them pauses the sandbox.
var ErrPaused = hutch.Errorf(hutch.Unavailable, "the sandbox was paused: connect to it again")

type key struct{}

// With returns the context of a request for t.
func With(ctx context.Context, t Target) context.Context { return context.WithValue(ctx, key{}, t) }

// From returns the target of a request. The zero Target means that none was set.
func From(ctx context.Context) Target {
	t, _ := ctx.Value(key{}).(Target)
	return t
}

// endTime is how long the destruction of a sandbox can take after its stream broke off.
const endTime = 2 * time.Second

// Vanished reports whether the sandbox of a stream no longer runs, after the stream has ended with err. A sandbox that
// is being destroyed is first only unreachable. Clients recognise the end of a sandbox by a cut connection and a
// failing /health, so the stream is cut only then.
func Vanished(ctx context.Context, t Target, err error) bool {
	if errors.Is(err, ErrPaused) {
		return false
	}
	switch hutch.KindOf(err) {
	case hutch.NotFound: // the subject of a stream does not vanish otherwise
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

// UnknownParameter returns the name of a parameter of a request that is not among the known ones, if there is one. A
// service refuses it by this name, because ignoring it would do something else than the client asked for.
func UnknownParameter(r *http.Request, known ...string) (name string, unknown bool) {
	for _, name := range slices.Sorted(maps.Keys(r.URL.Query())) {
		if !slices.Contains(known, name) {
			return name, true
		}
	}
	return "", false
}

// RepeatedParameter returns the name of a parameter that a request has more than once, if there is one, apart from those
// that are lists. A service refuses it by this name, because only one of its values would count.
func RepeatedParameter(r *http.Request, lists ...string) (name string, repeated bool) {
	q := r.URL.Query()
	for _, name := range slices.Sorted(maps.Keys(q)) {
		if len(q[name]) > 1 && !slices.Contains(lists, name) {
			return name, true
		}
	}
	return "", false
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
	json.NewEncoder(w).Encode(Refusal{status, message}) // an error means that the client has disconnected
}

// Status returns the HTTP status that E2B's clients expect for a kind of error.
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
