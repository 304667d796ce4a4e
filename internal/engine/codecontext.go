package engine

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"time"

	"hutch"
	"hutch/internal/caller"
	"hutch/internal/coderesult"
	"hutch/internal/headtail"
	"hutch/internal/instance"
	"hutch/internal/kernel"
	"hutch/internal/store"
	"hutch/internal/wire"
)

// contexts are the verbs of code contexts.
type contexts struct{ life *lifecycle }

// CreateContext implements hutch.Service.
func (c contexts) CreateContext(ctx context.Context, id string, req hutch.ContextRequest) (hutch.CodeContext, error) {
	k, err := kernel.Lookup(req.Language)
	if err != nil {
		return hutch.CodeContext{}, err
	}
	if err := req.Check(); err != nil {
		return hutch.CodeContext{}, err
	}
	if req.ID == "" {
		req.ID = hutch.NewID("ctx")
	}
	s, agent, err := c.life.use(ctx, id)
	if err != nil {
		return hutch.CodeContext{}, err
	}
	defer s.EndUse()
	if req.Env, err = c.life.secrets.programEnv(s, req.Env, req.Secrets); err != nil {
		return hutch.CodeContext{}, err
	}
	info, err := agent.CreateContext(ctx, agentContext(k, req))
	if err != nil {
		return hutch.CodeContext{}, c.life.diagnose(ctx, s, agent, err)
	}
	return codeContext(id, info), nil
}

// agentContext describes a context to the agent.
func agentContext(k kernel.Kernel, req hutch.ContextRequest) wire.Context {
	c := k.Context()
	c.ID, c.Dir, c.User, c.Env = req.ID, req.Dir, req.User, instance.Environ(req.Env)
	idle := req.IdleTimeout.Duration()
	if idle == 0 {
		idle = hutch.ContextIdle
	}
	c.IdleMS = max(idle.Milliseconds(), 1)
	return c
}

// codeContext turns the agent's record of a context into the public one.
func codeContext(id string, c wire.ContextInfo) hutch.CodeContext {
	dir := c.Dir
	if dir == "" {
		dir = "/workspace"
	}
	return hutch.CodeContext{
		ID: clean(c.ID, hutch.MaxID), SandboxID: id, Language: clean(c.Language, hutch.MaxID), Dir: clean(dir, hutch.MaxPath),
		CreatedAt: time.UnixMilli(c.CreatedMS).UTC(), LastUsedAt: time.UnixMilli(c.UsedMS).UTC(),
		Executions: c.Runs, Busy: c.Busy,
	}
}

// Contexts implements hutch.Service.
func (c contexts) Contexts(ctx context.Context, id string) ([]hutch.CodeContext, error) {
	return entries(ctx, c.life, id, func(b *store.Listing) []hutch.CodeContext { return b.Contexts }, func(ctx context.Context, s *sandbox, agent *wire.Client) ([]hutch.CodeContext, error) {
		return codeContexts(ctx, s.ID(), agent)
	})
}

func codeContexts(ctx context.Context, id string, agent *wire.Client) ([]hutch.CodeContext, error) {
	list := []hutch.CodeContext{}
	infos, err := agent.Contexts(ctx)
	for _, c := range infos {
		list = append(list, codeContext(id, c))
	}
	return list, err
}

// DeleteContext implements hutch.Service.
func (c contexts) DeleteContext(ctx context.Context, id, contextID string) error {
	agent, done, err := c.withContexts(ctx, id)
	if agent == nil {
		return err
	}
	defer done()
	return agent.DeleteContext(ctx, contextID)
}

// withContexts wakes a sandbox that can have contexts and returns its agent. The agent is nil if the sandbox does not
// run and so has no contexts.
func (c contexts) withContexts(ctx context.Context, id string) (agent *wire.Client, done func(), err error) {
	s, err := c.life.find(ctx, id)
	if err != nil {
		return nil, nil, err
	}
	if running, saved := s.Listing(); running == nil && saved == nil {
		return nil, nil, nil
	}
	s, agent, err = c.life.use(ctx, id)
	if err != nil {
		return nil, nil, err
	}
	return agent, func() { s.EndUse() }, nil
}

// Interrupt implements hutch.Service.
func (c contexts) Interrupt(ctx context.Context, id, contextID string) error {
	agent, done, err := c.withContexts(ctx, id)
	switch {
	case err != nil:
		return err
	case agent == nil:
		return hutch.Errorf(hutch.NotFound, "there is no context %.80q: the sandbox %q sleeps", contextID, id)
	}
	defer done()
	return agent.Interrupt(ctx, contextID)
}

// RunCode implements hutch.Service.
func (c contexts) RunCode(ctx context.Context, id string, req hutch.RunRequest, out func(hutch.RunEvent) error) (hutch.RunResult, error) {
	take := caller.From(ctx).Budget.Take
	return c.runCode(ctx, id, req, coderesult.New(headtail.ForRun(req, take), take, out))
}

// runCode runs code, and passes its output and results to rec.
func (c contexts) runCode(ctx context.Context, id string, req hutch.RunRequest, rec *coderesult.Record) (hutch.RunResult, error) {
	limit, err := c.checkRun(req)
	if err != nil {
		return hutch.RunResult{}, err
	}
	s, agent, err := c.life.use(ctx, id)
	if err != nil {
		return hutch.RunResult{}, err
	}
	defer s.EndUse()
	s.Ran()
	began := time.Now()
	env, err := c.life.secrets.requested(s, req.Env, req.Secrets)
	if err != nil {
		return hutch.RunResult{}, err
	}
	contextID, k, err := c.findContext(ctx, s, agent, req)
	if err != nil {
		return hutch.RunResult{}, c.life.diagnose(ctx, s, agent, err)
	}
	run, err := k.Run(kernel.Code{ID: rand.Text(), Text: req.Code, Dir: req.Dir, Env: traced(ctx, env), Stdin: req.Stdin != nil})
	if err != nil {
		return hutch.RunResult{}, err
	}
	run.Context, run.TimeoutMS = contextID, max(limit.Milliseconds(), 1)
	denials := s.Denials()
	begun, end, err := agent.RunIn(ctx, run, req.Stdin, caller.From(ctx).Budget.Take, rec.Output, rec.Message)
	res := rec.Result()
	res.ContextID, res.SandboxID, res.Duration = contextID, id, time.Since(began)
	res.Executions, res.ExitCode, res.TimedOut = end.Runs, end.Code, end.TimedOut
	res.Fresh, res.Ended = begun.Fresh, end.Ended
	res.Denied = s.deniedSince(ctx, began, denials)
	if err != nil {
		return res, c.life.diagnose(ctx, s, agent, err)
	}
	if end.TimedOut { // whatever exit code the interpreter returned after the interrupt
		res.ExitCode = killedCode
	}
	if end.Memory || end.Code == killedCode && !end.TimedOut && s.ranOutOfMemory(ctx) {
		res.Limit = "memory"
	}
	if res.Limit != "" && end.Ended {
		return res, hutch.Errorf(hutch.Exhausted, "the interpreter reached the memory limit of the sandbox %q and was killed. Let it use less; the next run gets a fresh one", id).With("limit", "memory")
	}
	return res, nil
}

// checkRun checks a request and returns its time limit.
func (c contexts) checkRun(req hutch.RunRequest) (time.Duration, error) {
	if err := req.Check(); err != nil {
		return 0, err
	}
	if req.Language != "" {
		if _, err := kernel.Lookup(req.Language); err != nil {
			return 0, err
		}
	}
	return c.life.execTime(req.Timeout)
}

// findContext finds the context of a run, and makes one if it does not exist.
func (c contexts) findContext(ctx context.Context, s *sandbox, agent *wire.Client, req hutch.RunRequest) (string, kernel.Kernel, error) {
	want, err := kernel.Lookup(req.Language)
	if err != nil {
		return "", kernel.Kernel{}, err
	}
	id := req.ContextID
	if id == "" {
		id = "default-" + want.Language
	}
	info, err := agent.Context(ctx, id)
	if errors.Is(err, hutch.NotFound) {
		env, serr := c.life.secrets.programEnv(s, nil, nil)
		if serr != nil {
			return "", kernel.Kernel{}, serr
		}
		info, err = agent.CreateContext(ctx, agentContext(want, hutch.ContextRequest{ID: id, Dir: req.Dir, Env: env}))
	}
	if err != nil {
		return "", kernel.Kernel{}, err
	}
	k, err := kernel.Lookup(info.Language)
	if err == nil && req.Language != "" && k.Language != want.Language {
		err = hutch.Errorf(hutch.Conflict, "the context %q is in %s, not in %s: use another id, or leave the language out", id, k.Language, want.Language)
	}
	return id, k, err
}

// execIn runs a command in a session. In languages that have values and errors, values and errors become text, as at a
// prompt.
func (c commands) execIn(ctx context.Context, id string, req hutch.ExecRequest, out func(hutch.Output) error) (hutch.ExecResult, error) {
	language := req.Language
	if language == "" {
		if known, err := c.contexts.languageOf(ctx, id, req.SessionID); err != nil || known != "" {
			language = known
		} else {
			language = "bash"
		}
	}
	began := time.Now()
	kept, cursor := headtail.For(req, caller.From(ctx).Budget.Take), int64(0)
	words := lastOutput{}
	pass := words.tee(kept.Tee(out))
	show := func(stream hutch.Stream, data []byte) error {
		if len(data) == 0 {
			return nil
		}
		cursor += int64(len(data))
		return pass(hutch.Output{Stream: stream, Data: data, Cursor: cursor})
	}
	res, err := c.contexts.runCode(ctx, id, hutch.RunRequest{
		ContextID: req.SessionID, Language: language, Code: req.Command, Dir: req.Dir, Env: req.Env, Secrets: req.Secrets,
		Timeout: req.Timeout, Stdin: req.Stdin,
	}, coderesult.PassOn(func(ev hutch.RunEvent) error {
		switch {
		case ev.Output != nil:
			return show(ev.Output.Stream, ev.Output.Data)
		case ev.Result != nil:
			return show(hutch.Stdout, []byte(ev.Result.Text()+"\n"))
		case ev.Error != nil:
			return show(hutch.Stderr, []byte(strings.TrimSuffix(ev.Error.Traceback, "\n")+"\n"))
		}
		return nil
	}))
	if cursor == 0 && (errors.Is(err, hutch.NotFound) || errors.Is(err, hutch.Invalid)) { // nothing has run
		return hutch.ExecResult{}, err
	}
	if err == nil && res.Ended {
		err = show(hutch.Stderr, fmt.Appendf(nil, "hutch: the session %s has ended with exit code %d; the next call gets a fresh one\n", req.SessionID, res.ExitCode))
	}
	result := hutch.ExecResult{
		SandboxID: id, Command: req.Command, ExitCode: res.ExitCode, TimedOut: res.TimedOut, Limit: res.Limit, Denied: res.Denied,
		Timestamp: began.UTC(), Duration: time.Since(began),
	}
	if err != nil {
		result.ExitCode = noExit
	} else if result.ExitCode != 0 && !result.TimedOut && result.Limit == "" {
		if s, err := c.life.find(ctx, id); err == nil {
			result.Limit = s.reached(ctx, &words)
		}
	}
	kept.Fill(&result)
	return result, err
}

// languageOf returns the language of a context; "" if the context does not exist.
func (c contexts) languageOf(ctx context.Context, id, contextID string) (string, error) {
	agent, done, err := c.withContexts(ctx, id)
	if agent == nil {
		return "", err
	}
	defer done()
	info, err := agent.Context(ctx, contextID)
	if errors.Is(err, hutch.NotFound) {
		return "", nil
	}
	return info.Language, err
}
