package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"hutch"
	"hutch/internal/driver"
	"hutch/internal/instance"
	"hutch/internal/snapshots"
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
		used, err := e.opt.Store.Retired(ctx)
		if err != nil {
			return err
		}
		e.recallRetired(used)
	}
	arrivals, err := e.saved.Arrivals()
	if err != nil {
		return err
	}
	byKey := make(map[string]*sandbox, len(records))
	var wg sync.WaitGroup
	failed := make(chan error, len(records))
	for _, rec := range records {
		rec.Sandbox = onThisClock(rec.Sandbox, time.Now())
		if a := arrivals[rec.Key]; !a.Checkpoint.IsZero() && !rec.Sandbox.Status.Sleeps() { // the record is from the node where it ran
			rec = asCheckpoint(rec, a.Checkpoint)
		}
		s := e.newSandbox(rec)
		e.table.add(s)
		byKey[s.Key()] = s
		if rec.Sandbox.Status == hutch.Running {
			wg.Go(func() {
				if err := e.recoverRunning(ctx, s); err != nil {
					failed <- fmt.Errorf("recover sandbox %s: %w", s.ID(), err)
				}
			})
		}
	}
	wg.Wait()
	if len(failed) > 0 { // the sweep would delete what could not be recovered now
		return <-failed
	}
	if err := e.sweep(ctx, byKey); err != nil {
		return err
	}
	if e.opt.Restored {
		e.relocateAll(ctx)
	}
	if err := e.retainBuilds(); err != nil {
		e.log.Warn("programs that no saved memory needs could not be removed", "err", err)
	}
	for _, s := range e.oldestFirst() {
		if err := e.recoverAsleep(ctx, s); err != nil {
			return err
		}
		if a, came := arrivals[s.Key()]; came {
			if err := e.recoverArrived(ctx, s); err != nil {
				return err
			}
			if !a.Checkpoint.IsZero() && s.Status().Sleeps() {
				e.cameAwake = append(e.cameAwake, a)
			}
		}
		s.Arm()
		for _, x := range s.Record().Ports {
			if err := e.exposed.Publish(s.Owner(), x); err != nil {
				return err
			}
		}
	}
	return nil
}

// recoverArrived completes the arrival of a sandbox that the store has assigned to this machine. It removes the note
// last: without the note, the next start would treat the sandbox as one that ran here.
func (e *lifecycle) recoverArrived(ctx context.Context, s *sandbox) error {
	if err := s.Save(ctx); err != nil {
		return fmt.Errorf("write that sandbox %s came from another node: %w", s.ID(), err)
	}
	e.log.Info("came from another node", "sandbox", s.ID())
	return e.saved.ForgetArrival(s.Key())
}

// recoverAsleep finds the files of a sandbox that sleeps. There are no files if the machine lost
// its power while the sandbox ran: then the record is older than the state of the disk.
func (e *lifecycle) recoverAsleep(ctx context.Context, s *sandbox) error {
	status := s.Status()
	if !status.Sleeps() {
		return nil
	}
	s.RecoverAsleep()
	if e.saved.Has(s.Key(), status) {
		return nil
	}
	reason := lostWhileDown
	if e.opt.Restored {
		reason = lostNoFiles
	}
	return e.markLost(ctx, s, reason)
}

const (
	lostWhileDown = "it did not survive while the server was down"
	lostNoCopy    = "it was awake when the backup was made, and the backup has no copy of it"
	lostNoFiles   = "the backup has no files of it"
)

// markLost marks a sandbox as lost with all its files. It returns an error only in a restored folder.
func (e *lifecycle) markLost(ctx context.Context, s *sandbox, reason string) error {
	s.MarkLost(reason)
	e.happened(e.ctx, s, "Failed", reason)
	err := s.Save(ctx)
	if err == nil && e.opt.Restored && e.opt.Store != nil {
		// The caller removes the mark of a restored folder next. The handle must be removed from the disk before the
		// mark.
		err = e.opt.Store.Keep(ctx, s.Record())
	}
	if err == nil {
		return nil
	}
	if e.opt.Restored {
		return fmt.Errorf("write that sandbox %s is lost: %w", s.ID(), err)
	}
	e.log.Error("write that a sandbox is lost", "sandbox", s.ID(), "err", err) // the next start finds the same loss
	return nil
}

// onThisClock changes the times of a record from disk to times of this run's clock. If the machine's clock was set back
// since, the time of creation becomes now instead of a time in the future, and the remaining lifetime does not change.
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

// recoverRunning finds the instance of a sandbox that ran when the daemon ended. It returns an error if the sandbox has saved
// state that would be lost if the start continued.
func (e *lifecycle) recoverRunning(ctx context.Context, s *sandbox) error {
	if e.opt.Restored {
		return e.recoverRestored(ctx, s)
	}
	rec := s.Record()
	inst, agent, health, err := e.rejoin(ctx, rec)
	if errors.Is(err, wire.ErrOutdated) {
		stopped := e.stopOutdated(ctx, s, inst)
		if stopped == nil {
			agent.Close()
			return nil
		}
		e.log.Error("a sandbox that another version of Hutch started could not be stopped; it runs on, and that version can still stop it", "sandbox", s.ID(), "err", stopped)
		health, err = hutch.Unhealthy, nil
	}
	if err != nil {
		e.log.Warn("recover", "sandbox", s.ID(), "err", err, "cause", hutch.AsError(err).Cause)
		if e.saved.HasMemory(s.Key()) { // the machine went down between the save and the record
			return s.CommitSleep(ctx, hutch.Hibernated, "it continues from its saved memory: the machine went down")
		}
		return e.markLost(ctx, s, lostWhileDown)
	}
	s.Recover(inst, agent, health, rec.Sandbox.Paused && instance.Freeze(ctx, inst))
	if err := e.sendEnv(ctx, s); err != nil {
		e.log.Error("tell a recovered sandbox its variables", "sandbox", s.ID(), "err", err)
	}
	e.background(func() { e.watch(s, inst) })
	e.log.Info("recovered", "sandbox", s.ID())
	return nil
}

// recoverRestored handles a sandbox that was awake when the backup was made: it makes the sandbox sleep with its copy
// in the backup. It never looks at the sandbox's instance: the handle of the record leads to the instance of the
// original installation, which can still run.
func (e *lifecycle) recoverRestored(ctx context.Context, s *sandbox) error {
	var status hutch.Status
	switch {
	case e.saved.HasMemory(s.Key()):
		status = hutch.Hibernated
	case e.saved.Has(s.Key(), hutch.Stopped):
		status = hutch.Stopped
	default:
		return e.markLost(ctx, s, lostNoCopy)
	}
	err := s.Update(ctx, func(r *store.Record) {
		r.EnvNews, r.VolumesUnsaved = allNews(r.Env), len(r.Sandbox.Volumes) > 0
	})
	if err != nil {
		return err
	}
	return s.CommitSleep(ctx, status, "it was awake when the backup was made, and continues from its copy there")
}

// rejoin recovers the instance of rec, even if its agent does not answer yet: the sandbox is lost
// only if the instance is dead. With [wire.ErrOutdated] the instance is returned, too.
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
	case errors.Is(err, hutch.Denied): // the instance is not ours
		agent.Close()
		return nil, nil, "", errors.Join(err, instance.Destroy(inst))
	}
	e.log.Warn("a recovered sandbox does not answer yet", "sandbox", rec.Sandbox.ID, "err", err)
	return inst, agent, hutch.Unhealthy, nil
}

// rejoinTime is how long a start waits for the agents of the sandboxes it finds.
const rejoinTime = 5 * time.Second

// sweep removes state and instances that belong to no sandbox.
func (e *lifecycle) sweep(ctx context.Context, byKey map[string]*sandbox) error {
	runtimes := map[string]string{} // runtimes of living instances, by the ids of the instances
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

// retainBuilds removes kept programs that no saved memory on this machine needs. It also keeps the programs for
// sandboxes whose arrival is undecided.
func (e *lifecycle) retainBuilds() error {
	arrivals, err := e.saved.Arrivals()
	if err != nil {
		return err
	}
	for _, d := range e.opt.Drivers {
		k, ok := driver.As[driver.Keeper](d)
		if !ok {
			continue
		}
		keys := slices.Collect(maps.Keys(arrivals))
		for _, s := range e.table.oldestFirst() {
			if s.Sandbox().Runtime == d.Name() {
				keys = append(keys, s.Key())
			}
		}
		needed := map[string]bool{}
		for _, key := range keys {
			if !e.saved.HasMemory(key) {
				continue
			}
			build, err := k.BuildOf(e.saved.Memory(key))
			if err != nil {
				return err
			}
			needed[build] = true
		}
		for _, snap := range e.snaps.List(snapshots.Viewer{Server: true}) {
			needed[snap.Build] = true
		}
		if err := k.Retain(func(build string) bool { return needed[build] }); err != nil {
			return err
		}
	}
	return nil
}

// relocateAll adapts the sandboxes and snapshots from a backup of another folder or another machine. A sandbox or
// snapshot that cannot be adapted keeps its files, and its next use reports the problem.
func (e *lifecycle) relocateAll(ctx context.Context) {
	failed := func(kind, id string, err error) {
		e.log.Warn("the memory in the backup cannot be restored here, only the files", kind, id, "err", err, "cause", hutch.AsError(err).Cause)
	}
	for _, s := range e.table.oldestFirst() {
		if !e.saved.HasMemory(s.Key()) {
			continue
		}
		if err := e.here.relocate(ctx, s.Record(), e.saved.Memory(s.Key())); err != nil {
			failed("sandbox", s.ID(), err)
		}
	}
	for _, snap := range e.snaps.List(snapshots.Viewer{Server: true}) {
		if !snap.Snapshot.Memory {
			continue
		}
		if err := snap.Change(func() error { return e.here.relocate(ctx, snap.Record, snap.Memory()) }); err != nil {
			failed("snapshot", snap.Snapshot.ID, err)
		}
	}
}
