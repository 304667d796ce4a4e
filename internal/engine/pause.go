package engine

import (
	"context"
	"errors"
	"time"

	"hutch"
	"hutch/internal/driver"
	"hutch/internal/store"
	"hutch/internal/wire"
)

// stillTime is how long one waits for a moment at which nobody uses a sandbox.
const stillTime = 5 * time.Second

// still takes a running sandbox out of use, waking it before, and hands what it
// runs in to do, at a moment when nothing is under way in it. Who comes meanwhile
// waits. The caller holds no turn; do must bring the sandbox back into use, or
// leave it paused.
func (e *Engine) still(ctx context.Context, id string, do func(s *sandbox, inst driver.Instance, agent *wire.Client) error) error {
	for end := time.Now().Add(stillTime); ; {
		s, agent, err := e.use(ctx, id)
		if err != nil {
			return err
		}
		books, err := readBooks(ctx, s.id, agent)
		e.done(s)
		if err != nil {
			return err
		}
		if err := s.take(ctx); err != nil {
			return err
		}
		s.mu.Lock()
		inst, since := s.inst, s.rec.Sandbox.LastUsedAt
		s.mu.Unlock()
		if s.rest(books, since) {
			defer s.put()
			return e.checked(s, inst, do(s, inst, agent))
		}
		s.put()
		if time.Now().After(end) {
			return hutch.Errorf(hutch.Conflict, "the sandbox %q is in use: something has been under way in it for %v without a pause; end it, or start it as a background process, and try again", id, stillTime)
		}
		select {
		case <-time.After(5 * time.Millisecond):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// checked is how a sandbox fared that was out of use. What a runtime could not
// do, for whatever reason of the host's, it may do the next time.
func (e *Engine) checked(s *sandbox, inst driver.Instance, err error) error {
	e.notice(s, inst)
	if _, told := errors.AsType[*hutch.Error](err); err == nil || told || errors.Is(err, context.Canceled) {
		return err
	}
	return hutch.Errorf(hutch.Unavailable, "the runtime could not do that with the sandbox %q, which the server's log says more about: try again, or look at its status", s.id).Because(err)
}

// reuse brings a sandbox that rest took out of use back into it.
func (e *Engine) reuse(s *sandbox, inst driver.Instance, agent *wire.Client) {
	s.mu.Lock()
	s.runsLocked(inst, agent)
	e.armLocked(s)
	s.mu.Unlock()
	e.notice(s, inst)
}

// notice looks whether the place of a sandbox has died, which nobody was to see
// while the sandbox was out of use.
func (e *Engine) notice(s *sandbox, inst driver.Instance) {
	if dead(inst) {
		e.background(func() { e.died(s, inst) })
	}
}

// Pause implements hutch.Snapshots.
func (e *Engine) Pause(ctx context.Context, id string) (v hutch.Sandbox, err error) {
	err = e.still(ctx, id, func(s *sandbox, inst driver.Instance, agent *wire.Client) error {
		f, ok := driver.As[driver.Freezer](inst)
		if !ok {
			e.reuse(s, inst, agent)
			return hutch.Errorf(hutch.Unsupported, "the runtime of the sandbox %q cannot pause it", id)
		}
		if err := f.Freeze(ctx); err != nil {
			e.reuse(s, inst, agent)
			return err
		}
		s.mu.Lock()
		s.inst, s.paused, s.rec.Sandbox.Paused = inst, agent, true // but no agent: nobody begins a use
		e.armLocked(s)
		v = s.snapshotLocked()
		s.mu.Unlock()
		e.log.Info("paused", "sandbox", s.id)
		return e.save(ctx, s)
	})
	return v, err
}

// Resume implements hutch.Snapshots.
func (e *Engine) Resume(ctx context.Context, id string) (hutch.Sandbox, error) {
	s, _, err := e.use(ctx, id)
	if err != nil {
		return hutch.Sandbox{}, err
	}
	e.done(s)
	return e.look(ctx, s), nil
}

// unpause has a paused sandbox, whose turn the caller holds, run on; another is
// as it should be.
func (e *Engine) unpause(ctx context.Context, s *sandbox) error {
	s.mu.Lock()
	inst, agent := s.inst, s.paused
	s.mu.Unlock()
	if agent == nil {
		return nil
	}
	if err := thaw(ctx, inst); err != nil {
		return e.checked(s, inst, err)
	}
	s.mu.Lock()
	s.paused, s.rec.Sandbox.Paused = nil, false
	s.mu.Unlock()
	e.reuse(s, inst, agent)
	return e.save(ctx, s)
}

// refreezeLocked pauses a recovered sandbox again that was paused when the daemon
// ended.
func (e *Engine) refreezeLocked(ctx context.Context, s *sandbox, books *store.Books) {
	if f, ok := driver.As[driver.Freezer](s.inst); ok && s.rec.Sandbox.Paused && f.Freeze(ctx) == nil {
		s.agent, s.paused, s.rec.Books = nil, s.agent, books
		return
	}
	s.rec.Sandbox.Paused = false
}

// thaw lets a frozen instance run on.
func thaw(ctx context.Context, inst driver.Instance) error {
	f, ok := driver.As[driver.Freezer](inst)
	if !ok {
		return hutch.Errorf(hutch.Internal, "the runtime cannot thaw what it froze")
	}
	return f.Thaw(ctx)
}
