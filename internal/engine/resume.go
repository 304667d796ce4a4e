package engine

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"hutch"
	"hutch/internal/room"
)

// resumable is a command that outlives the connection which started it. It runs
// until it ends, is cancelled, or has had no reader for the grace; after its end
// it is kept for the grace.
type resumable struct {
	id     string
	grace  time.Duration
	log    *execLog
	cancel context.CancelCauseFunc
	users  atomic.Int32 // the run and the table; the last one frees the memory budget
	free   func()

	over   chan struct{} // closed when result and err are set
	result hutch.ExecResult
	err    error
}

// resumables are the resumable commands of one sandbox. Its lock is taken before
// that of a log.
type resumables struct {
	mu   sync.Mutex
	list []*resumable // oldest first
}

var (
	errExecCancelled = hutch.Errorf(hutch.Conflict, "the command was cancelled, and stopped")
	errUnattended    = hutch.Errorf(hutch.Conflict, "the command was stopped, because nobody resumed it in time")
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
	if e.ctx.Err() != nil {
		return hutch.ExecResult{}, hutch.Errorf(hutch.Unavailable, "the server is shutting down: try again in a moment")
	}
	run, free := room.Again(context.WithoutCancel(ctx))
	run, cancel := context.WithCancelCause(run)
	x := &resumable{
		id: hutch.NewID("x"), grace: e.opt.ExecGrace, log: newExecLog(room.From(run).Take),
		cancel: cancel, free: free, over: make(chan struct{}),
	}
	x.users.Store(2)
	r := &execReader{}
	x.log.attach(r)
	if err := s.execs.add(x); err != nil {
		cancel(nil)
		free()
		return hutch.ExecResult{}, err
	}
	e.tasks.Go(func() {
		defer context.AfterFunc(e.ctx, func() { cancel(context.Cause(e.ctx)) })()
		res, err := e.execAttached(run, id, req, func(o hutch.Output) error { return x.log.add(run, o) })
		x.finish(s, res, err)
	})
	if req.Started != nil {
		req.Started(x.id)
	}
	return x.read(ctx, s, r, out)
}

// ResumeExec implements hutch.Service.
func (e *Engine) ResumeExec(ctx context.Context, id, exec string, cursor int64, out func(hutch.Output) error) (hutch.ExecResult, error) {
	if cursor < 0 {
		return hutch.ExecResult{}, hutch.Errorf(hutch.Invalid, "cursor is %d: it counts bytes from 0", cursor)
	}
	s, err := e.find(ctx, id)
	if err != nil {
		return hutch.ExecResult{}, err
	}
	r := &execReader{cursor: cursor}
	x, err := s.execs.find(exec, func(x *resumable) { x.log.attach(r) })
	if err != nil {
		return hutch.ExecResult{}, err
	}
	return x.read(ctx, s, r, out)
}

// CancelExec implements hutch.Service.
func (e *Engine) CancelExec(ctx context.Context, id, exec string) error {
	s, err := e.find(ctx, id)
	if err != nil {
		return err
	}
	x, err := s.execs.find(exec, func(*resumable) {})
	if err != nil {
		return err
	}
	x.cancel(errExecCancelled)
	select {
	case <-x.over:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// read hands output to out and returns how the command ended.
func (x *resumable) read(ctx context.Context, s *sandbox, r *execReader, out func(hutch.Output) error) (hutch.ExecResult, error) {
	defer x.leave(s, r)
	err := x.log.follow(ctx, r, out)
	if cause := context.Cause(ctx); cause != nil && cancels(cause) {
		x.cancel(cause)
		<-x.over
		return x.result, cause
	}
	if err != nil {
		return hutch.ExecResult{}, err
	}
	return x.result, x.err
}

// cancels reports whether the end of a call by that cause ends its command too:
// the caller said so, or may no longer run it.
func cancels(cause error) bool {
	e, ok := errors.AsType[*hutch.Error](cause)
	return ok && (e.Kind == hutch.Conflict || e.Kind == hutch.Denied)
}

// leave ends the reading of r. Unless another has taken over, the grace begins.
func (x *resumable) leave(s *sandbox, r *execReader) {
	if x.log.detach(r) {
		x.await(s)
	}
}

// finish notes how the command ended.
func (x *resumable) finish(s *sandbox, res hutch.ExecResult, err error) {
	x.result, x.err = res, err
	close(x.over)
	x.log.end()
	x.drop()
	if !x.log.attended() {
		x.await(s)
	}
}

// await forgets the command after the grace, unless there was a reader or an end
// since: then another wait has begun, or will.
func (x *resumable) await(s *sandbox) {
	begun := x.log.count()
	time.AfterFunc(x.grace, func() {
		s.execs.mu.Lock()
		defer s.execs.mu.Unlock()
		if x.log.count() == begun && !x.log.attended() && s.execs.removeLocked(x) {
			x.cancel(errUnattended)
		}
	})
}

// drop ends a use. The memory that was held is free after the last.
func (x *resumable) drop() {
	if x.users.Add(-1) == 0 {
		x.cancel(nil)
		x.free()
	}
}

// ended reports whether the command has ended.
func (x *resumable) ended() bool {
	select {
	case <-x.over:
		return true
	default:
		return false
	}
}

// add adds a command. The oldest one that has ended and has no reader makes way.
func (t *resumables) add(x *resumable) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	for i := 0; len(t.list) >= hutch.MaxResumable; i++ {
		if i == len(t.list) {
			return hutch.Errorf(hutch.Exhausted, "the limit of %d resumable commands at a time is reached in this sandbox: wait for one to end or cancel it, or leave resumable out", hutch.MaxResumable)
		}
		if old := t.list[i]; old.ended() && !old.log.attended() {
			t.removeLocked(old)
			break
		}
	}
	t.list = append(t.list, x)
	return nil
}

// find returns a command, after then has done something that keeps it.
func (t *resumables) find(id string, then func(*resumable)) (*resumable, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, x := range t.list {
		if x.id == id {
			then(x)
			return x, nil
		}
	}
	return nil, hutch.Errorf(hutch.NotFound, "there is no resumable command %.80q: it was never started here, its connection was lost for more than %v, or the server was started again", id, hutch.ExecGrace)
}

// removeLocked forgets a command, and reports whether it was there.
func (t *resumables) removeLocked(x *resumable) bool {
	for i, other := range t.list {
		if other == x {
			t.list = append(t.list[:i:i], t.list[i+1:]...)
			x.drop()
			return true
		}
	}
	return false
}
