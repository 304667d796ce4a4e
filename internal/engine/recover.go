package engine

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"time"

	"hutch"
	"hutch/internal/driver"
	"hutch/internal/instance"
	"hutch/internal/store"
	"hutch/internal/wire"
)

// recover recovers the sandboxes in the store and removes everything else.
func (e *lifecycle) recover(ctx context.Context) error {
	var records []store.Record
	if e.opt.Store != nil {
		var err error
		if records, err = e.opt.Store.All(ctx); err != nil {
			return err
		}
		if e.retired, err = e.opt.Store.Retired(ctx); err != nil {
			return err
		}
	}
	byKey := make(map[string]*sandbox, len(records))
	var wg sync.WaitGroup
	for _, rec := range records {
		rec.Sandbox = onThisClock(rec.Sandbox, time.Now())
		s := e.newSandbox(rec)
		e.sandboxes[s.Name()] = s
		byKey[s.Key()] = s
		if rec.Sandbox.Status == hutch.Running {
			wg.Go(func() { e.recoverRunning(ctx, s) })
		}
	}
	wg.Wait()
	if err := e.sweep(ctx, byKey); err != nil {
		return err
	}
	if e.opt.Restored {
		e.relocateAll(ctx)
	}
	for _, s := range e.sandboxes {
		e.recoverAsleep(ctx, s)
		s.Arm()
		for _, x := range s.Record().Ports {
			if err := e.exposed.Publish(s.Owner(), x); err != nil {
				return err
			}
		}
	}
	return nil
}

// recoverAsleep finds the files of a sandbox that sleeps. There are no files if the machine
// lost its power while the sandbox ran: then the record is older than the disk.
func (e *lifecycle) recoverAsleep(ctx context.Context, s *sandbox) {
	status := s.Status()
	if !status.Sleeps() {
		return
	}
	s.RecoverAsleep()
	if !e.saved.Has(s.Key(), status) {
		e.markLost(ctx, s)
	}
}

// markLost marks a sandbox as lost with all its files.
func (e *lifecycle) markLost(ctx context.Context, s *sandbox) {
	const reason = "it did not survive while the server was down"
	s.MarkLost(reason)
	e.happened(e.ctx, s, "Failed", reason)
	if err := s.Save(ctx); err != nil { // the next start finds the same
		e.log.Error("write that a sandbox is lost", "sandbox", s.ID(), "err", err)
	}
}

// onThisClock is a record from disk with times of this run's clock. The machine's clock may have been set back
// meanwhile: then the sandbox was not created in the future, and its end does not move.
func onThisClock(v hutch.Sandbox, now time.Time) hutch.Sandbox {
	if v.ExpiresAt != nil {
		end := now.Add(v.ExpiresAt.Sub(later(v.CreatedAt, now)))
		v.ExpiresAt = &end
	}
	if v.CreatedAt.After(now) {
		v.CreatedAt = now.UTC()
	}
	return v
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// recoverRunning finds the instance of a sandbox that ran when the daemon ended.
func (e *lifecycle) recoverRunning(ctx context.Context, s *sandbox) {
	rec := s.Record()
	inst, agent, health, err := e.rejoin(ctx, rec)
	if errors.Is(err, wire.ErrOutdated) {
		stopped := e.stopOutdated(ctx, s, inst)
		if stopped == nil {
			agent.Close()
			return
		}
		e.log.Error("a sandbox that another version of Hutch started could not be stopped; it runs on, and that version can still stop it", "sandbox", s.ID(), "err", stopped)
		health, err = hutch.Unhealthy, nil
	}
	if err != nil {
		e.log.Warn("recover", "sandbox", s.ID(), "err", err, "cause", hutch.AsError(err).Cause)
		if e.recoverSaved(ctx, s) {
			return
		}
		e.markLost(ctx, s)
		return
	}
	s.Recover(inst, agent, health, rec.Sandbox.Paused && instance.Freeze(ctx, inst))
	if err := e.sendEnv(ctx, s); err != nil {
		e.log.Error("tell a recovered sandbox its variables", "sandbox", s.ID(), "err", err)
	}
	e.background(func() { e.watch(s, inst) })
	e.log.Info("recovered", "sandbox", s.ID())
}

// recoverSaved makes a sandbox sleep whose instance is gone and whose saved state is complete, and reports whether there is
// such a state. Either the machine went down after the state was saved and before the record said that the sandbox sleeps,
// or the state is a checkpoint in a backup.
func (e *lifecycle) recoverSaved(ctx context.Context, s *sandbox) bool {
	status, reason := hutch.Hibernated, "it continues from its saved memory: the machine went down"
	switch {
	case e.saved.HasMemory(s.Key()):
	case e.opt.Restored && e.saved.Has(s.Key(), hutch.Stopped):
		status = hutch.Stopped
	default:
		return false
	}
	var err error
	if e.opt.Restored {
		reason = "it was awake when the backup was made, and continues from its copy there"
		err = s.Update(ctx, func(r *store.Record) {
			r.EnvNews, r.VolumesUnsaved = allNews(r.Env), len(r.Sandbox.Volumes) > 0
		})
	}
	if err = errors.Join(err, s.CommitSleep(ctx, status, reason)); err != nil {
		e.log.Error("write that a sandbox sleeps", "sandbox", s.ID(), "err", err)
		return false
	}
	return true
}

// rejoin recovers the instance of rec, also if its agent does not answer yet: the sandbox
// is lost only if the instance is dead. With [wire.ErrOutdated] the instance is returned, too.
func (e *lifecycle) rejoin(ctx context.Context, rec store.Record) (driver.Instance, *wire.Client, hutch.Health, error) {
	d, err := e.instances.Driver(rec.Sandbox.Runtime)
	if err != nil {
		return nil, nil, "", err
	}
	inst, err := d.Recover(ctx, cmp.Or(rec.InstanceID, rec.Key), rec.Handle)
	if err != nil {
		return nil, nil, "", err
	}
	agent := wire.NewClient(inst.Dial, rec.Token)
	ctx, cancel := context.WithTimeout(ctx, rejoinTime)
	defer cancel()
	_, err = agent.Ping(ctx)
	switch {
	case err == nil:
		return inst, agent, hutch.Healthy, nil
	case errors.Is(err, wire.ErrOutdated):
		return inst, agent, "", err
	case errors.Is(err, hutch.Denied): // it is not ours
		agent.Close()
		return nil, nil, "", errors.Join(err, instance.Destroy(inst))
	}
	e.log.Warn("a recovered sandbox does not answer yet", "sandbox", rec.Sandbox.ID, "err", err)
	return inst, agent, hutch.Unhealthy, nil
}

// rejoinTime is how long a start waits for the agents of the sandboxes it finds.
const rejoinTime = 5 * time.Second

// sweep removes state that belongs to no sandbox.
func (e *lifecycle) sweep(ctx context.Context, byKey map[string]*sandbox) error {
	runtimes := map[string]string{} // of living instances, by their ids
	for _, s := range byKey {
		if inst := s.Instance(); inst != nil {
			runtimes[inst.ID()] = s.Record().Sandbox.Runtime
		}
	}
	for _, d := range e.opt.Drivers {
		n, err := d.Sweep(ctx, func(id string) bool { return runtimes[id] == d.Name() })
		if err != nil {
			return err
		}
		if n > 0 {
			e.log.Info("removed leftovers", "driver", d.Name(), "instances", n)
		}
	}
	return e.saved.Sweep(func(key string) hutch.Status {
		if s := byKey[key]; s != nil {
			return s.Status()
		}
		return ""
	})
}
