package ask

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"strings"
	"time"

	"hutch"
	"hutch/internal/caller"
	"hutch/internal/runner"
)

// Defaults of [Options].
const (
	DefaultRepairs   = 2
	DefaultCacheAge  = time.Hour
	DefaultTimeout   = 30 * time.Second
	defaultModelTime = 2 * time.Minute // for one answer of the model
)

// Options are the settings of an engine. Service is required.
type Options struct {
	Service hutch.Service
	// Accounts reports what sandboxes use; nil leaves that out of answers.
	Accounts hutch.Accounts
	// Model writes programs; nil answers only questions that bring their code.
	Model Model
	// Components are the agents and commands that questions can name; nil for none.
	Components *Components
	// CacheAge is how long a program is used again for the same question; 0 never.
	CacheAge time.Duration
	// Repairs is how often a failed program is sent back to the model, if the question does not set it.
	Repairs int
	// MaxTimeout is the longest time that a program can run; with 0 this package sets no limit.
	MaxTimeout time.Duration
	// ModelTime bounds each answer of the model; default 2 minutes.
	ModelTime time.Duration
	Prices    Prices
	// Spent is called for each answer of the model; can be nil.
	Spent func(context.Context, Spent)
	Log   *slog.Logger
}

// Spent is one answer of a model, for the record.
type Spent struct {
	Began time.Time
	Model string
	Usage hutch.ModelUsage
	Err   error
}

// Engine implements hutch.Questions.
type Engine struct {
	opt       Options
	programs  *programs
	histories *histories
	gone      *leaving
}

var _ hutch.Questions = (*Engine)(nil)

// New returns an engine.
func New(opt Options) *Engine {
	opt.ModelTime = cmp.Or(opt.ModelTime, defaultModelTime)
	opt.Log = cmp.Or(opt.Log, slog.New(slog.DiscardHandler))
	return &Engine{opt: opt, programs: newPrograms(opt.CacheAge), histories: newHistories(), gone: newLeaving()}
}

// Close waits until the sandboxes of answered questions are destroyed. Call it when no question is in progress.
func (e *Engine) Close() { e.gone.drain(context.Background()) }

// errNoKey is the error for a question that needs a model when the server has none. A key of the client is not sent.
var errNoKey = hutch.Errorf(hutch.Unavailable, "the server has no key for the model: set ANTHROPIC_API_KEY in the environment of `hutch serve`, or give it a file with --ask-key-file, and start it again; a question with a program (code) needs no model")

// Ask implements hutch.Questions.
func (e *Engine) Ask(ctx context.Context, q hutch.Question, out func(hutch.AnswerEvent) error) (hutch.Answer, error) {
	a, err := e.begin(ctx, q, out)
	if err != nil {
		return hutch.Answer{}, err
	}
	defer a.box.close(ctx)
	if q.Code != "" {
		err = a.try(ctx, q.Code)
	} else {
		err = a.solve(ctx)
	}
	if err != nil {
		return hutch.Answer{}, err
	}
	a.answer.Resources = a.resources(ctx)
	if a.answer.Files, err = a.box.outputs(ctx); err != nil {
		return hutch.Answer{}, err
	}
	e.remember(ctx, a)
	return a.answer, nil
}

// asking is a question that is being answered.
type asking struct {
	*Engine
	question hutch.Question // with its defaults
	language runner.Language
	prompt   Prompt
	key      key // key of the cache
	repairs  int // repairs that are left
	out      func(hutch.AnswerEvent) error
	box      *box
	asked    string // the question, with its command's text
	answer   hutch.Answer
}

// resources returns what the sandbox has used so far.
func (a *asking) resources(ctx context.Context) *hutch.Consumption {
	if !a.question.Measure || a.opt.Accounts == nil {
		return nil
	}
	report, err := a.opt.Accounts.Usage(ctx)
	if err != nil {
		return nil // the answer matters more than its measure
	}
	for _, u := range report.Sandboxes {
		if u.SandboxID == a.box.id {
			return &hutch.Consumption{CPUSeconds: u.CPUSeconds, MemoryPeak: u.MemoryPeak}
		}
	}
	return nil
}

// begin checks a question, and fills in its defaults. It does nothing expensive.
func (e *Engine) begin(ctx context.Context, q hutch.Question, out func(hutch.AnswerEvent) error) (*asking, error) {
	if err := q.Check(); err != nil {
		return nil, err
	}
	if e.opt.Model == nil && q.Code == "" {
		return nil, errNoKey
	}
	text, err := e.opt.Components.compose(q)
	if err != nil {
		return nil, err
	}
	lang, err := runner.Lookup(cmp.Or(q.Language, text.language, "python"))
	if err != nil {
		return nil, err
	}
	q.Language = lang.Name
	q.MaxTokens = cmp.Or(q.MaxTokens, text.maxTokens, hutch.DefaultMaxTokens)
	q.Timeout = cmp.Or(q.Timeout, DefaultTimeout.Milliseconds())
	if most := e.opt.MaxTimeout; most > 0 && q.Timeout > most.Milliseconds() {
		return nil, hutch.Errorf(hutch.Invalid, "timeout is %d ms: this server allows %d at most", q.Timeout, most.Milliseconds()).Naming(hutch.AboutField, "timeout")
	}
	if out == nil {
		out = func(hutch.AnswerEvent) error { return nil }
	}
	a := &asking{Engine: e, question: q, language: lang, repairs: e.opt.Repairs, out: out, box: newBox(e.opt.Service, e.gone, q), asked: text.question}
	if q.Repairs != nil {
		a.repairs = *q.Repairs
	}
	before, err := a.box.find(ctx)
	if err != nil {
		return nil, err
	}
	told := q
	if told.Network = a.box.network(); q.Network.IsZero() && before.ID != "" {
		told.Network = before.Network
	}
	a.prompt = text.prompt(told, lang, e.histories.get(ownerOf(ctx), before))
	a.key = keyOf(ownerOf(ctx), q, a.prompt)
	a.answer = hutch.Answer{Question: q.Question, Language: lang.Name, ConversationID: q.ConversationID}
	return a, nil
}

func ownerOf(ctx context.Context) string {
	owner, _ := caller.OwnerOf(ctx)
	return owner.ID
}

// solve makes attempts until a program succeeds or no repair is left.
func (a *asking) solve(ctx context.Context) error {
	answer, known := a.known()
	for {
		if !known {
			reply, err := a.generate(ctx)
			if err != nil {
				return err
			}
			answer = reply.Text
			if problem := reply.unusable(a.language, a.question.MaxTokens); problem != nil {
				if a.repairs == 0 {
					return problem
				}
				if err := a.repair(answer, problem.Message); err != nil {
					return err
				}
				continue
			}
		}
		code, _ := extract(answer, a.language)
		a.programs.put(a.key, answer, a.cacheable())
		if err := a.try(ctx, code); err != nil || a.answer.Success {
			return err
		}
		a.programs.drop(a.key)
		known = false
		if a.repairs == 0 {
			return nil
		}
		if err := a.repair(answer, "The program failed:\n"+a.answer.Error); err != nil {
			return err
		}
	}
}

// cacheable reports whether the program depends only on the question.
func (a *asking) cacheable() bool { return a.question.ConversationID == "" && a.answer.Repairs == 0 }

// known returns the model's answer to the same question of this owner.
func (a *asking) known() (answer string, ok bool) {
	if a.question.NoCache || !a.cacheable() {
		return "", false
	}
	answer, a.answer.Cached = a.programs.get(a.key)
	return answer, a.answer.Cached
}

// repair adds an answer of the model, and its fault, to the prompt.
func (a *asking) repair(answer, problem string) error {
	a.repairs--
	a.answer.Repairs++
	a.answer.Cached = false
	if strings.TrimSpace(answer) == "" {
		answer = "(an empty answer)" // the API refuses messages without text
	}
	a.prompt.Messages = append(a.prompt.Messages, Message{Assistant, answer}, Message{User, repairPrompt(problem, a.language)})
	return a.out(hutch.AnswerEvent{Repair: &hutch.Repair{Attempt: a.answer.Repairs, Error: tail(problem, maxShownError)}})
}

// generate asks the model, and passes its text on as it arrives.
func (a *asking) generate(ctx context.Context) (Reply, error) {
	began := time.Now()
	timed, cancel := context.WithTimeoutCause(ctx, a.opt.ModelTime, errSlow)
	defer cancel()
	var gone error // the reader of events has disconnected
	reply, err := a.opt.Model.Generate(timed, a.prompt, func(text string) error {
		gone = a.out(hutch.AnswerEvent{Text: text})
		return gone
	})
	switch {
	case gone != nil:
		err = gone
	case ctx.Err() != nil:
		err = context.Cause(ctx)
	case err != nil && timed.Err() != nil:
		err = errSlow
	}
	if reply.Usage != (hutch.ModelUsage{}) {
		reply.Usage.Cost = a.opt.Prices.cost(reply)
	}
	a.answer.GenerationTime += time.Since(began).Milliseconds()
	a.answer.Model = cmp.Or(reply.Model, a.answer.Model)
	a.answer.Usage = a.answer.Usage.Add(reply.Usage)
	if a.opt.Spent != nil {
		a.opt.Spent(ctx, Spent{began, reply.Model, reply.Usage, err})
	}
	return reply, err
}

var errSlow = hutch.Errorf(hutch.Timeout, "the model did not answer in time: try again, or ask for fewer tokens")

// try runs a program, and describes how it ended.
func (a *asking) try(ctx context.Context, code string) error {
	event := &hutch.Program{Language: a.language.Name, Code: code, Attempt: a.answer.Repairs + 1, Cached: a.answer.Cached}
	if err := a.out(hutch.AnswerEvent{Program: event}); err != nil {
		return err
	}
	r, err := a.box.run(ctx, code, a.out)
	if err != nil {
		return err
	}
	n := &a.answer
	n.Code, n.SandboxID, n.ExecutionTime = code, a.box.id, r.took.Milliseconds()
	n.Output, n.Stderr, n.ExitCode, n.TimedOut, n.Truncated = r.stdout, r.stderr, r.exitCode, r.timedOut, r.full
	n.Error = r.problem(a.question.Timeout)
	n.Success = n.Error == ""
	return nil
}

// remember keeps a turn of a conversation. It also caches a repaired program for the question.
func (e *Engine) remember(ctx context.Context, a *asking) {
	if a.question.ConversationID != "" && a.question.Code == "" {
		e.histories.add(ownerOf(ctx), a.box.sandbox, turn{a.asked, fenced(a.answer.Code, a.language), a.answer.Output})
	}
	if a.question.ConversationID == "" && a.answer.Success && a.answer.Repairs > 0 {
		e.programs.put(a.key, fenced(a.answer.Code, a.language), true)
	}
}

// refused returns an error for an unusable answer of the model.
func refused(format string, args ...any) *hutch.Error {
	return hutch.Errorf(hutch.Unavailable, format, args...)
}

// isDone reports whether err is the end of the caller's context.
func isDone(err error) bool {
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}
