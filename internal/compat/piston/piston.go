// Package piston answers clients of Piston's API, version 2: programs that are run once, in one of the languages. Below
// /piston/api/v2/ are "runtimes", "packages" and "execute". Each execution has a new sandbox without network, which is
// destroyed afterwards; the languages are those of the server's default image.
package piston

import (
	"cmp"
	"errors"
	"log/slog"
	"net/http"
	"time"

	"hutch"
	"hutch/internal/compat"
	"hutch/internal/httpio"
)

// Options configure a handler; the zero value works.
type Options struct {
	// MaxTimeout bounds a stage of an execution; default 24 h.
	MaxTimeout time.Duration
	// Stall is how long a client can leave data unread before it is disconnected; default 5 minutes.
	Stall time.Duration
	Log   *slog.Logger
}

// Handler serves the API below /piston/.
type Handler struct {
	svc       hutch.Service
	longest   time.Duration
	stall     time.Duration
	log       *slog.Logger
	mux       *http.ServeMux
	calls     *compat.Calls
	languages *compat.Languages
	names     []string // names of the routes
}

// NewHandler returns a handler that calls svc.
func NewHandler(svc hutch.Service, opt Options) *Handler {
	h := &Handler{
		svc: svc, longest: cmp.Or(opt.MaxTimeout, 24*time.Hour), stall: cmp.Or(opt.Stall, compat.Stall),
		log: cmp.Or(opt.Log, slog.New(slog.DiscardHandler)), mux: http.NewServeMux(), calls: compat.NewCalls("piston"),
	}
	h.languages = compat.NewLanguages(svc, h.log)
	for route, f := range map[string]func(http.ResponseWriter, *http.Request) (any, error){
		"GET /piston/api/v2/runtimes": h.listRuntimes, "GET /piston/api/v2/packages": h.listPackages, "POST /piston/api/v2/execute": h.execute,
		"POST /piston/api/v2/packages": lacks("packages"), "DELETE /piston/api/v2/packages": lacks("packages"), "/piston/api/v2/connect": lacks("connect"),
	} {
		h.names = append(h.names, route)
		h.mux.HandleFunc(route, func(w http.ResponseWriter, r *http.Request) {
			r, done := h.calls.Begin(r)
			defer done()
			var v any
			err := compat.CheckQuery(r)
			if err == nil {
				v, err = f(w, r)
			}
			h.reply(w, r, v, err)
		})
	}
	h.mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) { h.send(w, r, http.StatusNotFound, message{"Not Found"}) })
	return h
}

// Routes lists the routes, as patterns of [http.ServeMux].
func (h *Handler) Routes() []string { return h.names }

// ServeHTTP implements http.Handler.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) { h.mux.ServeHTTP(w, r) }

// Close ends the open calls and waits for them.
func (h *Handler) Close() { h.calls.Close() }

func lacks(what string) func(http.ResponseWriter, *http.Request) (any, error) {
	return func(http.ResponseWriter, *http.Request) (any, error) {
		return nil, hutch.Errorf(hutch.Unsupported, "%s: the languages are those of the server's image; run programs with execute", what)
	}
}

// message is the body of an error.
type message struct {
	Message string `json:"message"`
}

// Refuse answers for a guard that does not let a request in.
func Refuse(w http.ResponseWriter, status int, err error) {
	compat.Answer(w, status, message{hutch.AsError(err).Message})
}

// statuses are the HTTP statuses for kinds of errors.
var statuses = map[hutch.Kind]int{
	hutch.Invalid: http.StatusBadRequest, hutch.Denied: http.StatusForbidden, hutch.Conflict: http.StatusBadRequest, hutch.Exhausted: http.StatusTooManyRequests,
	hutch.Unsupported: http.StatusNotImplemented, hutch.Unavailable: http.StatusServiceUnavailable,
}

func (h *Handler) reply(w http.ResponseWriter, r *http.Request, v any, err error) {
	if err == nil {
		h.send(w, r, http.StatusOK, v)
		return
	}
	err = compat.Failed(h.log, r, err)
	e := hutch.AsError(err)
	status := cmp.Or(statuses[e.Kind], http.StatusInternalServerError)
	if errors.Is(err, compat.ErrTooLarge) {
		status = http.StatusRequestEntityTooLarge
	}
	compat.RetryAfter(w, err)
	h.send(w, r, status, message{e.Message})
}

// chunk is the longest answer that is not charged to the caller's memory budget, in bytes.
const chunk = 128 << 10

func (h *Handler) send(w http.ResponseWriter, r *http.Request, status int, v any) {
	b, err := compat.Marshal(v)
	if err == nil && len(b) > chunk && !compat.Take(r.Context(), len(b)) {
		h.reply(w, r, nil, compat.ErrNoRoom)
		return
	}
	if err != nil {
		status = http.StatusInternalServerError
		b = []byte(`{"message":"internal error"}`)
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	httpio.NewWriter(w, r, h.stall).Write(b) // an error means that the client has disconnected
}
