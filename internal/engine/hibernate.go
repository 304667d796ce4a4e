package engine

import (
	"context"
	"errors"
	"slices"
	"time"

	"hutch"
	"hutch/internal/delay"
	"hutch/internal/driver"
	"hutch/internal/durable"
	"hutch/internal/instance"
	"hutch/internal/store"
	"hutch/internal/wire"
)

// Hibernation writes the whole state of a sandbox to a folder and frees its instance. The daemon can die at any moment,
// because the order makes that safe: the folder is complete before it gets its name, the record is written before the
// instance is removed, and the folder is removed after the record says that the sandbox runs again. The instance is
// frozen until it is removed; a recovered instance continues.

// hibernate saves an idle sandbox with its memory. If busy is set, it also saves a sandbox whose
// processes are at work. The caller holds the lifecycle lock.
func (e *lifecycle) hibernate(ctx context.Context, s *sandbox, inst driver.Saver, agent *wire.Client, since time.Time, busy bool) error {
	listing, err := e.readListing(ctx, s, agent)
	if err != nil {
		return err
	}
	used, _ := s.account(ctx, inst)
	if !busy && alive(listing) && e.working(ctx, s, inst, seen{listing.Processes, s.Resources(used)}) || !s.Detach(listing, since) {
		return nil // it is not idle, or was used meanwhile
	}
	err = e.saveMemory(ctx, s, inst, agent)
	awaited := s.Awaited()
	if err == nil && !awaited {
		err = s.CommitSleep(e.ctx, hutch.Hibernated, "")
	}
	if err != nil || awaited {
		return errors.Join(err, e.abortHibernation(s, inst, agent))
	}
	agent.Close()
	e.log.Info("hibernated", "sandbox", s.ID())
	e.happened(ctx, s, "Hibernated", "")
	return instance.Destroy(inst)
}

// readListing asks the agent for the processes and ports that lists show while the
// sandbox sleeps.
func (e *lifecycle) readListing(ctx context.Context, s *sandbox, agent *wire.Client) (*store.Listing, error) {
	ps, err := e.listProcesses(ctx, s, agent)
	if err != nil {
		return nil, err
	}
	contexts, err := codeContexts(ctx, s.ID(), agent)
	if err != nil {
		return nil, err
	}
	return &store.Listing{Processes: ps, Contexts: contexts}, nil
}

// alive reports whether the sandbox has processes or contexts that can be at work.
func alive(b *store.Listing) bool {
	return slices.ContainsFunc(b.Processes, func(p hutch.Process) bool { return p.Status.Live() }) ||
		slices.ContainsFunc(b.Contexts, func(c hutch.CodeContext) bool { return c.Busy })
}

// A sandbox is at work if it uses a tenth of a core for a while. A build in the
// background does; an idle server does not.
const (
	workTime  = time.Second
	workShare = 0.1
)

func (e *lifecycle) working(ctx context.Context, s *sandbox, inst driver.Instance, now seen) bool {
	s.measured.Store(&now)
	defer s.measured.Store(nil)
	before, err := inst.Usage(ctx)
	if err != nil {
		return false
	}
	delay.Wait(ctx, workTime)
	after, err := inst.Usage(ctx)
	return err == nil && after.CPUSeconds-before.CPUSeconds > workShare*workTime.Seconds()
}

// seen is the part of a record that is read from inside a running sandbox. Each reading uses CPU of the sandbox. So
// callers get the last reading while the engine measures whether the sandbox is at work; otherwise frequent calls would
// keep it awake.
type seen struct {
	processes []hutch.Process
	resources hutch.Resources
}

// saveMemory writes the sandbox's folder, under a temporary name first.
func (e *lifecycle) saveMemory(ctx context.Context, s *sandbox, inst driver.Saver, agent *wire.Client) error {
	return e.saved.WriteMemory(s.Key(), func(dir string) error {
		if err := agent.Park(ctx); err != nil {
			return err
		}
		return inst.Save(ctx, dir)
	})
}

// abortHibernation lets a detached sandbox continue in its instance. Its folder is kept as long as the record could
// say that the sandbox hibernates.
func (e *lifecycle) abortHibernation(s *sandbox, inst driver.Saver, agent *wire.Client) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(e.ctx), time.Minute)
	defer cancel()
	err := inst.Resume(ctx)
	if err != nil {
		e.background(func() { e.resumeLater(s, inst) })
	}
	e.attach(s, inst, agent)
	if failed := s.Save(ctx); failed != nil {
		return errors.Join(err, failed)
	}
	return errors.Join(err, e.saved.RemoveMemory(s.Key()))
}

// resumeLater tries again to resume a sandbox, until the sandbox runs or has died. Calls to the sandbox wait meanwhile.
func (e *lifecycle) resumeLater(s *sandbox, inst driver.Saver) {
	for wait := time.Second; ; wait = min(2*wait, time.Minute) {
		select {
		case <-e.ctx.Done():
			return
		case <-inst.Done():
			return
		case <-time.After(wait):
		}
		if s.Lock(e.ctx) != nil {
			return
		}
		var err error
		if s.RunsIn(inst) {
			err = inst.Resume(e.ctx)
		}
		s.Unlock()
		if err == nil {
			return
		}
		e.log.Warn("make a sandbox run on", "sandbox", s.ID(), "err", err)
	}
}

// restoreTries is how often the engine tries to restore the memory of a sandbox. If an instance was killed or ran out
// of memory, a new one can succeed.
const restoreTries = 3

// errBusy means that the host is too busy to wake a sandbox. The sandbox stays asleep.
var errBusy = hutch.Errorf(hutch.Unavailable, "the sandbox did not wake in time, since the host is busy: it sleeps on, with its memory. Try again in a moment").With("retryAfter", 5)

// wakeFromMemory makes an instance of a hibernated sandbox from its folder. The memory
// can only be used with the same programs of the host: if these have changed, only
// the files are restored.
func (e *lifecycle) wakeFromMemory(ctx context.Context, s *sandbox, d driver.Driver) error {
	r, ok := driver.As[driver.Restorer](d)
	if !ok {
		return hutch.Errorf(hutch.Unsupported, "the runtime %s cannot restore the sandbox %q: start the server with the runtime that it was made on", d.Name(), s.ID())
	}
	reason := s.Sandbox().Reason // set if the sandbox continues from a checkpoint
	create := func(ctx context.Context, spec driver.Spec) (driver.Instance, error) {
		build, err := r.BuildOf(e.saved.Memory(s.Key()))
		if err != nil {
			return nil, err
		}
		tries, lost := restoreTries, "the programs of this host having changed"
		if err := r.Restores(build); build != "" && err != nil {
			tries, lost = 0, "because "+err.Error()
		}
		for range tries {
			killed := e.instances.Kills()
			inst, err := e.restoreMemory(ctx, r, s, spec)
			if err == nil || ctx.Err() != nil {
				return inst, err
			}
			e.log.Warn("restore the memory of a sandbox", "sandbox", s.ID(), "err", err, "cause", hutch.AsError(err).Cause)
			if err := durable.Explained(err, e.opt.Dir); errors.Is(err, hutch.Exhausted) {
				return nil, err
			}
			if e.instances.WasShort(err, killed) {
				return nil, instance.ErrShort.Because(err)
			}
			if errors.Is(err, driver.ErrLate) || errors.Is(err, context.DeadlineExceeded) {
				return nil, errBusy.Because(err)
			}
		}
		reason = "its memory could not be restored, " + lost + ": its files are as they were, its processes have ended"
		return r.RestoreFiles(ctx, spec, e.saved.Memory(s.Key()))
	}
	if err := e.open(ctx, s, startPlan{Plan: instance.Plan{Create: create}, reason: &reason}); err != nil {
		return err
	}
	e.saved.RemoveInBackground(e.saved.Memory(s.Key()))
	return nil
}

// restoreMemory restores the memory of a hibernated sandbox, in a new instance or in
// one of the pool.
func (e *lifecycle) restoreMemory(ctx context.Context, r driver.Restorer, s *sandbox, spec driver.Spec) (driver.Instance, error) {
	rec := s.Record()
	inst, err := e.instances.Restore(ctx, r, rec.Sandbox, spec, e.saved.Memory(s.Key()))
	if err != nil {
		return nil, err
	}
	return instance.GiveIdentity(ctx, inst, spec.Boot.Token, wire.Identity{Hostname: spec.Boot.Hostname, Env: spec.Boot.Env, Tell: newsOf(rec)})
}
