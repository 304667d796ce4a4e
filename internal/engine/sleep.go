package engine

import (
	"cmp"
	"context"
	"errors"
	"strings"
	"time"

	"hutch"
	"hutch/internal/driver"
	"hutch/internal/wire"
)

// Hibernate implements hutch.Snapshots. It waits quiesceTime for the end of uses, as a pause does.
func (e *Engine) Hibernate(ctx context.Context, id string, req hutch.HibernateRequest) (hutch.Sandbox, error) {
	for end := time.Now().Add(quiesceTime); ; {
		v, err := e.hibernateIdle(ctx, id, req.FilesOnly)
		destroyed := errors.Is(err, context.Canceled) && ctx.Err() == nil // the next try reports it
		if err != nil && !destroyed || v.Status != hutch.Running && err == nil {
			return v, err
		}
		if time.Now().After(end) {
			return v, hutch.Errorf(hutch.Conflict, "the sandbox %q is in use: something has been under way in it for %v without a pause; end it, or start it as a background process, and try again", id, quiesceTime).Naming(hutch.AboutSandbox, id)
		}
		if err := waitForPause(ctx); err != nil {
			return v, err
		}
	}
}

// hibernateIdle puts a sandbox to sleep unless it is in use, and returns its new record.
func (e *lifecycle) hibernateIdle(ctx context.Context, id string, filesOnly bool) (v hutch.Sandbox, err error) {
	err = e.hold(ctx, id, func(s *sandbox) error {
		defer func() { v = s.Sandbox() }()
		if err := s.Fault(); err != nil {
			return err
		}
		if s.Status() == hutch.Failed {
			return hutch.Errorf(hutch.Conflict, "the sandbox %q is lost, with its files, and cannot sleep: destroy it, or use it, which starts it empty", id).Naming(hutch.AboutSandbox, id)
		}
		if !s.Running() || s.InUse() {
			return nil
		}
		return e.saveAndSleep(ctx, s, filesOnly)
	})
	return v, err
}

// saveAndSleep puts a running sandbox to sleep, with its memory if the runtime can save memory, otherwise with its
// files. Without filesOnly, it loses no process: if the memory cannot be saved, a sandbox with processes continues to
// run. The caller holds the lifecycle lock.
func (e *lifecycle) saveAndSleep(ctx context.Context, s *sandbox, filesOnly bool) error {
	if err := e.unpause(ctx, s); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	inst, agent, since := s.BeginSleep(cancel)
	if err := e.volumes.save(ctx, s, agent); err != nil {
		return err
	}
	if saver, ok := driver.As[driver.Saver](inst); ok && !filesOnly {
		return e.afterQuiesce(s, inst, e.hibernate(ctx, s, saver, agent, since, true))
	}
	live, err := liveProcesses(ctx, agent)
	if err != nil {
		return err
	}
	if len(live) > 0 && !filesOnly {
		return hutch.Errorf(hutch.Conflict, "the runtime %s cannot keep the memory of the sandbox %q, so its background processes (%s) would end: end them first, or ask for filesOnly", s.Sandbox().Runtime, s.ID(), namesOf(live))
	}
	if err := e.endProcesses(agent, live); err != nil {
		return err
	}
	return e.stop(ctx, s, inst, agent, since)
}

// namesOf returns the names of processes for a message.
func namesOf(live []wire.Process) string {
	names := make([]string, 0, len(live))
	for _, p := range live {
		names = append(names, clean(cmp.Or(p.Name, p.ID), hutch.MaxID))
	}
	return strings.Join(names, ", ")
}
