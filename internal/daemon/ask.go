package daemon

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"hutch/internal/ask"
	"hutch/internal/audit"
	"hutch/internal/caller"
	"hutch/internal/compat/execute"
	"hutch/internal/metrics"
)

// Questions are the settings of the model that writes programs for POST /execute.
type Questions struct {
	Key        string // key of the model; without one, only questions that contain code are answered
	URL        string // URL of an endpoint that speaks the Messages API; default ask.AnthropicURL
	Model      string // default ask.DefaultModel
	Components string // a folder with agents and commands; "" for none
	CacheAge   time.Duration
	Repairs    int // most repairs of a program, for questions that set no number
	Prices     ask.Prices
}

// model returns the name of the model, or "" without a key.
func (q Questions) model() string {
	if q.Key == "" {
		return ""
	}
	return cmp.Or(q.Model, ask.DefaultModel)
}

// openQuestions makes the part that answers questions. It calls the engine through the redactor and not through policy,
// because policy checks the question itself. Its calls in sandboxes appear on their timelines.
func (d *Daemon) openQuestions(context.Context) (err error) {
	c := d.cfg.Questions
	opt := ask.Options{
		Service: d.recorded(), Accounts: d.everywhere().accounts, CacheAge: c.CacheAge, Repairs: c.Repairs, Prices: c.Prices, Spent: d.recordAnswer, Log: d.log,
		MaxTimeout: cmp.Or(d.cfg.Sandboxes.MaxTimeout, 24*time.Hour),
	}
	if c.Components != "" {
		if opt.Components, err = ask.LoadComponents(c.Components); err == nil {
			err = opt.Components.Check()
		}
		if err != nil {
			return err
		}
	}
	if c.Key != "" {
		opt.Model = ask.NewAnthropic(ask.AnthropicOptions{Key: c.Key, BaseURL: c.URL, Model: c.Model, Retries: 2})
	}
	d.questions = ask.New(opt)
	d.onClose(func() error { d.questions.Close(); return nil })
	return nil
}

// recordAnswer counts an answer of the model, and writes it to the audit log.
func (d *Daemon) recordAnswer(ctx context.Context, s ask.Spent) {
	d.answers.Answered(time.Since(s.Began), s.Usage, s.Err)
	from := caller.From(ctx)
	op := audit.Operation{
		Time: s.Began, Verb: audit.Model, Target: fmt.Sprintf("%s %s", s.Model, s.Usage), Surface: from.Origin.Surface, Remote: from.Origin.Remote,
		Request: from.Origin.Request, ClientRequest: from.Origin.ClientRequest, Trace: from.TraceID(),
	}
	if who := from.Principal; who != nil {
		op.Token, op.TokenName, op.Owner = who.ID, who.Name, who.Owner
	}
	_, end, err := d.observers.Begin(context.WithoutCancel(ctx), op)
	if err != nil {
		d.log.Error("put an answer of the model on record", "err", err)
		return
	}
	end(audit.Outcome{Err: s.Err})
}

// newAnswers makes the counts of answers, which the metrics show.
func (d *Daemon) newAnswers() *metrics.Answers {
	d.answers = metrics.NewAnswers()
	return d.answers
}

// described serves the description of this server to programs that ask for JSON. A browser, which accepts HTML, gets
// the console at the same path.
func (d *Daemon) described(next http.Handler) http.Handler {
	if d.cfg.Conversations.Only {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/" || r.Method != http.MethodGet || !prefersJSON(r.Header.Get("Accept")) {
			next.ServeHTTP(w, r)
			return
		}
		w.Header().Set("Vary", "Accept")
		answerJSON(w, http.StatusOK, map[string]any{
			"name": "Hutch", "description": "Safe, fast sandboxes for AI agents",
			"endpoints": map[string]string{
				"POST " + execute.Path: "a question becomes a program, which runs in a sandbox", "GET /health": "whether the server is alive",
				"/mcp": "the Model Context Protocol", "/v1": "the REST API, described at /v1/docs",
			},
		})
	})
}

// prefersJSON reports whether a client asks explicitly for JSON, and not for HTML.
func prefersJSON(accept string) bool {
	types := strings.Split(strings.ToLower(accept), ",")
	names := func(want string) bool {
		return slices.ContainsFunc(types, func(t string) bool {
			name, _, _ := strings.Cut(t, ";")
			return strings.TrimSpace(name) == want
		})
	}
	return names("application/json") && !names("text/html")
}
