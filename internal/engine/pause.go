package engine

import (
	"context"
	"errors"
	"time"

	"hutch"
	"hutch/internal/delay"
	"hutch/internal/driver"
	"hutch/internal/instance"
	"hutch/internal/wire"
)

// quiesceTime is how long quiesce waits for the last use of a sandbox to end.
const quiesceTime = 5 * time.Second

// quiesce wakes a sandbox, waits until no call is in progress in it, detaches it, and calls do with its instance. Uses
// wait meanwhile. The caller does not hold the lifecycle lock; do must attach the sandbox again, or leave it paused.
func (e *lifecycle) quiesce(ctx context.Context, id string, do func(s *sandbox, inst driver.Instance, agent *wire.Client) error) error {
	for end := time.Now().Add(quiesceTime); ; {
		s, agent, err := e.use(ctx, id)
		if err != nil {
			return err
		}
		listing, err := e.readListing(ctx, s, agent)
		s.EndUse()
		if err != nil {
			return err
		}
		if err := s.Lock(ctx); err != nil {
			return err
		}
		inst, _, since := s.LastUse()
		if s.Detach(listing, since) {
			defer s.Unlock()
			return e.afterQuiesce(s, inst, do(s, inst, agent))
		}
		s.Unlock()
		if time.Now().After(end) {
			return hutch.Errorf(hutch.Conflict, "the sandbox %q is in use: something has been under way in it for %v without a pause; end it, or start it as a background process, and try again", id, quiesceTime)
		}
		if err := waitForPause(ctx); err != nil {
			return err
		}
	}
}

// waitForPause waits before the next check whether a sandbox is in use. Its error is that of ctx.
func waitForPause(ctx context.Context) error { return delay.Wait(ctx, 5*time.Millisecond) }

// afterQuiesce returns the error to report after an operation on a detached sandbox. A failure of the runtime
// becomes Unavailable, because the next try can succeed.
func (e *lifecycle) afterQuiesce(s *sandbox, inst driver.Instance, err error) error {
	e.checkAlive(s, inst)
	if _, told := errors.AsType[*hutch.Error](err); err == nil || told || errors.Is(err, context.Canceled) {
		return err
	}
	return hutch.Errorf(hutch.Unavailable, "the runtime could not do that with the sandbox %q, which the server's log says more about: try again, or look at its status", s.ID()).Because(err)
}

// attach brings a sandbox that was detached back into use.
func (e *lifecycle) attach(s *sandbox, inst driver.Instance, agent *wire.Client) {
	s.Attach(inst, agent)
	e.checkAlive(s, inst)
}

// checkAlive marks a sandbox whose instance died while it was detached: watch does not
// see that.
func (e *lifecycle) checkAlive(s *sandbox, inst driver.Instance) {
	if instance.Dead(inst) {
		e.background(func() { e.died(s, inst) })
	}
}

// Pause implements hutch.Snapshots.
func (e *Engine) Pause(ctx context.Context, id string) (v hutch.Sandbox, err error) {
	err = e.quiesce(ctx, id, func(s *sandbox, inst driver.Instance, agent *wire.Client) error {
		f, ok := driver.As[driver.Freezer](inst)
		if !ok {
			e.attach(s, inst, agent)
			return hutch.Errorf(hutch.Unsupported, "the runtime of the sandbox %q cannot pause it", id)
		}
		if err := f.Freeze(ctx); err != nil {
			e.attach(s, inst, agent)
			return err
		}
		s.Pause(inst, agent)
		v = s.Sandbox()
		e.log.Info("paused", "sandbox", s.ID())
		e.happened(ctx, s, "Paused", "")
		return s.Save(ctx)
	})
	return v, err
}

// Resume implements hutch.Snapshots.
func (e *Engine) Resume(ctx context.Context, id string) (hutch.Sandbox, error) {
	s, _, err := e.use(ctx, id)
	if err != nil {
		return hutch.Sandbox{}, err
	}
	s.EndUse()
	return e.look(ctx, s), nil
}

// unpause resumes a paused sandbox. For any other sandbox it does nothing. The caller holds the lifecycle lock.
func (e *lifecycle) unpause(ctx context.Context, s *sandbox) error {
	inst, agent := s.Paused()
	if agent == nil {
		return nil
	}
	if err := instance.Thaw(ctx, inst); err != nil {
		return e.afterQuiesce(s, inst, err)
	}
	e.attach(s, inst, agent)
	e.happened(ctx, s, "Resumed", "")
	return errors.Join(s.Save(ctx), e.sendEnv(ctx, s))
}
