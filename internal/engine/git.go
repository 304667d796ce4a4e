package engine

import (
	"context"
	"errors"
	"strings"
	"time"

	"hutch"
	"hutch/internal/caller"
	"hutch/internal/git"
	"hutch/internal/headtail"
	"hutch/internal/wire"
)

// repositories are the verbs of git in sandboxes.
type repositories struct{ life *lifecycle }

// GitClone implements hutch.Service.
func (r repositories) GitClone(ctx context.Context, id string, req hutch.GitCloneRequest) (hutch.GitRepository, error) {
	cmd, dir, err := git.Clone(req)
	if err == nil && cmd.Timeout > r.life.opt.MaxTimeout {
		err = hutch.Errorf(hutch.Invalid, "timeout is %v s: give up to %v, or leave it out for 600", req.Timeout, hutch.InSeconds(r.life.opt.MaxTimeout))
	}
	if err != nil {
		return hutch.GitRepository{}, err
	}
	return inRepository(ctx, r.life, id, func(g *gitRun) (hutch.GitRepository, error) {
		if err := g.clone(ctx, cmd, dir); err != nil {
			return hutch.GitRepository{}, err
		}
		return g.repository(ctx, dir)
	})
}

// GitStatus implements hutch.Service.
func (r repositories) GitStatus(ctx context.Context, id, dir string) (hutch.GitStatus, error) {
	cmd, err := git.Status(dir)
	if err != nil {
		return hutch.GitStatus{}, err
	}
	return inRepository(ctx, r.life, id, func(g *gitRun) (hutch.GitStatus, error) {
		out, err := g.output(ctx, cmd)
		if err != nil {
			return hutch.GitStatus{}, err
		}
		s, err := git.ParseStatus(out)
		if err != nil {
			return hutch.GitStatus{}, cmd.Odd(err)
		}
		s.Dir, err = g.line(ctx, git.TopLevel(dir))
		return s, err
	})
}

// GitDiff implements hutch.Service.
func (r repositories) GitDiff(ctx context.Context, id string, req hutch.GitDiffRequest) (string, error) {
	cmd, err := git.Diff(req)
	if err != nil {
		return "", err
	}
	return inRepository(ctx, r.life, id, func(g *gitRun) (string, error) {
		out, err := g.output(ctx, cmd)
		return string(out), err
	})
}

// GitCommit implements hutch.Service.
func (r repositories) GitCommit(ctx context.Context, id string, req hutch.GitCommitRequest) (hutch.GitRepository, error) {
	cmds, err := git.Commit(req)
	if err != nil {
		return hutch.GitRepository{}, err
	}
	return inRepository(ctx, r.life, id, func(g *gitRun) (hutch.GitRepository, error) {
		for _, cmd := range cmds {
			if _, err := g.output(ctx, cmd); err != nil {
				return hutch.GitRepository{}, err
			}
		}
		return g.repository(ctx, req.Dir)
	})
}

// gitRun runs git in a sandbox that is in use.
type gitRun struct {
	life  *lifecycle
	s     *sandbox
	agent *wire.Client
	// Errors name what the network has denied since began; denials is the number of denials at that time.
	began   time.Time
	denials int64
}

func inRepository[T any](ctx context.Context, e *lifecycle, id string, f func(*gitRun) (T, error)) (T, error) {
	s, agent, err := e.use(ctx, id)
	if err != nil {
		var none T
		return none, err
	}
	defer s.EndUse()
	return f(&gitRun{e, s, agent, time.Now(), s.Denials()})
}

// clone clones into dir. It first removes the remains of an earlier clone that was killed there.
func (g *gitRun) clone(ctx context.Context, cmd git.Command, dir string) error {
	end, err := g.run(ctx, cmd)
	killed := err != nil || end.signal != 0
	if killed && git.Begun(end.stderr) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTime)
		defer cancel()
		g.run(ctx, git.Undo(dir)) // if the sandbox is gone, nothing is left
	}
	if err != nil {
		return err
	}
	return g.commandError(ctx, cmd, end)
}

// repository describes the state of a repository.
func (g *gitRun) repository(ctx context.Context, dir string) (r hutch.GitRepository, err error) {
	if r.Dir, err = g.line(ctx, git.TopLevel(dir)); err != nil {
		return r, err
	}
	if r.Branch, err = g.line(ctx, git.Branch(dir)); err != nil {
		return r, err
	}
	r.Commit, err = g.line(ctx, git.Head(dir))
	return r, err
}

// line returns the output of a command, or "" if its exit code is 1.
func (g *gitRun) line(ctx context.Context, cmd git.Command) (string, error) {
	end, err := g.run(ctx, cmd)
	if err != nil || end.code == 1 {
		return "", err
	}
	if err := g.commandError(ctx, cmd, end); err != nil {
		return "", err
	}
	line, err := git.Line(end.stdout)
	if err != nil {
		return "", cmd.Odd(err)
	}
	return line, nil
}

// output returns the output of a command. Any exit code other than 0 is an error.
func (g *gitRun) output(ctx context.Context, cmd git.Command) ([]byte, error) {
	end, err := g.run(ctx, cmd)
	if err == nil {
		err = g.commandError(ctx, cmd, end)
	}
	return end.stdout, err
}

// ended describes the end of a command.
type ended struct {
	code, signal   int
	stdout, stderr []byte
}

// commandError turns the end of a command into an error.
func (g *gitRun) commandError(ctx context.Context, cmd git.Command, end ended) error {
	switch {
	case end.signal == 9 && g.s.ranOutOfMemory(ctx):
		return hutch.Errorf(hutch.Exhausted, "git reached the memory limit of the sandbox %q, and was killed: make one with a higher limits.memory, or clone with a depth", g.s.ID()).
			Naming(hutch.AboutSandbox, g.s.ID()).With("limit", "memory")
	case end.code != 0:
		return cmd.Refusal(end.stdout, end.stderr, g.s.ID(), g.s.deniedSince(ctx, g.began, g.denials))
	}
	return nil
}

var (
	errTooMuch = errors.New("too much output")
	errNoRoom  = hutch.Errorf(hutch.Exhausted, "the answers that wait for you to read them leave no room for the output of git: read those, or ask for fewer paths").
			With("limit", "memory of answers")
)

const (
	undoTime  = 30 * time.Second
	maxErrors = 64 << 10 // most bytes of standard error that are kept
)

// run runs a command. An exit code other than 0 is not an error. If something else ended the program, that is an error,
// and the output until then is returned too.
func (g *gitRun) run(ctx context.Context, cmd git.Command) (ended, error) {
	start := wire.Start{
		ID: hutch.NewID("g"), Argv: cmd.Argv, Dir: cmd.Dir, Env: cmd.Env,
		Stdin: cmd.Stdin != "", TimeoutMS: max(cmd.Timeout.Milliseconds(), 1),
	}
	take := caller.From(ctx).Budget.Take
	stdout, stderr := headtail.Ends{Limit: git.MaxOutput, Take: take}, headtail.Ends{Limit: maxErrors, Take: take}
	exit, err := g.agent.Run(ctx, start, strings.NewReader(cmd.Stdin), func(o hutch.Output) error {
		if o.Stream == hutch.Stderr {
			stderr.Add(o.Data)
		} else if stdout.Add(o.Data); stdout.Cut() {
			return errTooMuch
		}
		return nil
	})
	end := ended{exit.Code, exit.Signal, stdout.Bytes(), stderr.Bytes()}
	switch {
	case stdout.Short():
		return end, errNoRoom
	case errors.Is(err, errTooMuch):
		return end, cmd.TooMuch()
	case err != nil:
		return end, g.life.diagnose(ctx, g.s, g.agent, err)
	case exit.TimedOut:
		return end, cmd.Late()
	}
	return end, nil
}
