package engine

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"hutch"
	"hutch/internal/mount"
	"hutch/internal/store"
	"hutch/internal/wire"
)

// A volume is put into a new sandbox as files, and saved from there: see package volume. Only the record of a sandbox
// shows that the sandbox can write to a volume, asleep or awake. So this claim ends with the sandbox, and survives
// whatever the sandbox does.
//
// A sleeping sandbox has nothing unsaved, because its volumes are saved before it sleeps. A sandbox whose volume cannot
// be saved stays awake, and can be destroyed only with force. If a sandbox had to be stopped without its agent, its
// record marks it as unsaved, and the sandbox is woken before it is destroyed.

// Volumes keeps the content of volumes.
type Volumes interface {
	mount.Content
	// Find returns the record of an owner's volume.
	Find(owner, name string) (hutch.Volume, error)
	// Sync exchanges changes with the bucket of a volume, if it has one. If free returns an error, the content does not
	// change.
	Sync(ctx context.Context, owner, name string, free func() error) error
}

const (
	// saveShare limits the saves of a running sandbox: they take at most 1/saveShare of the time.
	saveShare = 20
	// packVolumeTime bounds the transfer of a volume.
	packVolumeTime = 10 * time.Minute
	// lastSaveTime limits the save of a sandbox that is destroyed with force.
	lastSaveTime = 2 * time.Minute
	// mostGiveWay is how many saves in a row can end early for other callers.
	mostGiveWay = 3
	// lastAnswerTime is how long the agent of a sandbox that is destroyed with force can take to answer.
	lastAnswerTime = 5 * time.Second
)

// volumes puts the content of volumes into sandboxes, and saves it from there.
type volumes struct {
	content    Volumes // nil means that there are none
	every      time.Duration
	ctx        context.Context // done when the engine closes
	log        *slog.Logger
	table      *table
	wake       func(context.Context, *sandbox) error // the caller holds the lifecycle lock
	background func(func())
}

// check refuses volumes that a new sandbox of an owner cannot have.
func (vs *volumes) check(owner string, list []hutch.VolumeMount) error {
	if len(list) > 0 && vs.content == nil {
		return hutch.Errorf(hutch.Unsupported, "this command has no volumes: start a server with `hutch serve`, and use `hutch create` and `hutch exec`").Naming(hutch.AboutField, "volumes")
	}
	for _, m := range list {
		if _, err := vs.content.Find(owner, m.Name); err != nil {
			return err
		}
	}
	return nil
}

func (s *sandbox) writesTo(volume string) bool {
	for _, m := range s.Record().Sandbox.Volumes {
		if m.Name == volume && !m.ReadOnly {
			return true
		}
	}
	return false
}

// VolumeUses lists the sandboxes of an owner that have volumes, by the names of the volumes.
func (e *Engine) VolumeUses(owner string) map[string][]hutch.VolumeUse {
	uses := map[string][]hutch.VolumeUse{}
	for _, s := range e.table.oldestFirst() {
		if s.Owner() != owner {
			continue
		}
		for _, m := range s.Record().Sandbox.Volumes {
			uses[m.Name] = append(uses[m.Name], hutch.VolumeUse{SandboxID: s.ID(), Path: m.Path, ReadOnly: m.ReadOnly})
		}
	}
	return uses
}

// sync updates the volumes of a new sandbox, which is in the table, from their buckets. A volume to which
// another sandbox can write is not changed.
func (vs *volumes) sync(ctx context.Context, s *sandbox) error {
	for _, m := range s.Record().Sandbox.Volumes {
		err := vs.content.Sync(ctx, s.Owner(), m.Name, func() error {
			if other := vs.table.writer(s.Owner(), m.Name); other != nil && other != s {
				return hutch.Errorf(hutch.Conflict, "the sandbox %q writes to the volume %q", other.ID(), m.Name)
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// fill copies the files of a sandbox's volumes into the sandbox, which no caller uses yet.
func (vs *volumes) fill(ctx context.Context, v hutch.Sandbox, agent *wire.Client) error {
	ctx, cancel := context.WithTimeout(ctx, packVolumeTime)
	defer cancel()
	for _, m := range v.Volumes {
		if err := mount.Fill(ctx, vs.content, v.Owner, m, agent); err != nil {
			return err
		}
	}
	return nil
}

// SaveVolumes saves the volumes that a sandbox can write to, and returns their names.
func (e *Engine) SaveVolumes(ctx context.Context, id string) ([]string, error) {
	s, agent, err := e.use(ctx, id)
	if err != nil {
		return nil, err
	}
	defer s.EndUse()
	var names []string
	for _, m := range s.Record().Sandbox.Volumes {
		if !m.ReadOnly {
			names = append(names, m.Name)
		}
	}
	return names, e.volumes.save(ctx, s, agent)
}

// save saves the volumes that a running sandbox can write to.
func (vs *volumes) save(ctx context.Context, s *sandbox, agent *wire.Client) error {
	ctx, cancel := context.WithTimeout(ctx, packVolumeTime)
	defer cancel()
	v := s.Record().Sandbox
	var errs []error
	for _, m := range v.Volumes {
		if m.ReadOnly {
			continue
		}
		err := mount.Save(ctx, vs.content, v.Owner, m, agent)
		switch {
		case err == nil:
			continue
		case ctx.Err() == nil:
			vs.log.Warn("save a volume", "sandbox", s.ID(), "volume", m.Name, "err", err)
		}
		errs = append(errs, hutch.Errorf(hutch.KindOf(err), "the volume %q was not saved: %s. The sandbox %q still has all files in %s, and they can be copied out of it", m.Name, hutch.AsError(err).Message, s.ID(), m.Path).Because(err))
	}
	if len(errs) == 0 && s.Record().VolumesUnsaved {
		errs = append(errs, s.Update(ctx, func(r *store.Record) { r.VolumesUnsaved = false }))
	}
	return errors.Join(errs...)
}

// noteUnsaved records that a sandbox is about to be stopped without a save of its volumes.
func (vs *volumes) noteUnsaved(s *sandbox) error {
	if !s.writes() {
		return nil
	}
	return s.Update(vs.ctx, func(r *store.Record) { r.VolumesUnsaved = true })
}

// lastSave saves the volumes of a sandbox that is about to be destroyed. The caller holds the lifecycle lock.
func (vs *volumes) lastSave(ctx context.Context, s *sandbox) error {
	rec := s.Record()
	asleep := rec.Sandbox.Status.Sleeps() && rec.VolumesUnsaved
	if !s.writes() || s.Gone() || !s.Running() && !asleep {
		return nil
	}
	if err := vs.wake(ctx, s); err != nil {
		return err
	}
	agent := s.BeginUse()
	if agent == nil {
		return nil
	}
	defer s.EndUse()
	return vs.save(ctx, s, agent)
}

// lastSaveUnforced does the same as lastSave, but gives up when another caller destroys the sandbox with force.
func (vs *volumes) lastSaveUnforced(ctx context.Context, s *sandbox) error {
	ctx, stop := untilEnd(ctx, s, errEnding)
	defer stop()
	return vs.lastSave(ctx, s)
}

var errEnding = hutch.Errorf(hutch.Conflict, "its lifetime is over, or another call destroys it with force")

// lastSaveByForce does the same as lastSave, for a sandbox that is destroyed even if the save fails. It waits only for
// a short time, and not at all for an agent that does not answer.
func (vs *volumes) lastSaveByForce(ctx context.Context, s *sandbox) error {
	if !s.writes() {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, lastSaveTime)
	defer cancel()
	if agent := s.BeginUse(); agent != nil {
		defer s.EndUse()
		patience := lastAnswerTime
		if s.Sandbox().Health == hutch.Unhealthy { // the agent did not answer the last check, but perhaps it was only slow
			patience = time.Second
		}
		asking, stop := context.WithTimeout(ctx, patience)
		defer stop()
		if _, err := agent.Ping(asking); err != nil {
			return err
		}
	}
	return vs.lastSave(ctx, s)
}

// writes reports whether a sandbox can write to a volume.
func (s *sandbox) writes() bool {
	for _, m := range s.Record().Sandbox.Volumes {
		if !m.ReadOnly {
			return true
		}
	}
	return false
}

// keepSaved saves the volumes of running sandboxes at intervals, until the engine closes. Sandboxes of one owner
// wait for each other. Owners do not wait for each other, because a sandbox can make its save slow.
func (vs *volumes) keepSaved() {
	var busy sync.Map // owners whose sandboxes are being saved
	every(vs.ctx, vs.every, func() {
		for owner, list := range vs.table.byOwner() {
			if _, is := busy.LoadOrStore(owner, true); is {
				continue
			}
			vs.background(func() {
				defer busy.Delete(owner)
				for _, s := range list {
					vs.saveInPassing(s)
				}
			})
		}
	})
}

// saveInPassing saves the volumes of a sandbox if a save is due. It does not count as a use of the sandbox. When a
// caller wants the lifecycle lock, it gives up, except after several saves that were given up in a row.
func (vs *volumes) saveInPassing(s *sandbox) {
	if !s.writes() || time.Now().Before(s.nextSave) || s.Lock(vs.ctx) != nil {
		return
	}
	defer s.Unlock()
	ctx, cancel := context.WithCancel(vs.ctx)
	defer cancel()
	_, agent, _ := s.BeginSleep(cancel) // a destroy cancels this save, as it cancels a sleep
	if agent == nil || !s.Running() || s.Gone() {
		return
	}
	if s.interruptedSaves < mostGiveWay {
		s.GiveWay(cancel)
		defer s.GiveWay(nil)
	}
	began := time.Now()
	vs.save(ctx, s, agent) // the log and the record of the volume have the error
	if s.interruptedSaves++; ctx.Err() == nil {
		s.interruptedSaves, s.nextSave = 0, time.Now().Add(saveShare*time.Since(began))
	}
}
