package engine

import (
	"context"
	"errors"
	"fmt"

	"hutch"
	"hutch/internal/driver"
)

// SleepAll puts all running sandboxes to sleep, whatever they are doing and also
// those that are kept alive: with their memory where the runtime can, else with
// their files. Call it before Close, when no caller is left, to have nothing run
// on this machine. A sandbox that cannot sleep goes on running; the error names
// it.
func (e *Engine) SleepAll(ctx context.Context) error {
	e.mu.Lock()
	all := e.tableLocked()
	e.mu.Unlock()
	var errs []error
	for _, s := range all {
		if err := e.sleepNow(ctx, s); err != nil {
			errs = append(errs, fmt.Errorf("put the sandbox %s to sleep: %w", s.id, err))
		}
	}
	return errors.Join(errs...)
}

func (e *Engine) sleepNow(ctx context.Context, s *sandbox) error {
	if err := s.take(ctx); err != nil {
		return err
	}
	defer s.put()
	if !s.running() {
		return nil
	}
	if err := e.unpause(ctx, s); err != nil {
		return err
	}
	s.mu.Lock()
	inst, agent, since := s.inst, s.agent, s.rec.Sandbox.LastUsedAt
	s.mu.Unlock()
	if saver, ok := driver.As[driver.Saver](inst); ok {
		if err := e.hibernate(ctx, s, saver, agent, since, true); err != nil {
			e.log.Warn("hibernate; its files are kept instead", "sandbox", s.id, "err", err)
		}
	}
	if !s.running() {
		return nil
	}
	if err := e.sleep(s, hutch.IdleStop); err != nil {
		return err
	}
	if s.running() {
		return hutch.Errorf(hutch.Conflict, "it is in use: try again")
	}
	return nil
}

func (s *sandbox) running() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.rec.Sandbox.Status == hutch.Running && !s.gone
}
