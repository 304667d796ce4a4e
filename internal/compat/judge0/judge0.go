// Package judge0 answers clients of Judge0's API: programs that are submitted, run once and judged by their output.
//
// A submission is held in memory for an hour under a token, which only its owner can use. It runs in a new sandbox
// without network that is destroyed afterwards: the source is written to a file, compiled by one command and run by
// another one, as the table of languages says. The limits of the run are those of the shell's ulimit and of the
// sandbox. Processor time is counted for the whole sandbox, so no program can hide it.
package judge0

import (
	"cmp"
	"errors"
	"log/slog"
	"net/http"
	"strconv"
	"time"

	"hutch"
	"hutch/internal/compat"
)

// Options configure a handler; the zero value works.
type Options struct {
	// Accounts reports the processor time and the memory of a program; nil leaves them out.
	Accounts hutch.Accounts
	// MaxTimeout bounds a run; default 24 h.
	MaxTimeout time.Duration
	// Keep is how long a submission can be read after its end; default 1 h.
	Keep time.Duration
	Log  *slog.Logger
}

// Handler serves the API below /judge0/.
type Handler struct {
	svc       hutch.Service
	accounts  hutch.Accounts
	longest   time.Duration
	log       *slog.Logger
	mux       *http.ServeMux
	calls     *compat.Calls
	languages *compat.Languages
	store     *store
	names     []string // names of the routes
}

// NewHandler returns a handler that calls svc.
func NewHandler(svc hutch.Service, opt Options) *Handler {
	h := &Handler{
		svc: svc, accounts: opt.Accounts, longest: cmp.Or(opt.MaxTimeout, 24*time.Hour),
		log: cmp.Or(opt.Log, slog.New(slog.DiscardHandler)), mux: http.NewServeMux(), calls: compat.NewCalls("judge0"), store: newStore(cmp.Or(opt.Keep, time.Hour)),
	}
	h.languages = compat.NewLanguages(svc, h.log)
	for route, f := range map[string]call{
		"POST /judge0/submissions": h.submit, "POST /judge0/submissions/batch": h.submitBatch,
		"GET /judge0/submissions": h.list, "GET /judge0/submissions/batch": h.showBatch, "GET /judge0/submissions/{token}": h.show, "DELETE /judge0/submissions/{token}": h.remove,
		"GET /judge0/languages": h.listLanguages, "GET /judge0/languages/all": h.listLanguages, "GET /judge0/languages/{id}": h.showLanguage,
		"GET /judge0/statuses": listStatuses, "GET /judge0/about": about, "GET /judge0/config_info": config,
		"POST /judge0/authenticate": nothing, "POST /judge0/authorize": nothing,
		"GET /judge0/system_info": lacks("system_info"), "GET /judge0/workers": lacks("workers"), "GET /judge0/statistics": lacks("statistics"),
		"GET /judge0/isolate": lacks("isolate"), "GET /judge0/version": lacks("version"), "GET /judge0/license": lacks("license"),
	} {
		h.names = append(h.names, route)
		h.mux.HandleFunc(route, func(w http.ResponseWriter, r *http.Request) {
			r, done := h.calls.Begin(r)
			defer done()
			status, v := 0, any(nil)
			err := compat.CheckQuery(r, parameters[route]...)
			if err == nil {
				status, v, err = f(w, r)
			}
			h.reply(w, r, status, v, err)
		})
	}
	h.mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) { h.send(w, r, http.StatusNotFound, problem{"Not Found"}) })
	return h
}

// parameters are the parameters of the routes that have some.
var parameters = map[string][]string{
	"POST /judge0/submissions": {"base64_encoded", "wait", "fields"}, "POST /judge0/submissions/batch": {"base64_encoded"},
	"GET /judge0/submissions": {"base64_encoded", "page", "per_page", "fields"}, "GET /judge0/submissions/batch": {"tokens", "base64_encoded", "fields"},
	"GET /judge0/submissions/{token}": {"base64_encoded", "fields"}, "DELETE /judge0/submissions/{token}": {"base64_encoded", "fields"},
}

// call answers a request with a status and a value, or with an error.
type call func(http.ResponseWriter, *http.Request) (int, any, error)

// Routes lists the routes, as patterns of [http.ServeMux].
func (h *Handler) Routes() []string { return h.names }

// ServeHTTP implements http.Handler.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) { h.mux.ServeHTTP(w, r) }

// Close ends the open submissions and calls and waits for them.
func (h *Handler) Close() { h.calls.Close() }

func lacks(what string) call {
	return func(http.ResponseWriter, *http.Request) (int, any, error) {
		return 0, nil, hutch.Errorf(hutch.Unsupported, "%s: this server is not Judge0 and has no such page", what)
	}
}

// nothing answers a request that only checks its token: the guard has checked it.
func nothing(http.ResponseWriter, *http.Request) (int, any, error) { return http.StatusOK, nil, nil }

func about(http.ResponseWriter, *http.Request) (int, any, error) {
	return http.StatusOK, map[string]string{"version": apiVersion, "homepage": "", "source_code": "", "maintainer": ""}, nil
}

// apiVersion is the version of Judge0 whose API this is.
const apiVersion = "1.13.1"

// problem is the body of an error.
type problem struct {
	Error string `json:"error"`
}

// Refuse answers for a guard that does not let a request in.
func Refuse(w http.ResponseWriter, status int, err error) {
	compat.Answer(w, status, problem{hutch.AsError(err).Message})
}

// statuses are the HTTP statuses for kinds of errors.
var statuses = map[hutch.Kind]int{
	hutch.Invalid: http.StatusBadRequest, hutch.Denied: http.StatusForbidden, hutch.NotFound: http.StatusNotFound, hutch.Conflict: http.StatusBadRequest,
	hutch.Exhausted: http.StatusServiceUnavailable, hutch.Unsupported: http.StatusNotImplemented, hutch.Unavailable: http.StatusServiceUnavailable,
}

func (h *Handler) reply(w http.ResponseWriter, r *http.Request, status int, v any, err error) {
	if err == nil {
		h.send(w, r, status, v)
		return
	}
	if list, ok := errors.AsType[faults](err); ok {
		h.send(w, r, http.StatusUnprocessableEntity, list)
		return
	}
	err = compat.Failed(h.log, r, err)
	e := hutch.AsError(err)
	status = cmp.Or(statuses[e.Kind], http.StatusInternalServerError)
	if errors.Is(err, compat.ErrTooLarge) {
		status = http.StatusRequestEntityTooLarge
	}
	compat.RetryAfter(w, err)
	h.send(w, r, status, problem{e.Message})
}

func (h *Handler) send(w http.ResponseWriter, r *http.Request, status int, v any) {
	if v == nil {
		w.WriteHeader(status)
		return
	}
	b, err := compat.Encode(r.Context(), v)
	if err != nil {
		h.reply(w, r, 0, nil, err)
		return
	}
	compat.Send(w, r, status, b)
}

// flag returns a parameter of the query that is true or false.
func flag(r *http.Request, name string) bool { return r.URL.Query().Get(name) == "true" }

// whole returns a parameter of the query that is a number from 1 up.
func whole(r *http.Request, name string, usual int) (int, error) {
	given := r.URL.Query().Get(name)
	if given == "" {
		return usual, nil
	}
	n, err := strconv.Atoi(given)
	if err != nil || n < 1 || n > maxKept {
		return 0, hutch.Errorf(hutch.Invalid, "invalid %s: %.20q", name, given)
	}
	return n, nil
}

// config returns the limits of submissions, under Judge0's names.
func config(http.ResponseWriter, *http.Request) (int, any, error) {
	answer := map[string]any{
		"maintenance_mode": false, "enable_wait_result": true, "enable_compiler_options": true, "allowed_languages_for_compile_options": []string{},
		"enable_command_line_arguments": true, "enable_submission_delete": true, "enable_callbacks": false, "enable_additional_files": false,
		"enable_batched_submissions": true, "max_submission_batch_size": maxBatch, "max_queue_size": maxWaiting, "allow_enable_network": false, "enable_network": false,
		"allow_enable_per_process_and_thread_time_limit": false, "allow_enable_per_process_and_thread_memory_limit": false,
	}
	for _, m := range (&request{}).limits() {
		answer[m.name], answer["max_"+m.name] = m.usual, m.most
	}
	return http.StatusOK, answer, nil
}
