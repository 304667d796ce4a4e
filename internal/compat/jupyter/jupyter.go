// Package jupyter answers the clients of a Jupyter server: Open WebUI, JupyterLab with --gateway-url, and programs that
// start kernels over REST and use them over a WebSocket. The routes of such a server are below /jupyter/.
//
// A kernel is a code context in a sandbox, and its id contains both: the first 16 hexadecimal digits name the sandbox,
// the last 16 the context. The labels of the sandbox list its kernels and sessions. So this package has no other
// records, and kernels outlive a restart of the server.
//
// A kernel has its own sandbox, which is destroyed with it. A request that names a user (header X-User-Id, parameter
// user, or KERNEL_USERNAME in the body's env) gets a kernel in the sandbox of that user, and sees no other user's
// kernels.
//
// Only current work is in memory: [kernel] runs the requests of all its clients one after the other, as Jupyter does,
// and sends each client what it publishes. Requests continue when their client disconnects, as Jupyter's do, but end
// with its token, connected or not.
package jupyter

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"time"

	"hutch"
	"hutch/internal/caller"
	"hutch/internal/compat"
	"hutch/internal/ctxlock"
	"hutch/internal/httpio"
	"hutch/internal/problem"
)

// Prefix begins the paths of all routes. It is the base URL that clients are given.
const Prefix = "/jupyter"

// Options configure a handler; the zero value works.
type Options struct {
	// Image is the image or template of new sandboxes, unless a client names another; default the server's.
	Image string
	// MaxTimeout is the longest run of a cell, which clients do not limit; default 24 h.
	MaxTimeout time.Duration
	// Origins are the origins of web pages that can open a WebSocket, in addition to the server's own.
	Origins []string
	// Stall is how long a client can leave messages unread before its connection is closed; default 10 s. The kernel
	// and its other clients wait meanwhile.
	Stall time.Duration
	Log   *slog.Logger
}

// Handler serves the API below /jupyter/.
type Handler struct {
	svc     hutch.Service
	image   string
	longest time.Duration
	stall   time.Duration
	origins []string
	log     *slog.Logger
	mux     *http.ServeMux
	calls   *compat.Calls
	began   time.Time

	ctx   context.Context // context of runs, which outlive their requests
	close context.CancelCauseFunc
	runs  sync.WaitGroup

	mu      sync.Mutex
	kernels map[key]*kernel

	labelling ctxlock.Locks // by owner and sandbox
}

// NewHandler returns a handler that calls svc.
func NewHandler(svc hutch.Service, opt Options) *Handler {
	h := &Handler{
		svc: svc, image: opt.Image, longest: cmp.Or(opt.MaxTimeout, 24*time.Hour), stall: cmp.Or(opt.Stall, 10*time.Second), origins: opt.Origins,
		log: cmp.Or(opt.Log, slog.New(slog.DiscardHandler)), mux: http.NewServeMux(), calls: compat.NewCalls("jupyter"), began: time.Now(),
		kernels: map[key]*kernel{},
	}
	h.ctx, h.close = context.WithCancelCause(context.Background())
	for route, f := range h.routes() {
		h.mux.HandleFunc(route, func(w http.ResponseWriter, r *http.Request) {
			r, done := h.calls.Begin(r)
			defer done()
			if err := checkQuery(r); err != nil {
				h.fail(w, r, err)
				return
			}
			f(w, r)
		})
	}
	h.mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		Refuse(w, http.StatusNotFound, hutch.Errorf(hutch.NotFound, "this server has kernels, kernelspecs and sessions below %s/api/, and nothing at %.100q", Prefix, r.URL.Path))
	})
	return h
}

// checkQuery refuses parameters that the API does not have. JupyterLab adds a number to some requests, so that no cache
// answers them.
func checkQuery(r *http.Request) error {
	known := []string{"user"}
	if strings.HasSuffix(r.URL.Path, "/channels") {
		known = append(known, "session_id")
	}
	for name := range r.URL.Query() {
		if strings.Trim(name, "0123456789") == "" {
			known = append(known, name)
		}
	}
	return compat.CheckQuery(r, known...)
}

// Routes lists the routes, as patterns of [http.ServeMux].
func (h *Handler) Routes() (list []string) {
	for route := range h.routes() {
		list = append(list, route)
	}
	return list
}

func (h *Handler) routes() map[string]http.HandlerFunc {
	const api = " " + Prefix + "/api"
	return map[string]http.HandlerFunc{
		"GET" + api:                                    h.answer(h.version),
		"GET" + api + "/status":                        h.answer(h.status),
		"GET" + api + "/kernelspecs":                   h.answer(h.specs),
		"GET" + api + "/kernelspecs/{name}":            h.answer(h.spec),
		"GET " + Prefix + "/kernelspecs/{name}/{file}": h.resource,
		"GET" + api + "/kernels":                       h.answer(h.list),
		"POST" + api + "/kernels":                      h.running(h.answer(h.start)),
		"GET" + api + "/kernels/{kernel}":              h.answer(h.get),
		"DELETE" + api + "/kernels/{kernel}":           h.running(h.answer(h.remove)),
		"POST" + api + "/kernels/{kernel}/interrupt":   h.running(h.answer(h.interrupt)),
		"POST" + api + "/kernels/{kernel}/restart":     h.running(h.answer(h.restart)),
		"GET" + api + "/kernels/{kernel}/channels":     h.running(h.channels),
		"GET" + api + "/sessions":                      h.answer(h.sessions),
		"POST" + api + "/sessions":                     h.running(h.answer(h.startSession)),
		"GET" + api + "/sessions/{session}":            h.answer(h.session),
		"PATCH" + api + "/sessions/{session}":          h.running(h.answer(h.changeSession)),
		"DELETE" + api + "/sessions/{session}":         h.running(h.answer(h.endSession)),
	}
}

// answer serves a route with a function that returns the status and the value of its answer; a nil value is no body.
func (h *Handler) answer(f func(http.ResponseWriter, *http.Request) (status int, v any, err error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		status, v, err := f(w, r)
		switch {
		case err != nil:
			h.fail(w, r, err)
		case v == nil:
			w.WriteHeader(status)
		default:
			h.send(w, r, status, v)
		}
	}
}

// running refuses callers that cannot run code. A client of a kernel sees the code and the output of its other clients,
// and ending a kernel ends their runs, before any verb is called.
func (h *Handler) running(f http.HandlerFunc) http.HandlerFunc {
	needs := []hutch.Scope{hutch.ScopeExec}
	return func(w http.ResponseWriter, r *http.Request) {
		if who := caller.From(r.Context()).Principal; who != nil && !who.Has(needs...) {
			h.fail(w, r, who.Lack("RunCode", needs))
			return
		}
		f(w, r)
	}
}

// ServeHTTP implements http.Handler.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) { h.mux.ServeHTTP(w, r) }

// Close ends the open calls and runs, and waits for them.
func (h *Handler) Close() {
	h.close(hutch.Errorf(hutch.Unavailable, "the server is shutting down: try again in a moment"))
	h.calls.Close()
	h.runs.Wait()
}

// fault is an error as clients of Jupyter read it.
type fault struct {
	Message string `json:"message"`
	Reason  string `json:"reason"`
}

// Refuse answers with an error, also for a guard that does not let a request in.
func Refuse(w http.ResponseWriter, status int, err error) {
	e := hutch.AsError(err)
	compat.Answer(w, status, fault{e.Message, string(e.Kind)})
}

func (h *Handler) fail(w http.ResponseWriter, r *http.Request, err error) {
	err = compat.Failed(h.log, r, err)
	kind := hutch.KindOf(err)
	status := problem.Status(kind)
	switch {
	case errors.Is(err, compat.ErrTooLarge):
		status = http.StatusRequestEntityTooLarge
	case kind == hutch.Unsupported:
		status = http.StatusNotImplemented
	}
	compat.RetryAfter(w, err)
	Refuse(w, status, err)
}

// send answers with a value in JSON.
func (h *Handler) send(w http.ResponseWriter, r *http.Request, status int, v any) {
	b, err := json.Marshal(v)
	if err != nil {
		h.fail(w, r, err)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	httpio.NewWriter(w, r, compat.Stall).Write(b) // an error means that the client has disconnected
}
