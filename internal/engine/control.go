package engine

import (
	"context"
	"errors"
	"io"
	"regexp"
	"regexp/syntax"
	"strings"
	"time"

	"hutch"
	"hutch/internal/caller"
	"hutch/internal/headtail"
	"hutch/internal/kernel"
	"hutch/internal/linesearch"
	"hutch/internal/runner"
	"hutch/internal/wire"
)

const (
	waitTime = 30 * time.Second // time limit of a wait that sets no limit
	// languageTime limits the check of which languages a sandbox has, because some of their programs start a virtual
	// machine to print a version.
	languageTime = 30 * time.Second
)

// control makes a call to the agent about one process.
func (c commands) control(ctx context.Context, id, process string, call func(*wire.Client) error) error {
	if _, err := c.Process(ctx, id, process); err != nil {
		return err
	}
	return c.life.ask(ctx, id, call)
}

// Input implements hutch.ProcessControl.
func (c commands) Input(ctx context.Context, id, process string, r io.Reader, end bool) error {
	if r == nil {
		r = strings.NewReader("")
	}
	return c.control(ctx, id, process, func(agent *wire.Client) error {
		return agent.Input(ctx, wire.Input{Process: process, End: end}, r)
	})
}

// Resize implements hutch.ProcessControl.
func (c commands) Resize(ctx context.Context, id, process string, size hutch.Size) error {
	if err := size.Check(); err != nil {
		return err
	}
	return c.control(ctx, id, process, func(agent *wire.Client) error {
		return agent.Resize(ctx, wire.Resize{Process: process, Size: size})
	})
}

// CleanProcesses implements hutch.ProcessControl.
func (c commands) CleanProcesses(ctx context.Context, id string) (n int, err error) {
	c.Processes(ctx, id) // puts ended processes on the timeline
	err = c.life.ask(ctx, id, func(agent *wire.Client) (err error) {
		n, err = agent.Clean(ctx)
		return err
	})
	return n, err
}

// errWaited is the cause that ends a wait at its time limit.
var errWaited = errors.New("the time is up")

// Wait implements hutch.ProcessControl.
func (c commands) Wait(ctx context.Context, id, process string, req hutch.WaitRequest) (hutch.WaitResult, error) {
	limit, pattern, err := c.checkWait(req)
	if err != nil {
		return hutch.WaitResult{}, err
	}
	var res hutch.WaitResult
	err = c.control(ctx, id, process, func(agent *wire.Client) (err error) {
		ctx, cancel := context.WithTimeoutCause(ctx, limit, errWaited)
		defer cancel()
		res, err = await(ctx, agent, process, req, pattern)
		if errors.Is(err, errWaited) {
			res.TimedOut, err = true, nil
		}
		return err
	})
	if err != nil {
		return hutch.WaitResult{}, err
	}
	if res.Process, err = c.Process(ctx, id, process); err != nil {
		return res, err
	}
	if s, err := c.life.find(ctx, id); err == nil {
		res.Denied = s.deniedSince(ctx, res.Process.StartTime, 0)
	}
	return res, nil
}

func await(ctx context.Context, agent *wire.Client, process string, req hutch.WaitRequest, pattern *regexp.Regexp) (res hutch.WaitResult, err error) {
	switch {
	case req.Healthy:
		res.Met, err = agent.Wait(ctx, wire.Wait{Process: process, Healthy: true})
		return res, err
	case req.Port != 0:
		res.Met, err = agent.Wait(ctx, wire.Wait{Process: process, Port: req.Port, Path: req.Path, Status: req.Status})
		return res, err
	case req.Text == "" && pattern == nil:
		_, err = agent.Wait(ctx, wire.Wait{Process: process})
		res.Met = err == nil
		return res, err
	}
	ctx, found := context.WithCancelCause(ctx)
	defer found(nil)
	s := linesearch.New(req.Text, pattern, req.Cursor, func() { found(linesearch.ErrFound) })
	_, err = agent.Attach(ctx, wire.Attach{Process: process, Cursor: req.Cursor, Follow: true}, s.Output)
	s.Finish(err == nil)
	if res = s.Result(); res.Met {
		err = nil
	}
	return res, err
}

// checkWait checks a request, and returns its time limit and its pattern.
func (c commands) checkWait(req hutch.WaitRequest) (time.Duration, *regexp.Regexp, error) {
	longest := hutch.InSeconds(c.life.opt.MaxTimeout)
	if err := req.Check(); err != nil {
		return 0, nil, err
	}
	if !(req.Timeout >= 0 && req.Timeout <= longest) {
		return 0, nil, hutch.Errorf(hutch.Invalid, "timeout is %v s: give up to %v, or leave it out for %v", req.Timeout, longest, hutch.InSeconds(waitTime)).Naming(hutch.AboutField, "timeout")
	}
	limit := min(waitTime, c.life.opt.MaxTimeout)
	if req.Timeout > 0 {
		limit = req.Timeout.Duration()
	}
	pattern, err := compile(req.Pattern)
	return limit, pattern, err
}

// maxProgram limits the steps that matching a pattern can take for each byte.
const maxProgram = 1000

// compile compiles a pattern; nil for an empty one.
func compile(pattern string) (*regexp.Regexp, error) {
	if pattern == "" {
		return nil, nil
	}
	parsed, err := syntax.Parse(pattern, syntax.Perl)
	if err != nil {
		return nil, hutch.Errorf(hutch.Invalid, "the pattern cannot be used (%v): its syntax is RE2's", err).Naming(hutch.AboutField, "pattern")
	}
	if prog, err := syntax.Compile(parsed.Simplify()); err != nil || len(prog.Inst) > maxProgram {
		return nil, hutch.Errorf(hutch.Invalid, "the pattern is too complex: use fewer and smaller repetitions, such as {1,10}").Naming(hutch.AboutField, "pattern")
	}
	return regexp.Compile(pattern)
}

// Languages implements hutch.ProcessControl.
func (c commands) Languages(ctx context.Context, id string) ([]hutch.Language, error) {
	s, agent, err := c.life.use(ctx, id)
	if err != nil {
		return nil, err
	}
	defer s.EndUse()
	start := runner.Look()
	start.ID, start.TimeoutMS = hutch.NewID("x"), languageTime.Milliseconds()
	kept := headtail.New(0, caller.From(ctx).Budget.Take)
	exit, err := agent.Run(ctx, start, nil, kept.Tee(nil))
	if err != nil {
		return nil, c.life.diagnose(ctx, s, agent, err)
	}
	if exit.TimedOut {
		return nil, hutch.Errorf(hutch.Unavailable, "the programs of the sandbox did not tell their versions within %v: it may be busy", languageTime)
	}
	out, _, _ := kept.Result()
	found := runner.Found(out)
	for i, l := range found {
		found[i].Contexts = kernel.Speaks(l.Name)
	}
	return found, nil
}
