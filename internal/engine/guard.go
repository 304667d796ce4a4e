package engine

import (
	"context"
	"errors"
	"fmt"

	"hutch"
	"hutch/internal/driver"
	"hutch/internal/instance"
	"hutch/internal/wire"
)

// The daemon enforces the memory limit of a guarded instance: the agent ends the programs that use the most memory. If
// that does not help in time, the daemon stops the sandbox and keeps its files. The next use starts the sandbox again.

// errAsleep means that the agent cannot end programs of the sandbox at the moment.
var errAsleep = errors.New("the sandbox is being saved, or is paused")

// guard enforces the memory limit of the instance of s, until the instance dies or
// the engine closes.
func (e *lifecycle) guard(s *sandbox, inst driver.Instance) {
	g, ok := driver.As[driver.Guarded](inst)
	if !ok {
		return
	}
	err := g.GuardMemory(e.ctx, func(ctx context.Context, used int64, urgent bool) (bool, error) {
		now, agent := s.Attached()
		if now != inst || agent == nil {
			return false, errAsleep
		}
		ended, err := agent.Relieve(ctx, wire.Relieve{Used: used, Urgent: urgent})
		e.log.Info("memory limit", "sandbox", s.ID(), "used", used>>20, "ended", ended, "err", err)
		if ended {
			e.happened(e.ctx, s, "MemoryLimit", fmt.Sprintf("the programs that use the most memory were ended at %d MiB", used>>20))
		}
		return ended, err
	})
	if err != nil {
		e.salvage(e.ctx, s, inst, pastLimit, err)
	}
}

// stoppedForMemory is the reason of a sandbox that was stopped at its memory limit.
const (
	pastLimit        = "it reached its memory limit and ending programs did not help"
	stoppedForMemory = pastLimit + filesKept
)

// filesKept is the end of every reason of a sandbox that salvage has stopped.
const filesKept = ": its files are kept, its processes have ended; the next use starts it again"

// salvage stops a sandbox for lack of memory, and keeps its files; why is the reason. It returns false if it did
// nothing, because the lifecycle lock was not free before the end of ctx, or because the sandbox does not run in the
// instance any more.
func (e *lifecycle) salvage(ctx context.Context, s *sandbox, inst driver.Instance, why string, cause error) (ended bool) {
	if s.Lock(ctx) != nil {
		return false
	}
	defer s.Unlock()
	agent, ok := s.BeginSalvage(inst)
	if !ok {
		return false
	}
	reason := why + filesKept
	defer s.EndSalvage()
	s.account(e.ctx, inst)
	err := e.keepWithoutAgent(e.ctx, s, inst)
	if err == nil {
		err = e.volumes.noteUnsaved(s)
	}
	if err == nil {
		err = s.CommitSleep(e.ctx, hutch.Stopped, reason)
	}
	if err != nil {
		s.Attach(inst, agent)
		e.fail(s, inst, fmt.Sprintf("%s, and its files could not be kept: %v", why, err))
		return true
	}
	agent.Close()
	e.log.Warn("stopped for lack of memory", "sandbox", s.ID(), "err", cause)
	e.happened(e.ctx, s, "Stopped", reason)
	if err := instance.Destroy(inst); err != nil {
		e.log.Error("free an instance without memory", "sandbox", s.ID(), "err", err)
	}
	return true
}

// wakeFromSavedFiles makes a new instance for a sandbox that salvage has stopped.
func (e *lifecycle) wakeFromSavedFiles(ctx context.Context, s *sandbox, d driver.Driver) error {
	r, ok := driver.As[driver.Restorer](d)
	if !ok {
		return hutch.Errorf(hutch.Unsupported, "the runtime %s cannot start the sandbox %q again: start the server with the runtime that it was made on", d.Name(), s.ID())
	}
	create := func(ctx context.Context, spec driver.Spec) (driver.Instance, error) {
		return r.RestoreFiles(ctx, spec, e.saved.Memory(s.Key()))
	}
	if err := e.open(ctx, s, startPlan{Plan: instance.Plan{Create: create}}); err != nil {
		return err
	}
	e.saved.RemoveInBackground(e.saved.Memory(s.Key()))
	return nil
}
