// Package interpreter provides the service that clients of E2B's code interpreter expect on port 49999 of a sandbox. It
// translates to the code contexts of [hutch.Service]; package seam gives it the sandbox of a request.
//
// A context of E2B is a context of Hutch, with the same id. The default context of a language is called "e2b-" and the
// language, and is created by its first run, in the home folder that E2B's clients expect. Python, JavaScript,
// TypeScript and bash are supported; other languages are refused by name with 501.
package interpreter

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"hutch"
	"hutch/internal/caller"
	"hutch/internal/compat/e2b/seam"
	"hutch/internal/httpio"
	"hutch/internal/jsonfault"
)

// Options configure a handler; the zero value works.
type Options struct {
	Log *slog.Logger
	// Stall is how long a client can leave data unread before it is disconnected; default 5 minutes.
	Stall time.Duration
	// Keepalive is how often a client hears from a run that is silent; default 5 s.
	Keepalive time.Duration
	// Timeout is the time limit of a run; default 24 h, which is also the default limit of a server. A server with a
	// lower limit must set it here. Clients have their own limits, and disconnect when these are reached.
	Timeout time.Duration
}

// Handler serves the sandboxes that package seam puts into the contexts of requests.
type Handler struct {
	opt Options
	mux *http.ServeMux

	ctx   context.Context // done when the handler closes
	close context.CancelCauseFunc
	calls sync.WaitGroup
}

// New returns a handler.
func New(opt Options) *Handler {
	opt.Log = cmp.Or(opt.Log, slog.New(slog.DiscardHandler))
	opt.Stall = cmp.Or(opt.Stall, 5*time.Minute)
	opt.Keepalive = cmp.Or(opt.Keepalive, 5*time.Second)
	opt.Timeout = cmp.Or(opt.Timeout, 24*time.Hour)
	h := &Handler{opt: opt, mux: http.NewServeMux()}
	h.ctx, h.close = context.WithCancelCause(context.Background())
	h.mux.HandleFunc("GET /health", func(w http.ResponseWriter, r *http.Request) { writeJSON(w, "OK") })
	h.mux.HandleFunc("POST /execute", h.execute)
	h.mux.HandleFunc("GET /contexts", h.listContexts)
	h.mux.HandleFunc("POST /contexts", h.createContext)
	h.mux.HandleFunc("DELETE /contexts/{id}", h.deleteContext)
	h.mux.HandleFunc("POST /contexts/{id}/restart", h.restartContext)
	h.mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		refuse(w, http.StatusNotFound, "there is nothing at "+r.URL.Path)
	})
	return h
}

// ServeHTTP implements http.Handler.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	t := seam.From(r.Context())
	if t.Service == nil {
		refuse(w, http.StatusNotFound, "the request names no sandbox")
		return
	}
	h.calls.Add(1)
	defer h.calls.Done()
	ctx, end := caller.Until(caller.WithSurface(r.Context(), "e2b"), h.ctx)
	defer end()
	if answerCORS(w, r) {
		return
	}
	if name, unknown := seam.UnknownParameter(r); unknown {
		refuse(w, http.StatusNotImplemented, fmt.Sprintf("this server does not have the parameter %.100q: leave it out", name))
		return
	}
	h.mux.ServeHTTP(httpio.NewWriter(w, r, h.opt.Stall), r.WithContext(ctx))
}

// Close ends the open calls, and waits until they have ended.
func (h *Handler) Close() {
	h.close(hutch.Errorf(hutch.Unavailable, "the server is shutting down: try again in a moment"))
	h.calls.Wait()
}

// answerCORS lets web pages of every origin call, as E2B's own server does.
func answerCORS(w http.ResponseWriter, r *http.Request) bool {
	if r.Header.Get("Origin") == "" {
		return false
	}
	w.Header().Set("Access-Control-Allow-Origin", "*")
	if r.Method != http.MethodOptions {
		return false
	}
	w.Header().Set("Access-Control-Allow-Methods", "GET, POST, DELETE, OPTIONS")
	w.Header().Set("Access-Control-Allow-Headers", "*")
	w.WriteHeader(http.StatusNoContent)
	return true
}

// refuse answers with an error, which is plain text in this interface.
func refuse(w http.ResponseWriter, status int, message string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	io.WriteString(w, message) // an error means that the client has disconnected
}

func writeJSON(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	json.NewEncoder(w).Encode(v)
}

// fail answers with an error of a call.
func (h *Handler) fail(w http.ResponseWriter, r *http.Request, err error) {
	e := hutch.AsError(err)
	subject, _ := e.About()
	status := seam.Status(e.Kind)
	switch {
	case e.Kind == hutch.NotFound && subject == hutch.AboutSandbox:
		status = http.StatusBadGateway // clients take this, and no other, for a sandbox that does not run
	case e.Kind == hutch.Internal && r.Context().Err() == nil:
		h.opt.Log.Error("call", "request", r.Method+" "+r.URL.Path, "err", err, "cause", e.Cause)
	}
	refuse(w, status, e.Message)
}

const maxBody = 2 * hutch.MaxCommand // bytes: code can be longer when it is escaped in JSON

// body reads a JSON body. Unknown fields are refused by name.
func (h *Handler) body(w http.ResponseWriter, r *http.Request, v any) bool {
	b, err := io.ReadAll(io.LimitReader(httpio.NewBody(w, r, h.opt.Stall), maxBody+1))
	switch {
	case err != nil && errors.Is(err, hutch.Exhausted):
		h.fail(w, r, err)
		return false
	case err != nil:
		refuse(w, http.StatusBadRequest, "the request's body did not arrive whole: send it again")
		return false
	case len(b) > maxBody:
		refuse(w, http.StatusRequestEntityTooLarge, "the body is longer than 2 MiB, the limit")
		return false
	}
	status, message := decode(b, v)
	if status != 0 {
		refuse(w, status, message)
	}
	return status == 0
}

// decode reads JSON, or returns the status and message of the refusal.
func decode(b []byte, v any) (status int, message string) {
	if len(bytes.TrimSpace(b)) == 0 {
		b = []byte("{}")
	}
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	err := d.Decode(v)
	if err == nil && d.More() {
		return http.StatusUnprocessableEntity, "the body continues after the end of its JSON value: send one value"
	}
	if err == nil {
		return 0, ""
	}
	if f := jsonfault.Find(b, v, err); f != nil && f.Unknown {
		return http.StatusNotImplemented, fmt.Sprintf("this server does not have the field %q", f.Path)
	}
	return http.StatusUnprocessableEntity, jsonfault.Explain(b, v, err).Message
}

// defaultHome is the folder in which E2B's contexts begin.
const defaultHome = "/home/user"

// codeContext is a context as E2B shows it.
type codeContext struct {
	ID       string `json:"id"`
	Language string `json:"language"`
	Dir      string `json:"cwd"`
}

func show(c hutch.CodeContext) codeContext { return codeContext{c.ID, c.Language, c.Dir} }

// languageOf returns Hutch's name of a language.
func languageOf(name string) string {
	switch name = strings.ToLower(strings.TrimSpace(name)); name {
	case "":
		return "python"
	case "js":
		return "javascript"
	case "ts":
		return "typescript"
	}
	return name
}

var languages = []string{"python", "javascript", "typescript", "bash"}

// errLanguage returns the error for a language that no context has.
func errLanguage(name string) error {
	return hutch.Errorf(hutch.Unsupported, "this server has no code contexts in %.40q: use python, javascript, typescript or bash", name)
}

func defaultID(language string) string { return "e2b-" + language }

// defaultLanguage returns the language of a default context; empty for any other context.
func defaultLanguage(id string) string {
	language, ok := strings.CutPrefix(id, "e2b-")
	if !ok || !slices.Contains(languages, language) {
		return ""
	}
	return language
}

// listContexts lists the contexts. The default contexts of Python and JavaScript are always listed, as clients expect.
func (h *Handler) listContexts(w http.ResponseWriter, r *http.Request) {
	t := seam.From(r.Context())
	all, err := t.Service.Contexts(r.Context(), t.Sandbox)
	if err != nil {
		h.fail(w, r, err)
		return
	}
	list := []codeContext{}
	for _, language := range []string{"python", "javascript"} {
		id := defaultID(language)
		if !slices.ContainsFunc(all, func(c hutch.CodeContext) bool { return c.ID == id }) {
			list = append(list, codeContext{id, language, defaultHome})
		}
	}
	for _, c := range all {
		list = append(list, show(c))
	}
	writeJSON(w, list)
}

type createRequest struct {
	Language *string `json:"language"`
	Dir      *string `json:"cwd"`
}

func (h *Handler) createContext(w http.ResponseWriter, r *http.Request) {
	var q createRequest
	if !h.body(w, r, &q) {
		return
	}
	c, err := h.makeContext(r.Context(), hutch.ContextRequest{Language: languageOf(given(q.Language)), Dir: given(q.Dir)})
	if err != nil {
		h.fail(w, r, err)
		return
	}
	writeJSON(w, show(c))
}

func given(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// keptFor is how long a context is kept without a run. E2B's contexts are kept as long as their sandbox.
const keptFor = 7 * 24 * time.Hour

// makeContext creates a context, by default in the home that clients expect or, where that does not exist, in the
// sandbox's working folder.
func (h *Handler) makeContext(ctx context.Context, req hutch.ContextRequest) (hutch.CodeContext, error) {
	if !slices.Contains(languages, req.Language) {
		return hutch.CodeContext{}, errLanguage(req.Language)
	}
	t := seam.From(ctx)
	req.IdleTimeout = hutch.InSeconds(keptFor)
	if req.Dir == "" {
		if f, err := t.Service.Stat(caller.Unmetered(ctx), t.Sandbox, defaultHome); err == nil && f.Type == hutch.Directory {
			req.Dir = defaultHome
		}
	}
	return t.Service.CreateContext(ctx, t.Sandbox, req)
}

// find returns a context. A default context that does not run yet is only known by its language.
func (h *Handler) find(ctx context.Context, id string) (c hutch.CodeContext, runs bool, err error) {
	t := seam.From(ctx)
	all, err := t.Service.Contexts(ctx, t.Sandbox)
	if err != nil {
		return c, false, err
	}
	if i := slices.IndexFunc(all, func(c hutch.CodeContext) bool { return c.ID == id }); i >= 0 {
		return all[i], true, nil
	}
	if language := defaultLanguage(id); language != "" {
		return hutch.CodeContext{ID: id, Language: language}, false, nil
	}
	return c, false, hutch.Errorf(hutch.NotFound, "Context %.100s not found", id)
}

func (h *Handler) deleteContext(w http.ResponseWriter, r *http.Request) {
	c, _, err := h.find(caller.Unmetered(r.Context()), r.PathValue("id"))
	t := seam.From(r.Context())
	if err == nil {
		err = t.Service.DeleteContext(r.Context(), t.Sandbox, c.ID)
	}
	if err != nil {
		h.fail(w, r, err)
		return
	}
	writeJSON(w, nil)
}

// restartContext ends the interpreter of a context and starts another one, without the state.
func (h *Handler) restartContext(w http.ResponseWriter, r *http.Request) {
	c, runs, err := h.find(caller.Unmetered(r.Context()), r.PathValue("id"))
	t := seam.From(r.Context())
	if err == nil && runs {
		err = t.Service.DeleteContext(r.Context(), t.Sandbox, c.ID)
		if err == nil {
			_, err = h.makeContext(r.Context(), hutch.ContextRequest{ID: c.ID, Language: c.Language, Dir: c.Dir})
		}
	}
	if err != nil {
		h.fail(w, r, err)
		return
	}
	writeJSON(w, nil)
}
