// Package envd provides the services that E2B's clients expect on port 49983 of a sandbox: process.Process and
// filesystem.Filesystem, and /files, /health, /metrics and /envs over plain HTTP. Package seam gives it the sandbox of
// a request. Everything is a translation to calls of [hutch.Service].
//
// Two ideas keep it small. The remote procedure calls are Connect's with JSON messages only: a unary call is a POST,
// and a stream is a sequence of frames (connect.go), so no generated code is needed. And a command of E2B is a
// background process of Hutch whose output is followed (process.go): it outlives its connection, can be listed and
// connected to again, and has an input and a process id.
//
// A user and a relative path mean the same as in E2B: "user" is the sandbox's own user, and paths begin at its home
// (user.go). Commands and file operations have the rights of the user that a request names.
//
// Unsupported features are refused by name, with the code "unimplemented" or the status 501: message fields that this
// package does not know, compressed messages, the binary codec, and StreamInput. Changes of permissions are not
// reported to watchers.
package envd

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"hutch"
	"hutch/internal/caller"
	"hutch/internal/compat/e2b/seam"
	"hutch/internal/httpio"
)

// Options configure a handler; the zero value works.
type Options struct {
	Log *slog.Logger
	// Stall is how long a client can leave data unread, or pause while it sends, before it is disconnected; default 5
	// minutes.
	Stall time.Duration
}

// Handler serves the sandboxes that package seam puts into the contexts of requests.
type Handler struct {
	log   *slog.Logger
	stall time.Duration
	mux   *http.ServeMux

	commands commands
	watchers watchers
	accounts accounts
	turns    turns

	ctx   context.Context // done when the handler closes
	close context.CancelCauseFunc
	calls sync.WaitGroup
}

// New returns a handler.
func New(opt Options) *Handler {
	h := &Handler{
		log:   cmp.Or(opt.Log, slog.New(slog.DiscardHandler)),
		stall: cmp.Or(opt.Stall, 5*time.Minute),
		mux:   http.NewServeMux(),
	}
	h.ctx, h.close = context.WithCancelCause(context.Background())
	h.routeProcess()
	h.routeFilesystem()
	h.routeHTTP()
	return h
}

// ServeHTTP implements http.Handler.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	t := seam.From(r.Context())
	if t.Service == nil {
		seam.Refuse(w, http.StatusNotFound, "the request names no sandbox")
		return
	}
	h.calls.Add(1)
	defer h.calls.Done()
	ctx, end := caller.Until(caller.WithSurface(r.Context(), "e2b"), h.ctx)
	defer end()
	r = r.WithContext(ctx)
	if answerCORS(w, r) || h.refusesUnverified(w, r, t) || refusesParameters(w, r) {
		return
	}
	h.mux.ServeHTTP(httpio.NewWriter(w, r, h.stall), r)
}

// refusesParameters answers a request with a parameter that its path does not have, or that is given twice.
func refusesParameters(w http.ResponseWriter, r *http.Request) bool {
	var known []string
	if r.URL.Path == "/files" {
		known = []string{"path", "username", "signature", "signature_expiration"}
	}
	if name, unknown := seam.UnknownParameter(r, known...); unknown {
		seam.Refuse(w, http.StatusNotImplemented, fmt.Sprintf("this server does not have the parameter %.100q: leave it out", name))
		return true
	}
	name, repeated := seam.RepeatedParameter(r)
	if repeated {
		seam.Refuse(w, http.StatusBadRequest, fmt.Sprintf("the parameter %.100q is given several times: give it once", name))
	}
	return repeated
}

// Close ends the open calls and the watchers, and waits until they have ended.
func (h *Handler) Close() {
	h.close(hutch.Errorf(hutch.Unavailable, "the server is shutting down: try again in a moment"))
	h.calls.Wait()
	h.watchers.running.Wait()
}

// answerCORS lets web pages of every origin call, as E2B's own envd does, and answers a preflight request. Code in
// front of this package decides which origins get this far.
func answerCORS(w http.ResponseWriter, r *http.Request) bool {
	if r.Header.Get("Origin") == "" {
		return false
	}
	header := w.Header()
	header.Set("Access-Control-Allow-Origin", "*")
	header.Set("Access-Control-Expose-Headers", "*")
	if r.Method != http.MethodOptions {
		return false
	}
	header.Set("Access-Control-Allow-Methods", "GET, POST, HEAD, OPTIONS")
	header.Set("Access-Control-Allow-Headers", "*, Authorization")
	header.Set("Access-Control-Max-Age", "7200")
	w.WriteHeader(http.StatusNoContent)
	return true
}

// gone reports whether an error says that the sandbox itself does not exist.
func gone(err error) bool {
	subject, _ := hutch.AsError(err).About()
	return hutch.KindOf(err) == hutch.NotFound && subject == hutch.AboutSandbox
}

// refuseGone answers for a sandbox that does not run. Clients recognise such a sandbox only by this status.
func refuseGone(w http.ResponseWriter, t seam.Target) {
	writeJSON(w, http.StatusBadGateway, map[string]any{"sandboxId": t.Sandbox, "message": "The sandbox was not found", "code": http.StatusBadGateway})
}

// unmetered returns the context for the later calls of a request, so that a request counts only once.
func unmetered(ctx context.Context) context.Context { return caller.Unmetered(ctx) }

// place identifies a sandbox among those of all owners.
func place(ctx context.Context, t seam.Target) string {
	owner, _ := caller.OwnerOf(ctx)
	return owner.ID + "\x00" + t.Sandbox
}
