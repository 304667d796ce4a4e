package engine

import (
	"cmp"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"hutch"
	"hutch/internal/driver"
	"hutch/internal/store"
	"hutch/internal/wire"
)

// recover takes on the sandboxes in the store and sweeps away the rest.
func (e *Engine) recover(ctx context.Context) error {
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
	places := make(map[string]*sandbox, len(records))
	var wg sync.WaitGroup
	for _, rec := range records {
		rec.Sandbox = anew(rec.Sandbox, time.Now())
		s := newSandbox(rec)
		e.sandboxes[s.name] = s
		places[s.place] = s
		if rec.Sandbox.Status == hutch.Running {
			wg.Go(func() { e.adopt(ctx, s) })
		}
	}
	wg.Wait()
	if err := e.sweep(ctx, places); err != nil {
		return err
	}
	for _, s := range e.sandboxes {
		s.mu.Lock()
		e.restLocked(ctx, s)
		e.armLocked(s)
		s.mu.Unlock()
		for _, x := range s.ports() {
			if err := e.exposed.Publish(s.owner, x); err != nil {
				return err
			}
		}
	}
	return nil
}

// restLocked has a sandbox sleep on, if what it was is still there. It is not when
// the record is older than the disk: the power went while it ran.
func (e *Engine) restLocked(ctx context.Context, s *sandbox) {
	status := s.rec.Sandbox.Status
	if !sleeps(status) {
		return
	}
	s.health = hutch.Asleep
	if !e.kept(s.place, status) {
		e.lostLocked(ctx, s)
	}
}

// lostLocked marks a sandbox of which nothing is left.
func (e *Engine) lostLocked(ctx context.Context, s *sandbox) {
	s.moveLocked(hutch.Failed, "it did not survive while the server was down")
	if e.opt.Store != nil {
		e.opt.Store.Put(ctx, s.rec)
	}
}

// anew is a record from disk whose times are of this run's clock. The machine's
// may have been put back meanwhile: then it was not made in the future, and its
// end is no later for that.
func anew(v hutch.Sandbox, now time.Time) hutch.Sandbox {
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

// adopt finds the place of a sandbox that ran when the daemon ended.
func (e *Engine) adopt(ctx context.Context, s *sandbox) {
	rec := s.rec
	inst, agent, health, err := e.rejoin(ctx, rec)
	if errors.Is(err, wire.ErrOutdated) {
		stopped := e.stopOutdated(ctx, s, inst)
		if stopped == nil {
			agent.Close()
			return
		}
		e.log.Error("a sandbox that another version of Hutch started could not be stopped; it runs on, and that version can still stop it", "sandbox", s.id, "err", stopped)
		health, err = hutch.Unhealthy, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.since = rec.Sandbox.LastUsedAt
	if err != nil {
		e.log.Warn("recover", "sandbox", s.id, "err", err, "cause", hutch.AsError(err).Cause)
		e.lostLocked(ctx, s)
		return
	}
	s.since, s.health = rec.Sandbox.CreatedAt, health
	s.runsLocked(inst, agent)
	e.refreezeLocked(ctx, s, rec.Books)
	e.background(func() { e.watch(s, inst) })
	e.log.Info("recovered", "sandbox", s.id)
}

// rejoin recovers the place of rec. One whose agent does not answer yet is as good:
// only a dead one is lost. With [wire.ErrOutdated] the place is there, too.
func (e *Engine) rejoin(ctx context.Context, rec store.Record) (driver.Instance, *wire.Client, hutch.Health, error) {
	d, err := e.driver(rec.Sandbox.Runtime)
	if err != nil {
		return nil, nil, "", err
	}
	inst, err := d.Recover(ctx, cmp.Or(rec.Seat, rec.Place), rec.Handle)
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
		return nil, nil, "", errors.Join(err, e.raze(inst))
	}
	e.log.Warn("a recovered sandbox does not answer yet", "sandbox", rec.Sandbox.ID, "err", err)
	return inst, agent, hutch.Unhealthy, nil
}

// rejoinTime is how long a start waits for the agents of the sandboxes it finds.
const rejoinTime = 5 * time.Second

// sweep removes what belongs to no sandbox.
func (e *Engine) sweep(ctx context.Context, places map[string]*sandbox) error {
	seats := map[string]string{} // the runtimes of living places, by their names
	for _, s := range places {
		if s.inst != nil {
			seats[s.inst.ID()] = s.rec.Sandbox.Runtime
		}
	}
	for _, d := range e.opt.Drivers {
		n, err := d.Sweep(ctx, func(seat string) bool { return seats[seat] == d.Name() })
		if err != nil {
			return err
		}
		if n > 0 {
			e.log.Info("removed leftovers", "driver", d.Name(), "places", n)
		}
	}
	files, err := os.ReadDir(e.filesDir())
	if err != nil {
		return err
	}
	for _, f := range files {
		place, whole := strings.CutSuffix(f.Name(), ".tar")
		if s := places[place]; whole && s != nil && s.rec.Sandbox.Status == hutch.Stopped {
			continue
		}
		if err := os.Remove(filepath.Join(e.filesDir(), f.Name())); err != nil {
			return err
		}
	}
	return e.sweepMemory(places)
}

func (e *Engine) sweepMemory(places map[string]*sandbox) error {
	dirs, err := os.ReadDir(e.memoryDir())
	if err != nil {
		return err
	}
	for _, dir := range dirs {
		if s := places[dir.Name()]; s != nil && sleeps(s.rec.Sandbox.Status) {
			continue
		}
		if err := os.RemoveAll(e.memoryOf(dir.Name())); err != nil {
			return err
		}
	}
	return nil
}
