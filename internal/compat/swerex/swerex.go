// Package swerex answers the clients of SWE-ReX, through which SWE-agent runs commands. Below /swerex/SANDBOX/ are the
// routes of one SWE-ReX server, whose machine is that sandbox: RemoteRuntime(host=".../swerex/SANDBOX", port=None). A
// missing sandbox is created on first use. "close" ends the sessions and keeps the sandbox, as the server of SWE-ReX
// does.
//
// A session is a background process of the sandbox: a shell with a terminal. The server of SWE-ReX types a command into
// its shell and finds the end by the prompt. Here the command is a file that the shell sources, and the end is a random
// mark; so commands of any length and form run unchanged. Input for programs is typed, as in SWE-ReX.
//
// An error is status 511 with the class of the exception that the client raises.
package swerex

import (
	"cmp"
	"context"
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
	// MaxTimeout bounds a command that names no time limit; default 24 h.
	MaxTimeout time.Duration
	// Stall is how long a client can leave data unread before it is disconnected; default 5 minutes.
	Stall time.Duration
	Log   *slog.Logger
}

// Handler serves the API below /swerex/.
type Handler struct {
	svc     hutch.Service
	longest time.Duration
	stall   time.Duration
	log     *slog.Logger
	mux     *http.ServeMux
	calls   *compat.Calls
	shells  shells
}

// NewHandler returns a handler that calls svc.
func NewHandler(svc hutch.Service, opt Options) *Handler {
	h := &Handler{
		svc: svc, longest: cmp.Or(opt.MaxTimeout, 24*time.Hour), stall: cmp.Or(opt.Stall, compat.Stall),
		log: cmp.Or(opt.Log, slog.New(slog.DiscardHandler)), mux: http.NewServeMux(), calls: compat.NewCalls("swerex"),
	}
	for route, f := range h.routes() {
		h.mux.HandleFunc(route, func(w http.ResponseWriter, r *http.Request) {
			r, done := h.calls.Begin(r)
			defer done()
			if err := compat.CheckQuery(r); err != nil {
				h.reply(w, r)(nil, hutch.AsError(err).Because(errBody))
				return
			}
			h.reply(w, r)(f(w, r, r.PathValue("sandbox")))
		})
	}
	h.mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		h.send(w, r, http.StatusNotFound, detail{"Not Found"})
	})
	return h
}

// handler answers with a value or an error.
type handler func(w http.ResponseWriter, r *http.Request, sandbox string) (any, error)

// Routes lists the routes, as patterns of [http.ServeMux].
func (h *Handler) Routes() (list []string) {
	for route := range h.routes() {
		list = append(list, route)
	}
	return list
}

func (h *Handler) routes() map[string]handler {
	const at = " /swerex/{sandbox}/"
	return map[string]handler{
		"GET" + at + "is_alive":        h.isAlive,
		"POST" + at + "create_session": h.createSession,
		"POST" + at + "run_in_session": h.runInSession,
		"POST" + at + "close_session":  h.closeSession,
		"POST" + at + "execute":        h.execute,
		"POST" + at + "read_file":      h.readFile,
		"POST" + at + "write_file":     h.writeFile,
		"POST" + at + "upload":         h.upload,
		"POST" + at + "close":          h.close,
	}
}

// ServeHTTP implements http.Handler.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) { h.mux.ServeHTTP(w, r) }

// Close ends the open calls and waits for them.
func (h *Handler) Close() { h.calls.Close() }

// isAlive says whether the token can use the sandbox. It creates nothing.
func (h *Handler) isAlive(_ http.ResponseWriter, r *http.Request, sandbox string) (any, error) {
	if err := hutch.CheckID(sandbox); err != nil {
		return nil, err
	}
	_, err := h.svc.Sandboxes(r.Context(), hutch.Filter{ID: sandbox, Brief: true})
	return struct {
		Alive   bool   `json:"is_alive"`
		Message string `json:"message"`
	}{Alive: err == nil}, err
}

// exception is an error that the client raises.
type exception struct {
	class   string
	message string
	extra   map[string]string
}

func (e *exception) Error() string { return e.class + ": " + e.message }

// The classes of exceptions.
const (
	classSyntax  = "swerex.exceptions.BashIncorrectSyntaxError"
	classTimeout = "swerex.exceptions.CommandTimeoutError"
	classNonZero = "swerex.exceptions.NonZeroExitCodeError"
	classExists  = "swerex.exceptions.SessionExistsError"
	classMissing = "swerex.exceptions.SessionDoesNotExistError"
	classEnded   = "pexpect.exceptions.EOF"
	classOther   = "swerex.exceptions.SwerexException"
)

// classes are the exception classes for kinds of errors.
var classes = map[hutch.Kind]string{
	hutch.Invalid: "builtins.ValueError", hutch.Denied: "builtins.PermissionError", hutch.Timeout: classTimeout, hutch.Unsupported: "builtins.NotImplementedError",
}

func throw(class, message string) error { return &exception{class: class, message: message} }

// classOf returns an error as the client raises it.
func classOf(err error) *exception {
	if e, ok := errors.AsType[*exception](err); ok {
		return e
	}
	e := hutch.AsError(err)
	return &exception{class: cmp.Or(classes[e.Kind], classOther), message: e.Message}
}

// detail is the body of an error of the server itself.
type detail struct {
	Detail string `json:"detail"`
}

// Refuse answers for a guard that does not let a request in.
func Refuse(w http.ResponseWriter, status int, err error) {
	compat.Answer(w, status, detail{hutch.AsError(err).Message})
}

// errBody is the cause of the errors of requests that cannot be read.
var errBody = errors.New("the request is wrong")

// reply answers with a value or an error.
func (h *Handler) reply(w http.ResponseWriter, r *http.Request) func(any, error) {
	return func(v any, err error) {
		if cause := context.Cause(r.Context()); err != nil && cause != nil && !errors.Is(err, errBody) {
			err = cause
		}
		switch kind := hutch.KindOf(err); {
		case err == nil:
			h.send(w, r, http.StatusOK, v)
		case errors.Is(err, compat.ErrTooLarge):
			h.send(w, r, http.StatusRequestEntityTooLarge, detail{hutch.AsError(err).Message})
		case errors.Is(err, errBody) && kind == hutch.Unsupported:
			h.send(w, r, http.StatusNotImplemented, detail{hutch.AsError(err).Message})
		case errors.Is(err, errBody):
			h.send(w, r, http.StatusUnprocessableEntity, detail{hutch.AsError(err).Message})
		default:
			h.raise(w, r, err)
		}
	}
}

func (h *Handler) raise(w http.ResponseWriter, r *http.Request, err error) {
	e := classOf(err)
	if _, raised := errors.AsType[*exception](err); !raised {
		compat.LogInternal(h.log, r, err)
	}
	extra := e.extra
	if extra == nil {
		extra = map[string]string{}
	}
	h.send(w, r, http.StatusNetworkAuthenticationRequired, map[string]any{"swerexception": map[string]any{
		"message": e.message, "class_path": e.class, "traceback": "", "extra_info": extra,
	}})
}

// chunk is the longest answer that is not charged to the caller's memory budget, in bytes.
const chunk = 128 << 10

func (h *Handler) send(w http.ResponseWriter, r *http.Request, status int, v any) {
	b, err := compat.Marshal(v)
	if err == nil && len(b) > chunk && !compat.Take(r.Context(), len(b)) {
		h.raise(w, r, compat.ErrNoRoom)
		return
	}
	if err != nil {
		status = http.StatusInternalServerError
		b = []byte(`{"detail":"internal error"}`)
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	httpio.NewWriter(w, r, h.stall).Write(b) // an error means that the client has disconnected
}

// body decodes a request.
func body(w http.ResponseWriter, r *http.Request, v any) error {
	err := compat.ReadJSON(w, r, v)
	if err == nil || errors.Is(err, compat.ErrTooLarge) || errors.Is(err, hutch.Exhausted) {
		return err
	}
	return hutch.AsError(err).Because(errBody)
}
