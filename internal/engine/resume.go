package engine

import (
	"context"

	"hutch"
	"hutch/internal/caller"
	"hutch/internal/resumable"
)

// execResumable runs a command that outlives ctx, and reads its output.
func (e *Engine) execResumable(ctx context.Context, id string, req hutch.ExecRequest, out func(hutch.Output) error) (hutch.ExecResult, error) {
	if _, err := e.start(req); req.SessionID == "" && err != nil { // before it counts
		return hutch.ExecResult{}, err
	}
	s, err := e.find(ctx, id)
	if err != nil {
		return hutch.ExecResult{}, err
	}
	if e.calls.Err() != nil {
		return hutch.ExecResult{}, hutch.Errorf(hutch.Unavailable, "the server is shutting down: try again in a moment")
	}
	run, free := caller.OwnBudget(context.WithoutCancel(ctx))
	run, cancel := context.WithCancelCause(run)
	x, r, err := s.execs.Add(resumable.Options{Grace: e.opt.ExecGrace, Take: caller.From(run).Budget.TakeSpare, Free: free, Cancel: cancel})
	if err != nil {
		return hutch.ExecResult{}, err
	}
	e.tasks.Go(func() {
		defer context.AfterFunc(e.calls, func() { cancel(context.Cause(e.calls)) })()
		x.Finish(e.execAttached(run, id, req, func(o hutch.Output) error { return x.Output(run, o) }))
	})
	if req.Started != nil {
		req.Started(x.ID())
	}
	return r.Read(ctx, out)
}

// ResumeExec implements hutch.Service.
func (e *Engine) ResumeExec(ctx context.Context, id, exec string, cursor int64, out func(hutch.Output) error) (hutch.ExecResult, error) {
	if cursor < 0 {
		return hutch.ExecResult{}, hutch.Errorf(hutch.Invalid, "cursor is %d: give a number of bytes, from 0", cursor)
	}
	s, err := e.find(ctx, id)
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
func (e *Engine) CancelExec(ctx context.Context, id, exec string) error {
	s, err := e.find(ctx, id)
	if err != nil {
		return err
	}
	return s.execs.Cancel(ctx, exec)
}
