package engine

import (
	"context"

	"hutch"
	"hutch/internal/caller"
	"hutch/internal/resumable"
)

// execResumable runs a command that outlives ctx, and reads its output.
func (c commands) execResumable(ctx context.Context, id string, req hutch.ExecRequest, out func(hutch.Output) error) (hutch.ExecResult, error) {
	if _, err := c.start(req); req.SessionID == "" && err != nil { // refuse it before it counts as a resumable command
		return hutch.ExecResult{}, err
	}
	s, err := c.life.find(ctx, id)
	if err != nil {
		return hutch.ExecResult{}, err
	}
	if c.life.calls.Err() != nil {
		return hutch.ExecResult{}, hutch.Errorf(hutch.Unavailable, "the server is shutting down: try again in a moment")
	}
	run, free := caller.OwnBudget(context.WithoutCancel(ctx))
	run, cancel := context.WithCancelCause(run)
	x, r, err := s.execs.Add(resumable.Options{Grace: c.life.opt.ExecGrace, Take: caller.From(run).Budget.TakeSpare, Free: free, Cancel: cancel})
	if err != nil {
		return hutch.ExecResult{}, err
	}
	c.life.tasks.Go(func() {
		run, end := caller.Until(run, c.life.calls)
		defer end()
		x.Finish(c.execAttached(run, id, req, func(o hutch.Output) error { return x.Output(run, o) }))
	})
	if req.Started != nil {
		req.Started(x.ID())
	}
	return r.Read(ctx, out)
}

// ResumeExec implements hutch.Service.
func (c commands) ResumeExec(ctx context.Context, id, exec string, cursor int64, out func(hutch.Output) error) (hutch.ExecResult, error) {
	if cursor < 0 {
		return hutch.ExecResult{}, hutch.Errorf(hutch.Invalid, "cursor is %d: give a number of bytes, from 0", cursor)
	}
	s, err := c.life.find(ctx, id)
	if err != nil {
		return hutch.ExecResult{}, err
	}
	r, err := s.execs.Resume(exec, cursor)
	if err != nil {
		return hutch.ExecResult{}, err
	}
	return r.Read(ctx, out)
}

// CancelExec implements hutch.Service.
func (c commands) CancelExec(ctx context.Context, id, exec string) error {
	s, err := c.life.find(ctx, id)
	if err != nil {
		return err
	}
	return s.execs.Cancel(ctx, exec)
}
