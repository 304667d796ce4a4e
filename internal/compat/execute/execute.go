// Package execute answers POST /execute: a question becomes a program, which runs in a sandbox. The contract is that of
// a deployment which Hutch replaces:
//
//	POST /execute {question, maxTokens? 2048, timeout? 30000 ms, language? python|javascript}
//	200 {success, question, code, output, error, sandboxId, executionTime ms}
//	400 {"error": "Question is required"}, 500 {"error": ...} for a missing key or a failed generation
//
// The other fields of hutch.Question and hutch.Answer are Hutch's own. With "stream": true, or when the client accepts
// text/event-stream, the answer is server-sent events: text, program, output and repair as they happen, and a result or
// an error at the end.
package execute

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"hutch"
	"hutch/internal/compat"
	"hutch/internal/httpio"
)

// Path is where the handler answers.
const Path = "/execute"

// Options configure a handler; the zero value works.
type Options struct {
	// Stall is how long a client can leave data unread before it is disconnected; default 5 minutes.
	Stall time.Duration
	Log   *slog.Logger
}

// Handler answers at [Path].
type Handler struct {
	questions hutch.Questions
	stall     time.Duration
	log       *slog.Logger
	calls     *compat.Calls
}

// NewHandler returns a handler that asks q.
func NewHandler(q hutch.Questions, opt Options) *Handler {
	return &Handler{
		questions: q, stall: cmp.Or(opt.Stall, compat.Stall), log: cmp.Or(opt.Log, slog.New(slog.DiscardHandler)), calls: compat.NewCalls("execute"),
	}
}

// Close ends the open calls and waits for them.
func (h *Handler) Close() { h.calls.Close() }

// request is the body of a request.
type request struct {
	hutch.Question
	Stream bool `json:"stream"`
}

// ServeHTTP implements http.Handler.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	r, done := h.calls.Begin(r)
	defer done()
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		h.refuse(w, http.StatusMethodNotAllowed, hutch.Errorf(hutch.Invalid, "send a question with POST"))
		return
	}
	if err := compat.CheckQuery(r); err != nil {
		h.fail(w, r, err)
		return
	}
	var req request
	if err := compat.ReadJSON(w, r, &req); err != nil {
		h.fail(w, r, err)
		return
	}
	if strings.Contains(r.Header.Get("Cache-Control"), "no-cache") {
		req.NoCache = true
	}
	if req.Stream || strings.Contains(r.Header.Get("Accept"), httpio.EventStream) {
		h.stream(w, r, req.Question)
		return
	}
	a, err := h.questions.Ask(r.Context(), req.Question, nil)
	if err != nil {
		h.fail(w, r, err)
		return
	}
	h.send(w, r, http.StatusOK, a)
}

// pingTime is the pause between comments in a silent stream.
const pingTime = 15 * time.Second

// stream sends events as they happen. A question that is refused before the first event has the status of the refusal.
func (h *Handler) stream(w http.ResponseWriter, r *http.Request, q hutch.Question) {
	hw := httpio.NewWriter(w, r, h.stall)
	es := httpio.NewEvents(hw, pingTime)
	defer es.Close()
	a, err := h.questions.Ask(r.Context(), q, func(e hutch.AnswerEvent) error { return send(es, e.Name(), e) })
	es.Close()
	var result []byte
	if err == nil {
		result, err = charged(r.Context(), a, 2) // it is copied into the event
	}
	switch {
	case err == nil:
		es.Send("", "result", bytes.TrimSuffix(result, []byte("\n"))) // an error means that the client has disconnected
	case es.Begun():
		send(es, "error", failure{h.words(r, err)})
	default:
		h.fail(w, r, err)
	}
}

func send(es *httpio.Events, name string, v any) error {
	b, err := compat.Marshal(v)
	if err != nil {
		return err
	}
	return es.Send("", name, bytes.TrimSuffix(b, []byte("\n")))
}

// failure is the body of an error.
type failure struct {
	Error string `json:"error"`
}

// statuses are the HTTP statuses for kinds of errors. All others are 500: a key is missing, or the generation failed.
var statuses = map[hutch.Kind]int{
	hutch.Invalid: http.StatusBadRequest, hutch.Unsupported: http.StatusBadRequest, hutch.NotFound: http.StatusBadRequest,
	hutch.Denied: http.StatusForbidden, hutch.Conflict: http.StatusConflict, hutch.Exhausted: http.StatusTooManyRequests,
}

// fail answers with an error.
func (h *Handler) fail(w http.ResponseWriter, r *http.Request, err error) {
	words := h.words(r, err)
	e := hutch.AsError(err)
	status := cmp.Or(statuses[e.Kind], http.StatusInternalServerError)
	if errors.Is(err, compat.ErrTooLarge) {
		status = http.StatusRequestEntityTooLarge
	}
	compat.RetryAfter(w, err)
	h.send(w, r, status, failure{words})
}

// words returns the message of an error. The cause of an internal error goes to the log.
func (h *Handler) words(r *http.Request, err error) string {
	err = compat.Failed(h.log, r, err)
	e := hutch.AsError(err)
	return e.Message
}

// chunk is the longest answer that is not charged to the caller's memory budget, in bytes.
const chunk = 128 << 10

// charged encodes v. If the JSON is large, the given number of copies is charged to the caller.
func charged(ctx context.Context, v any, copies int) ([]byte, error) {
	b, err := compat.Marshal(v)
	if err == nil && len(b) > chunk && !compat.Take(ctx, copies*len(b)) {
		return nil, compat.ErrNoRoom
	}
	return b, err
}

func (h *Handler) send(w http.ResponseWriter, r *http.Request, status int, v any) {
	b, err := charged(r.Context(), v, 1)
	if errors.Is(err, compat.ErrNoRoom) {
		h.fail(w, r, err)
		return
	}
	if err != nil {
		status, b = http.StatusInternalServerError, []byte(`{"error":"internal error"}`)
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	httpio.NewWriter(w, r, h.stall).Write(b) // an error means that the client has disconnected
}

func (h *Handler) refuse(w http.ResponseWriter, status int, err error) { Refuse(w, status, err) }

// Refuse answers for a guard that does not let a request in.
func Refuse(w http.ResponseWriter, status int, err error) {
	compat.Answer(w, status, failure{hutch.AsError(err).Message})
}
