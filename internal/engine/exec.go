package engine

import (
	"cmp"
	"context"
	"errors"
	"time"

	"hutch"
	"hutch/internal/caller"
	"hutch/internal/headtail"
	"hutch/internal/instance"
	"hutch/internal/runner"
	"hutch/internal/wire"
)

const (
	// killedCode is the exit code of a program that signal 9 ended, or of a shell whose last command was ended by
	// it.
	killedCode = 128 + 9
	noExit     = -1 // exit code of a command that an error ended: no caller can mistake it for success
)

// commands are the verbs of commands and of background processes. Commands of a session run in a code context.
type commands struct {
	life     *lifecycle
	contexts contexts
}

// Exec implements hutch.Service.
func (c commands) Exec(ctx context.Context, id string, req hutch.ExecRequest, out func(hutch.Output) error) (hutch.ExecResult, error) {
	if err := req.Check(); err != nil {
		return hutch.ExecResult{}, err
	}
	if req.Resumable {
		return c.execResumable(ctx, id, req, out)
	}
	return c.execAttached(ctx, id, req, out)
}

// execAttached runs a command that ends when ctx ends.
func (c commands) execAttached(ctx context.Context, id string, req hutch.ExecRequest, out func(hutch.Output) error) (hutch.ExecResult, error) {
	if req.SessionID != "" {
		return c.execIn(ctx, id, req, out)
	}
	req.Env = traced(ctx, req.Env)
	start, err := c.start(req)
	if err != nil {
		return hutch.ExecResult{}, err
	}
	s, agent, err := c.life.use(ctx, id)
	if err != nil {
		return hutch.ExecResult{}, err
	}
	defer s.EndUse()
	s.Ran()
	env, err := c.life.secrets.programEnv(s, req.Env, req.Secrets)
	if err != nil {
		return hutch.ExecResult{}, err
	}
	start.Env = append(start.Env, instance.Environ(env)...)
	kept := headtail.For(req, caller.From(ctx).Budget.Take)
	began, denials := time.Now(), s.Denials()
	words := lastOutput{}
	exit, err := agent.Run(ctx, start, req.Stdin, words.tee(kept.Tee(out)))
	result := hutch.ExecResult{
		SandboxID: id, Command: req.Command, ExitCode: exit.Code, TimedOut: exit.TimedOut,
		Timestamp: began.UTC(), Duration: time.Since(began),
	}
	kept.Fill(&result)
	result.Denied = s.deniedSince(ctx, began, denials)
	if err != nil {
		result.ExitCode = noExit
		return result, c.life.diagnose(ctx, s, agent, err)
	}
	if exit.Signal == 9 && s.Leaving() { // the destruction of the instance killed the command before the agent could
		return result, destroyed(s)
	}
	if exit.Memory || exit.Code == killedCode && !exit.TimedOut && s.ranOutOfMemory(ctx) {
		result.Limit = "memory"
	} else if exit.Code != 0 && !exit.TimedOut {
		result.Limit = s.reached(ctx, &words)
	}
	result.CompileError = exit.Compile && !exit.TimedOut && result.Limit == ""
	return result, nil
}

// execTime returns the time limit of a command or a run of code that requests asked; 0 requests the default.
func (e *lifecycle) execTime(asked hutch.Seconds) (time.Duration, error) {
	usual, longest := e.opt.ExecTimeout, hutch.InSeconds(e.opt.MaxTimeout)
	switch {
	case !(asked >= 0 && asked <= longest):
		return 0, hutch.Errorf(hutch.Invalid, "timeout is %v s: give up to %v, or leave it out for %v", asked, longest, hutch.InSeconds(usual))
	case asked > 0:
		return max(asked.Duration(), time.Millisecond), nil
	}
	return max(usual, time.Millisecond), nil
}

// start turns a checked request into a message to the agent.
func (c commands) start(req hutch.ExecRequest) (wire.Start, error) {
	limit, err := c.life.execTime(req.Timeout)
	if err != nil {
		return wire.Start{}, err
	}
	start := wire.Start{Command: req.Command}
	if req.Language != "" {
		lang, err := runner.Lookup(req.Language)
		if err != nil {
			return wire.Start{}, err
		}
		if start, err = lang.Start(req.Command); err != nil {
			return wire.Start{}, err
		}
	}
	start.Argv = append(start.Argv, req.Args...)
	start.ID = hutch.NewID("x")
	start.Dir, start.User = req.Dir, req.User
	start.Stdin = req.Stdin != nil
	start.TimeoutMS = limit.Milliseconds()
	return start, nil
}

// diagnose returns the reason why a command ended without an exit code.
func (e *lifecycle) diagnose(ctx context.Context, s *sandbox, agent *wire.Client, err error) error {
	if ctx.Err() != nil || !errors.Is(err, hutch.Unavailable) {
		return err
	}
	if s.Leaving() {
		return destroyed(s)
	}
	inst := s.Instance()
	if inst == nil {
		return e.describe(s, err)
	}
	select {
	case <-inst.Done():
		e.died(s, inst)
		return e.describe(s, err)
	case <-time.After(time.Second): // the instance is alive: a paused one can continue
	}
	e.background(func() { e.examine(s) })
	return err
}

func destroyed(s *sandbox) error {
	return hutch.Errorf(hutch.NotFound, "the sandbox %q was destroyed while the command ran", s.ID()).Naming(hutch.AboutSandbox, s.ID())
}

// describe returns the error of a command whose sandbox ended.
func (e *lifecycle) describe(s *sandbox, err error) error {
	if locked := s.Lock(e.ctx); locked == nil { // now the caller that marks the sandbox as failed has finished
		s.Unlock()
	}
	_, reason := s.ReportLoss()
	v := s.Record().Sandbox
	stopped := v.Status == hutch.Stopped
	if stopped && reason == stoppedForMemory {
		return hutch.Errorf(hutch.Exhausted, "the sandbox %q reached its memory limit of %d MiB while the command ran, and was stopped. Its files are kept, its processes have ended, and the next use starts it again. Let the program use less memory, or create a sandbox with a higher limits.memory", s.ID(), v.Limits.Memory).
			Naming(hutch.AboutSandbox, s.ID()).With("limit", "memory").Because(err)
	}
	if stopped && reason == stoppedForShortage {
		return hutch.Errorf(hutch.Exhausted, "the server had no memory left while the command ran, and stopped the sandbox %q, which used the most. Its files are kept, its processes have ended, and the next use starts it again. Try again later, or let the program use less memory", s.ID()).
			Naming(hutch.AboutSandbox, s.ID()).With("limit", "memory of the server").With("retryAfter", 5).Because(err)
	}
	if reason == outOfMemory {
		return hutch.Errorf(hutch.Exhausted, "the sandbox %q reached its memory limit of %d MiB while the command ran, and was killed with its files. The next use starts it empty. Let the program use less memory, or create a sandbox with a higher limits.memory", s.ID(), v.Limits.Memory).
			Naming(hutch.AboutSandbox, s.ID()).With("limit", "memory").Because(err)
	}
	if reason == "" {
		reason = "its first process died"
	}
	// The kind is not Unavailable, because a client that repeats the call by itself would find an empty sandbox.
	return hutch.Errorf(hutch.Conflict, "the sandbox %q ended while the command ran, with its files: %s. The next use starts it empty; or destroy it and create it from a snapshot", s.ID(), reason).
		Naming(hutch.AboutSandbox, s.ID()).Because(err)
}

// ranOutOfMemory reports whether the kernel has killed a process of the sandbox for
// lack of memory since the last call of this method.
func (s *sandbox) ranOutOfMemory(ctx context.Context) bool {
	inst := s.Instance()
	if inst == nil {
		return false
	}
	u, err := inst.Usage(ctx)
	if err != nil {
		return false
	}
	return s.NoteKills(u.OOMKills)
}

// StartProcess implements hutch.Service.
func (c commands) StartProcess(ctx context.Context, id string, req hutch.ProcessRequest) (hutch.Process, error) {
	if err := req.Check(); err != nil {
		return hutch.Process{}, err
	}
	s, agent, err := c.life.use(ctx, id)
	if err != nil {
		return hutch.Process{}, err
	}
	defer s.EndUse()
	if req.Entrypoint {
		if req.Command, req.Care, err = c.entrypoint(ctx, s.Sandbox().Image, req.Care); err != nil {
			return hutch.Process{}, err
		}
	}
	s.Ran()
	env, err := c.life.secrets.programEnv(s, req.Env, req.Secrets)
	if err != nil {
		return hutch.Process{}, err
	}
	p, err := agent.Start(ctx, wire.Start{
		ID: hutch.NewID("p"), Name: req.Name, Command: req.Command,
		Dir: req.Dir, User: req.User, Env: instance.Environ(traced(ctx, env)), Restart: cmp.Or(req.RestartPolicy, hutch.RestartNever), Stdin: req.Stdin, Terminal: req.Terminal,
		StopSignal: req.StopSignal, Health: req.Health,
	})
	if err != nil {
		return hutch.Process{}, c.life.diagnose(ctx, s, agent, err)
	}
	return process(id, p), nil
}

// errNoTimes is the error for a sandbox that an older server started, with an agent that recorded no times.
var errNoTimes = hutch.Errorf(hutch.Unsupported, "this sandbox was started by an older version of Hutch, which keeps no times of output: read it without since and timestamps, or stop the sandbox and start its process again")

// Logs implements hutch.Service.
func (c commands) Logs(ctx context.Context, req hutch.LogsRequest, out func(hutch.Output) error) (int64, error) {
	if err := req.Check(); err != nil {
		return 0, err
	}
	cursor := req.Cursor
	attach := wire.Attach{Process: req.ProcessID, Cursor: cursor, Follow: req.Follow, Times: req.Times || !req.Since.IsZero()}
	if !req.Since.IsZero() {
		attach.SinceMS = max(req.Since.UnixMilli(), 1)
	}
	err := c.control(ctx, req.SandboxID, req.ProcessID, func(agent *wire.Client) error {
		exit, err := agent.Attach(ctx, attach, func(o hutch.Output) error {
			if attach.Times && o.Time.IsZero() {
				return errNoTimes
			}
			if !req.Times {
				o.Time = time.Time{}
			}
			cursor = o.Cursor
			if out == nil {
				return nil
			}
			return out(o)
		})
		if err == nil { // a cursor after the end counts as the end
			cursor = exit.Cursor
		}
		return err
	})
	return cursor, err
}

// Signal implements hutch.Service.
func (c commands) Signal(ctx context.Context, id, process string, signal int) error {
	if err := hutch.CheckSignal(signal); err != nil {
		return err
	}
	return c.control(ctx, id, process, func(agent *wire.Client) error { return agent.Signal(ctx, process, signal) })
}
