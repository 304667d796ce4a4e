package engine

import (
	"context"
	"errors"
	"fmt"

	"hutch"
	"hutch/internal/driver"
)

// SleepAll puts all running sandboxes to sleep, busy ones and those with keepAlive
// too. Their memory is kept if the runtime can save it, else their files. Call it
// before Close, when there are no callers left: after it nothing runs on this
// machine. A sandbox that cannot sleep continues to run, and the error names it.
func (e *Engine) SleepAll(ctx context.Context) error {
	e.mu.Lock()
	all := e.tableLocked()
	e.mu.Unlock()
	var errs []error
	for _, s := range all {
		if err := e.sleepNow(ctx, s); err != nil {
			errs = append(errs, fmt.Errorf("put the sandbox %s to sleep: %w", s.ID(), err))
		}
	}
	return errors.Join(errs...)
}

func (e *lifecycle) sleepNow(ctx context.Context, s *sandbox) error {
	if err := s.Lock(ctx); err != nil {
		return err
	}
	defer s.Unlock()
	if !s.Running() {
		return nil
	}
	if err := e.unpause(ctx, s); err != nil {
		return err
	}
	inst, agent, since := s.LastUse()
	if err := e.saveVolumes(ctx, s, agent); err != nil {
		return err
	}
	if saver, ok := driver.As[driver.Saver](inst); ok {
		if err := e.hibernate(ctx, s, saver, agent, since, true); err != nil {
			e.log.Warn("hibernate; its files are kept instead", "sandbox", s.ID(), "err", err)
		}
	}
	if !s.Running() {
		return nil
	}
	if err := e.sleep(s, hutch.IdleStop); err != nil {
		return err
	}
	if s.Running() {
		return hutch.Errorf(hutch.Conflict, "it is in use: try again")
	}
	return nil
}
