package engine

import (
	"context"
	"errors"
	"io"
	"os"
	"time"

	"hutch"
	"hutch/internal/box"
	"hutch/internal/driver"
	"hutch/internal/instance"
	"hutch/internal/saved"
	"hutch/internal/store"
	"hutch/internal/travel"
	"hutch/internal/wire"
)

// A checkpoint is an image of a sandbox that keeps running. Making a checkpoint is not a use: it does not keep a
// sandbox awake, and calls wait only while the memory is copied to the disk, not while the copy is sent.

// These are the most CPU that a sandbox without running programs uses: idleShare for the health checks of the server,
// and idleCPU once after a checkpoint.
const (
	idleShare = 0.005
	idleCPU   = 0.1 // seconds
)

// Checkpoint calls do with a copy of a running sandbox, and returns the sandbox's present activity. It makes no copy if
// that equals before, which is the activity at the last checkpoint. If a call is in progress in the sandbox, it returns
// Conflict.
func (m mover) Checkpoint(ctx context.Context, owner, id string, before travel.Activity, do func(ctx context.Context, img travel.Image, send func(io.Writer) error) error) (travel.Activity, error) {
	var img travel.Image
	var dir string
	now := before
	err := m.life.hold(box.Name{Owner: owner, ID: id}.Context(ctx), id, func(s *sandbox) (err error) {
		now, img, dir, err = m.copyAwake(ctx, s, before)
		return err
	})
	if err != nil || dir == "" {
		return now, err
	}
	defer os.RemoveAll(dir)
	return now, do(ctx, img, func(w io.Writer) error { return saved.SendFolder(dir, w) })
}

// copyAwake copies the memory of a sandbox to a folder; "" if nothing has changed. The caller holds the lifecycle lock.
func (m mover) copyAwake(ctx context.Context, s *sandbox, before travel.Activity) (now travel.Activity, img travel.Image, dir string, err error) {
	rec := s.Record()
	inst, agent, since := s.LastUse()
	saver, ok := driver.As[driver.Saver](inst)
	switch {
	case agent == nil || s.InUse():
		return before, img, "", inUse(s)
	case !ok:
		return before, img, "", hutch.Errorf(hutch.Unsupported, "the runtime %s saves no memory, so its sandboxes have no checkpoints", rec.Sandbox.Runtime)
	}
	needs, err := m.life.here.needs(rec, true, true)
	if err != nil {
		return before, img, "", err
	}
	listing, err := m.life.readListing(ctx, s, agent)
	if err != nil {
		return before, img, "", err
	}
	used, err := inst.Usage(ctx)
	if err != nil {
		return before, img, "", err
	}
	if before.Of == inst.ID() && before.Used.Equal(since) && !alive(listing) && used.CPUSeconds-before.CPU < idleCPU+idleShare*time.Since(before.At).Seconds() {
		return before, img, "", nil
	}
	began, err := m.life.copyDetached(s, listing, since, func() error {
		dir, err = m.life.saved.WriteCopy(s.Key(), func(dir string) error { return copyMemory(ctx, saver, agent, dir) })
		return err
	})
	if err != nil {
		return before, img, "", err
	}
	if needs.Build, err = m.life.here.buildOf(rec.Sandbox.Runtime, dir); err != nil {
		return before, img, "", errors.Join(err, os.RemoveAll(dir))
	}
	if used, err = inst.Usage(ctx); err != nil { // the copy uses CPU too
		used.CPUSeconds = 0
	}
	now = travel.Activity{Used: since, CPU: used.CPUSeconds, Of: inst.ID(), At: began}
	return now, travel.Image{RecordKey: s.Key(), Needs: needs, Checkpoint: began.UTC()}, dir, nil
}

// copyDetached detaches the sandbox, so that its calls wait, calls do, and returns when the detaching began. The copy
// does not count as a use: the sandbox keeps since as the time of its last use. The caller holds the lifecycle lock.
func (e *lifecycle) copyDetached(s *sandbox, listing *store.Listing, since time.Time, do func() error) (began time.Time, err error) {
	inst, agent, _ := s.LastUse()
	if !s.Detach(listing, since) {
		return began, inUse(s)
	}
	began = time.Now()
	err = do()
	s.Reattach(inst, agent, since)
	e.checkAlive(s, inst)
	if err == nil {
		e.log.Info("checkpoint", "sandbox", s.ID(), "stood", time.Since(began))
	}
	return began, err
}

func inUse(s *sandbox) error {
	return hutch.Errorf(hutch.Conflict, "the sandbox %q is in use", s.ID()).Naming(hutch.AboutSandbox, s.ID())
}

func copyMemory(ctx context.Context, inst driver.Saver, agent *wire.Client, dir string) error {
	if err := agent.Park(ctx); err != nil {
		return err
	}
	return inst.Copy(ctx, dir)
}

// asCheckpoint changes the record of a lost sandbox that was running: in the new record, the sandbox sleeps in the
// state of its checkpoint.
func asCheckpoint(rec store.Record, at time.Time) store.Record {
	v := &rec.Sandbox
	v.Status, v.Paused = hutch.Hibernated, false
	v.Reason = "it continues from its checkpoint of " + at.UTC().Format(time.RFC3339) + ": the node that it was on is away"
	rec.Handle, rec.InstanceID, rec.Listing = nil, "", nil
	rec.Used.End()
	rec.EnvNews = allNews(rec.Env)
	return rec
}

// Evict removes a sandbox, awake or asleep, from this machine after the store has assigned it to another one. It does
// not change the store.
func (m mover) Evict(ctx context.Context, owner, id string) error {
	return m.life.hold(box.Name{Owner: owner, ID: id}.Context(ctx), id, func(s *sandbox) error {
		if m.life.opt.Store == nil {
			return hutch.Errorf(hutch.Unsupported, "this server keeps no records")
		}
		ours, err := m.life.opt.Store.Has(ctx, s.Key())
		if err != nil {
			return err
		}
		if ours {
			return hutch.Errorf(hutch.Conflict, "the store has the sandbox %q on this server", id)
		}
		inst, agent := s.Held()
		if inst == nil {
			return m.leave(s, func() error { return nil })
		}
		s.ReleaseInstance()
		if err := instance.Destroy(inst); err != nil {
			s.TakeBackInstance(inst)
			return err
		}
		agent.Close()
		return m.leave(s, func() error { return nil })
	})
}

// Retire removes the record of a sandbox that the store assigns to this machine, but that no machine has. The usage of
// the sandbox still counts.
func (m mover) Retire(ctx context.Context, owner, id string) (hutch.Destruction, error) {
	if m.life.opt.Store == nil {
		return hutch.Destruction{}, hutch.Errorf(hutch.Unsupported, "this server keeps no records")
	}
	rec, err := m.life.opt.Store.Find(ctx, owner, id)
	if err != nil {
		return hutch.Destruction{}, err
	}
	used := rec.Usage()
	used.Disk = 0
	if err := m.life.opt.Store.Retire(context.WithoutCancel(ctx), rec.Key, owner, used); err != nil {
		return hutch.Destruction{}, err
	}
	m.life.exposed.Remove(rec.Ports)
	m.life.log.Info("destroyed", "sandbox", id, "why", "asked for; it was in the fleet's bucket")
	m.life.opt.Happened(ctx, owner, id, hutch.TimelineEntry{Event: "Destroyed", Target: "asked for"})
	return destruction(id), nil
}
