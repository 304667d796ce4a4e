// Package ragflow answers RAGFlow, whose agents send code to a sandbox executor: below /ragflow/ are "run" and
// "healthz". A RAGFlow that uses it changes the endpoint and the token of its provider self_managed.
//
// Each run has a new sandbox, which is destroyed afterwards. The code defines main; a small program of Hutch, which gets
// the code and the arguments on standard input, calls it and prints the result after a random mark. So the result is
// found whatever the code prints. Files that the code leaves are returned as artifacts.
//
// RAGFlow's own executor refuses code by its words, such as "import os". Here the sandbox is the protection, so any code
// runs.
package ragflow

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"time"

	"hutch"
	"hutch/internal/compat"
)

// Prefix is before all paths of the API.
const Prefix = "/ragflow"

// Open reports whether a request needs no token.
func Open(r *http.Request) bool { return r.URL.Path == Prefix+"/healthz" && r.Method == http.MethodGet }

// Options configure a handler; the zero value works.
type Options struct {
	// Timeout ends a run; default 30 s.
	Timeout time.Duration
	// Image is the image or template of the sandboxes; default the server's.
	Image string
	Log   *slog.Logger
}

// Handler serves the API.
type Handler struct {
	svc     hutch.Service
	timeout time.Duration
	image   string
	log     *slog.Logger
	mux     *http.ServeMux
	calls   *compat.Calls
}

// NewHandler returns a handler that calls svc.
func NewHandler(svc hutch.Service, opt Options) *Handler {
	h := &Handler{
		svc: svc, timeout: cmp.Or(opt.Timeout, 30*time.Second), image: opt.Image, log: cmp.Or(opt.Log, slog.New(slog.DiscardHandler)),
		mux: http.NewServeMux(), calls: compat.NewCalls("ragflow"),
	}
	h.mux.HandleFunc("POST /ragflow/run", h.run)
	h.mux.HandleFunc("GET /ragflow/healthz", func(w http.ResponseWriter, r *http.Request) {
		compat.Send(w, r, http.StatusOK, []byte(`{"status":"ok"}`))
	})
	h.mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) { Refuse(w, http.StatusNotFound, errNoRoute) })
	return h
}

var errNoRoute = hutch.Errorf(hutch.NotFound, "there is no such route: RAGFlow calls run and healthz")

// Routes lists the routes that need a token, as patterns of [http.ServeMux].
func (h *Handler) Routes() []string { return []string{"POST /ragflow/run"} }

// ServeHTTP implements http.Handler.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) { h.mux.ServeHTTP(w, r) }

// Close ends the open calls and waits for them.
func (h *Handler) Close() { h.calls.Close() }

// Refuse answers with an error that is not the result of a run.
func Refuse(w http.ResponseWriter, status int, err error) {
	compat.Answer(w, status, map[string]string{"detail": hutch.AsError(err).Message})
}

func (h *Handler) run(w http.ResponseWriter, r *http.Request) {
	r, done := h.calls.Begin(r)
	defer done()
	p, err := h.read(w, r)
	if err != nil {
		Refuse(w, statusOf(err), err)
		return
	}
	res, err := h.execute(r.Context(), p)
	if err != nil {
		res = h.failed(r, err)
	}
	body, err := compat.Encode(r.Context(), res)
	if err != nil {
		body, _ = compat.Encode(context.Background(), h.failed(r, err)) // short
	}
	compat.Send(w, r, http.StatusOK, body)
}

// statusOf returns the status for a request that cannot be run.
func statusOf(err error) int {
	switch {
	case errors.Is(err, compat.ErrTooLarge):
		return http.StatusRequestEntityTooLarge
	case hutch.KindOf(err) == hutch.Exhausted:
		return http.StatusTooManyRequests
	}
	return http.StatusUnprocessableEntity
}

// failed returns the answer for a run that could not be carried out.
func (h *Handler) failed(r *http.Request, err error) result {
	err = compat.Failed(h.log, r, err)
	e := hutch.AsError(err)
	res := result{Status: statusRunner, Stderr: e.Message, ExitCode: -3, Detail: text("internal_error"), Artifacts: []artifact{}}
	if e.Kind == hutch.Exhausted {
		res.ExitCode, res.Detail = -10, text("no_available_container")
	}
	return res
}

func text(s string) *string { return &s }
