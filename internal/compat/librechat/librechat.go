// Package librechat answers LibreChat's code interpreter: below /librechat/v1/ are "exec", "upload", "files",
// "download" and "sessions". A LibreChat that uses it changes LIBRECHAT_CODE_BASEURL and its key.
//
// A request has one of two kinds of callers:
//
//   - An API key is a token of Hutch and names no person: all people of that LibreChat share the token's files, which
//     LibreChat itself keeps apart.
//   - A JWT names a tenant and a user. The server verifies it with the configured key and issuer, see [Verifier]. Its
//     calls use a configured token, and one user never reaches the files of another.
//
// Files are kept where no code runs: each user has a sandbox, the store, that only this package uses. A store has a
// folder for each session and in it the files; the id of a file is a hash of its session and name, so there is no other
// record. An execution has a new sandbox, which gets its input files from stores, runs the code in /mnt/data, and gives
// new files to the user's store. With a hint for a runtime session, executions with the same hint share a sandbox
// instead, which sleeps between them.
//
// Stores and shared sandboxes are destroyed after Options.Keep without use, and so are older sessions in a store.
package librechat

import (
	"cmp"
	"errors"
	"log/slog"
	"net/http"
	"regexp"
	"time"

	"hutch"
	"hutch/internal/compat"
	"hutch/internal/httpio"
)

// Prefix is before all paths of the API.
const Prefix = "/librechat/v1"

// Open reports whether a request needs no token.
func Open(r *http.Request) bool { return r.URL.Path == Prefix+"/health" && r.Method == http.MethodGet }

// Uploads reports whether a request's body is files, which are never held in memory.
func Uploads(r *http.Request) bool {
	return r.Method == http.MethodPost && (r.URL.Path == Prefix+"/upload" || r.URL.Path == Prefix+"/upload/batch")
}

// Options configure a handler; the zero value works.
type Options struct {
	// Timeout ends an execution; default 30 s.
	Timeout time.Duration
	// Image is the image or template of the sandboxes that code runs in; default the server's.
	Image string
	// Keep is how long files and sandboxes are kept without use; default 7 days.
	Keep time.Duration
	// Stall is how long a client can leave data unread, or send none, before it is disconnected; default 5 minutes.
	Stall time.Duration
	Log   *slog.Logger
}

// Handler serves the API.
type Handler struct {
	svc    hutch.Service
	opt    Options
	log    *slog.Logger
	mux    *http.ServeMux
	calls  *compat.Calls
	kept   *compat.Keeper
	prunes *compat.Throttle
	routes []string
}

// NewHandler returns a handler that calls svc.
func NewHandler(svc hutch.Service, opt Options) *Handler {
	opt.Timeout, opt.Keep, opt.Stall = cmp.Or(opt.Timeout, 30*time.Second), cmp.Or(opt.Keep, 7*24*time.Hour), cmp.Or(opt.Stall, compat.Stall)
	h := &Handler{svc: svc, opt: opt, log: cmp.Or(opt.Log, slog.New(slog.DiscardHandler)), mux: http.NewServeMux(), calls: compat.NewCalls("librechat"), kept: compat.NewKeeper(svc, opt.Keep), prunes: compat.NewThrottle(opt.Keep / 24)}
	for route, f := range map[string]func(http.ResponseWriter, *http.Request) error{
		"POST /exec":                             h.exec,
		"POST /exec/programmatic":                lacks("exec/programmatic: code cannot call tools of the agent; use exec"),
		"POST /upload":                           h.upload,
		"POST /upload/batch":                     h.uploadBatch,
		"GET /files/{session}":                   h.list,
		"DELETE /files/{session}/{file}":         h.remove,
		"GET /download/{session}/{file}":         h.download,
		"GET /sessions/{session}/objects/{file}": h.metadata,
	} {
		known := parameters[route]
		method, path, _ := cut(route)
		route = method + " " + Prefix + path
		h.routes = append(h.routes, route)
		h.mux.HandleFunc(route, func(w http.ResponseWriter, r *http.Request) {
			r, done := h.calls.Begin(r)
			defer done()
			err := compat.CheckQuery(r, known...)
			if err == nil {
				err = f(w, r)
			}
			if err != nil {
				h.fail(w, r, err)
			}
		})
	}
	h.mux.HandleFunc("GET "+Prefix+"/health", func(w http.ResponseWriter, r *http.Request) {
		compat.Send(w, r, http.StatusOK, []byte(`{"status":"ok"}`))
	})
	h.mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		Refuse(w, http.StatusNotFound, hutch.Errorf(hutch.NotFound, "Not found: the base URL ends with %s", Prefix))
	})
	return h
}

// ofOwner are the parameters that name the owner of a session.
var ofOwner = []string{"kind", "id", "version", "entity_id"}

// parameters are the parameters of the routes that have some.
var parameters = map[string][]string{
	"GET /files/{session}": append([]string{"detail"}, ofOwner...), "DELETE /files/{session}/{file}": ofOwner,
	"GET /download/{session}/{file}": ofOwner, "GET /sessions/{session}/objects/{file}": ofOwner,
}

// Routes lists the routes that need a token, as patterns of [http.ServeMux].
func (h *Handler) Routes() []string { return h.routes }

// ServeHTTP implements http.Handler.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) { h.mux.ServeHTTP(w, r) }

// Close ends the open calls and waits for them.
func (h *Handler) Close() { h.calls.Close() }

func lacks(what string) func(http.ResponseWriter, *http.Request) error {
	return func(http.ResponseWriter, *http.Request) error { return hutch.Errorf(hutch.Unsupported, "%s", what) }
}

// failure is the body of an error.
type failure struct {
	Error   string   `json:"error"`
	Details string   `json:"details,omitempty"`
	Retry   *float64 `json:"retry_after_seconds,omitempty"`
}

// statuses are the HTTP statuses for kinds of errors.
var statuses = map[hutch.Kind]int{
	hutch.Invalid: http.StatusBadRequest, hutch.Denied: http.StatusForbidden, hutch.NotFound: http.StatusNotFound, hutch.Conflict: http.StatusConflict,
	hutch.Exhausted: http.StatusTooManyRequests, hutch.Unsupported: http.StatusNotImplemented, hutch.Unavailable: http.StatusServiceUnavailable,
}

func (h *Handler) fail(w http.ResponseWriter, r *http.Request, err error) {
	err = compat.Failed(h.log, r, err)
	e := hutch.AsError(err)
	status := cmp.Or(statuses[e.Kind], http.StatusInternalServerError)
	if errors.Is(err, compat.ErrTooLarge) || errors.Is(err, errLargeFile) {
		status = http.StatusRequestEntityTooLarge
	}
	if about, _ := e.About(); e.Kind == hutch.Exhausted && about == hutch.AboutFile {
		status = http.StatusInsufficientStorage
	}
	compat.RetryAfter(w, err)
	Refuse(w, status, err)
}

// Refuse answers with an error, also for a guard that does not let a request in.
func Refuse(w http.ResponseWriter, status int, err error) {
	e := hutch.AsError(err)
	f := failure{Error: e.Message}
	if after, ok := e.RetryAfter(); ok && status == http.StatusTooManyRequests {
		seconds := float64(after)
		f = failure{Error: "rate_limited", Details: e.Message, Retry: &seconds}
	}
	compat.Answer(w, status, f)
}

// answer sends v as JSON.
func (h *Handler) answer(w http.ResponseWriter, r *http.Request, status int, v any) error {
	body, err := compat.Encode(r.Context(), v)
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	httpio.NewWriter(w, r, h.opt.Stall).Write(body) // an error means that the client has disconnected
	return nil
}

// ids of sessions and files are 21 characters, as LibreChat checks.
var isID = regexp.MustCompile(`^[A-Za-z0-9_-]{21}$`).MatchString
