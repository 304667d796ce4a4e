package engine

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"time"

	"hutch"
	"hutch/internal/driver"
)

const (
	callsTime = 5 * time.Second  // how long SleepAll waits for commands to end
	slowSleep = 10 * time.Second // after this time, a sandbox no longer delays those of other owners
)

// SleepAll puts all running sandboxes to sleep, also busy ones and those with keepAlive. Their memory is kept if the
// runtime can save it, otherwise their files. Call it before Close, when no callers are left: after SleepAll, nothing
// runs on this machine. Resumable commands and outgoing connections end. A sandbox that cannot sleep continues to run,
// and the error names it. Owners do not wait for each other's sandboxes.
func (e *Engine) SleepAll(ctx context.Context) error {
	e.endAll()
	owners := e.byOwner()
	for _, list := range owners {
		for _, s := range list {
			s.Disconnect() // because a link counts as a use of its target
		}
	}
	for end := time.Now().Add(callsTime); e.uses.Load() > 0 && time.Now().Before(end); {
		time.Sleep(5 * time.Millisecond)
	}
	var mu sync.Mutex
	var errs []error
	var wg sync.WaitGroup
	slots := make(slots, max(2, runtime.NumCPU()))
	for _, list := range owners {
		wg.Go(func() {
			for _, s := range list {
				end := slots.take(slowSleep)
				err := e.sleepNow(ctx, s)
				end()
				if err != nil {
					mu.Lock()
					errs = append(errs, fmt.Errorf("put the sandbox %s to sleep: %w", s.ID(), err))
					mu.Unlock()
				}
			}
		})
	}
	wg.Wait()
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
	if err := e.volumes.save(ctx, s, agent); err != nil {
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
