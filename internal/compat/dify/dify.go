// Package dify answers Dify, whose workflows send their code nodes and templates to a sandbox service: below
// /dify/v1/sandbox/ are "run" and "dependencies". A Dify that uses it changes CODE_EXECUTION_ENDPOINT and
// CODE_EXECUTION_API_KEY.
//
// Each run has a new sandbox, which is destroyed afterwards. As in Dify's own service, preload runs first, and then the
// code in the same module. The code is passed on standard input, so it can be longer than a command line.
//
// Answers are {"code", "message", "data"}. The status is 200 also when a run fails, because Dify shows the message of
// that status only; it is 400 for a request that no server can answer.
package dify

import (
	"cmp"
	"context"
	"log/slog"
	"net/http"
	"time"

	"hutch"
	"hutch/internal/compat"
)

// Prefix is before all paths of the API.
const Prefix = "/dify"

// Open reports whether a request needs no token.
func Open(r *http.Request) bool { return r.URL.Path == Prefix+"/health" && r.Method == http.MethodGet }

// Options configure a handler; the zero value works.
type Options struct {
	// Timeout ends a run; default 30 s. Dify itself waits for 60 s.
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
	lists   compat.Remembered[[]dependency]
	routes  []string
}

// NewHandler returns a handler that calls svc.
func NewHandler(svc hutch.Service, opt Options) *Handler {
	h := &Handler{
		svc: svc, image: opt.Image, timeout: cmp.Or(opt.Timeout, 30*time.Second), log: cmp.Or(opt.Log, slog.New(slog.DiscardHandler)),
		mux: http.NewServeMux(), calls: compat.NewCalls("dify"),
	}
	for route, f := range map[string]func(http.ResponseWriter, *http.Request) (any, error){
		"POST /dify/v1/sandbox/run":                 h.run,
		"GET /dify/v1/sandbox/dependencies":         h.listDependencies,
		"GET /dify/v1/sandbox/dependencies/refresh": h.refreshDependencies,
		"POST /dify/v1/sandbox/dependencies/update": h.updateDependencies,
	} {
		h.routes = append(h.routes, route)
		h.mux.HandleFunc(route, func(w http.ResponseWriter, r *http.Request) {
			r, done := h.calls.Begin(r)
			defer done()
			var v any
			err := compat.CheckQuery(r, parameters[route]...)
			if err == nil {
				v, err = f(w, r)
			}
			h.reply(w, r, v, err)
		})
	}
	h.mux.HandleFunc("GET /dify/health", func(w http.ResponseWriter, r *http.Request) {
		compat.Send(w, r, http.StatusOK, []byte(`"ok"`))
	})
	h.mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		compat.Send(w, r, http.StatusNotFound, []byte(`{"code":-404,"message":"there is no such route: Dify calls v1/sandbox/run and v1/sandbox/dependencies","data":null}`))
	})
	return h
}

// parameters are the parameters of the routes that have some.
var parameters = map[string][]string{
	"GET /dify/v1/sandbox/dependencies": {"language"}, "GET /dify/v1/sandbox/dependencies/refresh": {"language"},
}

// Routes lists the routes that need a token, as patterns of [http.ServeMux].
func (h *Handler) Routes() []string { return h.routes }

// ServeHTTP implements http.Handler.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) { h.mux.ServeHTTP(w, r) }

// Close ends the open calls and waits for them.
func (h *Handler) Close() { h.calls.Close() }

// envelope is around every answer.
type envelope struct {
	Code    int    `json:"code"` // 0, or negative for an error
	Message string `json:"message"`
	Data    any    `json:"data"`
}

// codes are the codes for kinds of errors: negative HTTP statuses.
var codes = map[hutch.Kind]int{
	hutch.Invalid: -400, hutch.Denied: -403, hutch.NotFound: -404, hutch.Conflict: -409, hutch.Exhausted: -429,
	hutch.Unsupported: -501, hutch.Unavailable: -503, hutch.Timeout: -504,
}

func (h *Handler) reply(w http.ResponseWriter, r *http.Request, v any, err error) {
	if err == nil {
		var body []byte
		if body, err = compat.Encode(r.Context(), envelope{0, "success", v}); err == nil {
			compat.Send(w, r, http.StatusOK, body)
			return
		}
	}
	err = compat.Failed(h.log, r, err)
	e := hutch.AsError(err)
	status := http.StatusOK
	if e.Kind == hutch.Invalid || e.Kind == hutch.Unsupported {
		status = http.StatusBadRequest
	}
	h.refuse(w, r, status, err)
}

func (h *Handler) refuse(w http.ResponseWriter, r *http.Request, status int, err error) {
	e := hutch.AsError(err)
	body, _ := compat.Encode(context.Background(), envelope{cmp.Or(codes[e.Kind], -500), e.Message, nil}) // strings
	compat.Send(w, r, status, body)
}

// Refuse answers for a guard that does not let a request in. A request without a valid key gets no body, as from
// Dify's own service.
func Refuse(w http.ResponseWriter, status int, err error) {
	if status == http.StatusUnauthorized {
		w.WriteHeader(status)
		return
	}
	e := hutch.AsError(err)
	body, _ := compat.Encode(context.Background(), envelope{cmp.Or(codes[e.Kind], -500), e.Message, nil}) // strings
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	w.Write(body) // an error means that the client has disconnected
}
