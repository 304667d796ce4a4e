package interpreter

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"sync"
	"time"

	"hutch"
	"hutch/internal/caller"
	"hutch/internal/compat/e2b/seam"
	"hutch/internal/text"
)

type executeRequest struct {
	Code      string            `json:"code"`
	ContextID *string           `json:"context_id"`
	Language  *string           `json:"language"`
	Env       map[string]string `json:"env_vars"`
}

// Lines of the answer to a run.
type (
	outputLine struct {
		Type      hutch.Stream `json:"type"` // "stdout" or "stderr"
		Text      string       `json:"text"`
		Timestamp time.Time    `json:"timestamp"`
	}
	errorLine struct {
		Type      string `json:"type"` // "error"
		Name      string `json:"name"`
		Value     string `json:"value"`
		Traceback string `json:"traceback"`
	}
	countLine struct {
		Type  string `json:"type"` // "number_of_executions"
		Count int    `json:"execution_count"`
	}
	plainLine struct {
		Type string `json:"type"` // "keepalive" or "end_of_execution"
	}
)

// execute runs code, and answers with a line of JSON for each thing that happens.
func (h *Handler) execute(w http.ResponseWriter, r *http.Request) {
	var q executeRequest
	if !h.body(w, r, &q) {
		return
	}
	if given(q.ContextID) != "" && given(q.Language) != "" {
		refuse(w, http.StatusBadRequest, "Only one of context_id or language can be provided")
		return
	}
	id, err := h.contextFor(r.Context(), given(q.ContextID), given(q.Language))
	if err != nil {
		h.fail(w, r, err)
		return
	}
	req := hutch.RunRequest{ContextID: id, Code: q.Code, Env: q.Env, Timeout: hutch.InSeconds(h.opt.Timeout), StreamOnly: true}
	if err := req.Check(); err != nil {
		h.fail(w, r, err)
		return
	}
	h.run(w, r, req)
}

// contextFor returns the id of the context for a run, and creates the context if it is missing.
func (h *Handler) contextFor(ctx context.Context, id, language string) (string, error) {
	ctx = caller.Unmetered(ctx)
	if id == "" {
		id = defaultID(languageOf(language))
		if defaultLanguage(id) == "" {
			return "", errLanguage(language)
		}
	}
	c, runs, err := h.find(ctx, id)
	if err == nil && !runs {
		_, err = h.makeContext(ctx, hutch.ContextRequest{ID: c.ID, Language: c.Language})
	}
	return id, err
}

// errGone ends a run whose client left or stopped reading.
var errGone = errors.New("the client has gone")

// run runs code. When the client disconnects, the context of the request ends, and so does the run.
func (h *Handler) run(w http.ResponseWriter, r *http.Request, req hutch.RunRequest) {
	ctx, cancel := context.WithCancelCause(r.Context())
	defer cancel(nil)
	t := seam.From(ctx)
	l := &lines{w: w}
	l.begin()
	stop := l.keepAlive(h.opt.Keepalive, func() { cancel(errGone) })
	res, err := t.Service.RunCode(ctx, t.Sandbox, req, func(e hutch.RunEvent) error { return l.event(e) })
	stop()
	switch {
	case err != nil && seam.Vanished(caller.Unmetered(context.WithoutCancel(ctx)), t, err):
		panic(http.ErrAbortHandler) // clients recognise the end of a sandbox by a cut connection
	default:
		l.end(res, err)
	}
}

// lines is the answer to a run.
type lines struct {
	w http.ResponseWriter

	mu   sync.Mutex
	sent time.Time
	// for each stream, the first bytes of an incomplete character
	cut map[hutch.Stream][]byte
}

// begin sends the header: from then on a client waits as long as the run may take.
func (l *lines) begin() {
	l.w.Header().Set("Content-Type", "application/json")
	l.w.Header().Set("Cache-Control", "no-store")
	l.w.WriteHeader(http.StatusOK)
	http.NewResponseController(l.w).Flush() // an error means that the client has disconnected
	l.sent = time.Now()
}

func (l *lines) send(v any) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.sendLocked(v)
}

func (l *lines) sendLocked(v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	l.sent = time.Now()
	if _, err := l.w.Write(append(b, '\n')); err != nil {
		return errGone
	}
	if http.NewResponseController(l.w).Flush() != nil {
		return errGone
	}
	return nil
}

// keepAlive sends a line when nothing else was sent for a while, to detect clients that have disconnected.
func (l *lines) keepAlive(pause time.Duration, fail func()) (stop func()) {
	done := make(chan struct{})
	var sending sync.WaitGroup
	sending.Go(func() {
		tick := time.NewTicker(pause)
		defer tick.Stop()
		for {
			select {
			case <-done:
				return
			case <-tick.C:
			}
			l.mu.Lock()
			var err error
			if time.Since(l.sent) >= pause {
				err = l.sendLocked(plainLine{"keepalive"})
			}
			l.mu.Unlock()
			if err != nil {
				fail()
				return
			}
		}
	})
	return func() {
		close(done)
		sending.Wait()
	}
}

func (l *lines) event(e hutch.RunEvent) error {
	switch {
	case e.Output != nil:
		return l.output(e.Output.Stream, e.Output.Data)
	case e.Result != nil:
		return l.send(resultLine(*e.Result))
	case e.Error != nil:
		return l.send(errorLine{"error", e.Error.Name, e.Error.Message, e.Error.Traceback})
	}
	return nil // no input can be sent here, so a request for input ends at once
}

// output sends text. A character that is cut waits for its other bytes.
func (l *lines) output(stream hutch.Stream, data []byte) error {
	whole := append(l.cut[stream], data...)
	n := len(whole) - text.Unfinished(whole)
	if l.cut == nil {
		l.cut = map[hutch.Stream][]byte{}
	}
	l.cut[stream] = bytes.Clone(whole[n:])
	if n == 0 {
		return nil
	}
	return l.send(outputLine{stream, strings.ToValidUTF8(string(whole[:n]), "\uFFFD"), time.Now().UTC()})
}

// end sends how a run ended.
func (l *lines) end(res hutch.RunResult, err error) {
	for _, stream := range []hutch.Stream{hutch.Stdout, hutch.Stderr} {
		if len(l.cut[stream]) > 0 {
			l.send(outputLine{stream, "\uFFFD", time.Now().UTC()})
		}
	}
	if res.Executions > 0 {
		l.send(countLine{"number_of_executions", res.Executions})
	}
	switch {
	case err != nil:
		l.send(errorLine{"error", "UnexpectedEndOfExecution", hutch.AsError(err).Message, ""})
	case res.TimedOut:
		l.send(errorLine{"error", "UnexpectedEndOfExecution", "the run reached the server's time limit", ""})
	case res.Limit != "":
		l.send(errorLine{"error", "UnexpectedEndOfExecution", "a program of the run was ended, since the sandbox reached its limit of " + res.Limit, ""})
	case res.Ended:
		l.send(errorLine{"error", "UnexpectedEndOfExecution", "the interpreter ended: the next run gets a new one, without the state", ""})
	}
	l.send(plainLine{"end_of_execution"})
}
