package engine

import (
	"archive/tar"
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"hutch"
	"hutch/internal/store"
	"hutch/internal/wire"
)

// A volume is put into a new sandbox as files, and saved from there: see package volume. Only the record of a sandbox
// says that it writes to a volume, asleep or awake, so such a claim ends with the sandbox and survives whatever the
// sandbox does.
//
// A sleeping sandbox has nothing unsaved: it is saved before. A sandbox whose volume cannot be saved stays awake, and
// is destroyed only by force. If a sandbox had to be stopped without its agent, its record says that it is unsaved, and
// it is woken before it is destroyed.

// Volumes keeps the content of volumes.
type Volumes interface {
	// Find returns the record of an owner's volume.
	Find(owner, name string) (hutch.Volume, error)
	// Read calls read with the content of a volume, a tar archive.
	Read(owner, name string, read func(io.Reader) error) error
	// Save replaces the content of a volume by the archive that pack writes, completely or not at all.
	Save(ctx context.Context, owner, name string, pack func(io.Writer) error) error
	// Sync exchanges changes with the bucket of a volume, if it has one. An error of free leaves the content unchanged.
	Sync(ctx context.Context, owner, name string, free func() error) error
}

const (
	// saveShare limits how much of the time is spent on saves of a running sandbox: at most one part in this many.
	saveShare = 20
	// packVolumeTime bounds the transfer of a volume.
	packVolumeTime = 10 * time.Minute
	// lastSaveTime limits the save of a sandbox that is destroyed in any case.
	lastSaveTime = 2 * time.Minute
	// mostGiveWay is how many saves in a row end for other callers.
	mostGiveWay = 3
	// lastAnswerTime is how long the agent of such a sandbox may take to answer at all.
	lastAnswerTime = 5 * time.Second
)

// checkVolumes refuses volumes that a new sandbox of an owner cannot have.
func (e *lifecycle) checkVolumes(owner string, list []hutch.VolumeMount) error {
	if len(list) > 0 && e.opt.Volumes == nil {
		return hutch.Errorf(hutch.Unsupported, "this command has no volumes: start a server with `hutch serve`, and use `hutch create` and `hutch exec`").Naming(hutch.AboutField, "volumes")
	}
	for _, m := range list {
		if _, err := e.opt.Volumes.Find(owner, m.Name); err != nil {
			return err
		}
	}
	return nil
}

// claimLocked refuses a new sandbox that would write to a volume to which another one writes.
func (e *lifecycle) claimLocked(v hutch.Sandbox) error {
	for _, m := range v.Volumes {
		if m.ReadOnly {
			continue
		}
		if s := e.writerLocked(v.Owner, m.Name); s != nil {
			return hutch.Errorf(hutch.Conflict, "the sandbox %q writes to the volume %q, awake or asleep: destroy it first, or add :ro (readOnly) to read what it has saved", s.ID(), m.Name).Naming(hutch.AboutSandbox, s.ID())
		}
	}
	return nil
}

// writerLocked returns the sandbox that writes to an owner's volume; nil for none.
func (e *lifecycle) writerLocked(owner, volume string) *sandbox {
	for name, s := range e.sandboxes {
		if name.Owner == owner && s.writesTo(volume) {
			return s
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

// VolumeUses lists the sandboxes of an owner that have volumes, by the volume's name.
func (e *Engine) VolumeUses(owner string) map[string][]hutch.VolumeUse {
	e.mu.Lock()
	defer e.mu.Unlock()
	uses := map[string][]hutch.VolumeUse{}
	for _, s := range e.tableLocked() {
		if s.Owner() != owner {
			continue
		}
		for _, m := range s.Record().Sandbox.Volumes {
			uses[m.Name] = append(uses[m.Name], hutch.VolumeUse{SandboxID: s.ID(), Path: m.Path, ReadOnly: m.ReadOnly})
		}
	}
	return uses
}

// syncVolumes updates the volumes of a new sandbox, which is in the table, from their buckets. If another sandbox
// writes to a volume, its content is not changed.
func (e *lifecycle) syncVolumes(ctx context.Context, s *sandbox) error {
	for _, m := range s.Record().Sandbox.Volumes {
		err := e.opt.Volumes.Sync(ctx, s.Owner(), m.Name, func() error {
			e.mu.Lock()
			defer e.mu.Unlock()
			if other := e.writerLocked(s.Owner(), m.Name); other != nil && other != s {
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

// fillVolumes puts the files of its volumes into a sandbox that no caller uses yet.
func (e *lifecycle) fillVolumes(ctx context.Context, v hutch.Sandbox, agent *wire.Client) error {
	ctx, cancel := context.WithTimeout(ctx, packVolumeTime)
	defer cancel()
	for _, m := range v.Volumes {
		if err := e.fillVolume(ctx, v.Owner, m, agent); err != nil {
			return explainFill(m, err)
		}
	}
	return nil
}

// fillVolume puts the files of a volume into an empty folder. Without write permission, a program cannot change a
// read-only volume by mistake; changes it makes nevertheless are never saved.
func (e *lifecycle) fillVolume(ctx context.Context, owner string, m hutch.VolumeMount, agent *wire.Client) error {
	if err := agent.Mkdir(ctx, m.Path, true); err != nil {
		return err
	}
	info, err := agent.Stat(ctx, m.Path)
	if err == nil && info.Type != hutch.Directory { // then no save would find it
		err = hutch.Errorf(hutch.Conflict, "it is a link to another folder")
	}
	if err != nil {
		return err
	}
	empty := true
	err = agent.Files(ctx, hutch.ListRequest{Path: m.Path, Hidden: true, Limit: 1}, func(hutch.FileInfo) error {
		empty = false
		return nil
	})
	if err == nil && !empty || errors.Is(err, hutch.Exhausted) { // with more than one file, the list exceeds its limit
		err = hutch.Errorf(hutch.Conflict, "there are files already")
	}
	if err != nil {
		return err
	}
	err = e.opt.Volumes.Read(owner, m.Name, func(r io.Reader) error {
		to := hutch.UnpackRequest{Dir: m.Path, Format: hutch.Tar}
		if !m.ReadOnly {
			return agent.Unpack(ctx, to, r)
		}
		locked, stop := withoutWrites(r)
		defer stop()
		return agent.Unpack(ctx, to, locked)
	})
	if err == nil && m.ReadOnly {
		err = agent.Chmod(ctx, m.Path, hutch.FileMode(0o555))
	}
	return err
}

// explainFill describes the next step for a volume that could not be put into a sandbox.
func explainFill(m hutch.VolumeMount, err error) error {
	switch kind := hutch.KindOf(err); kind {
	case hutch.Denied, hutch.Conflict, hutch.NotFound:
		return hutch.Errorf(kind, "the volume %q cannot be at %s: %s. Choose an empty folder that the user of the sandbox can create, such as /workspace/%[1]s", m.Name, m.Path, hutch.AsError(err).Message).
			Naming(hutch.AboutField, "volumes").Because(err)
	case hutch.Exhausted:
		return hutch.Errorf(kind, "the files of the volume %q do not fit into the sandbox: %s. Choose a higher disk limit; on the runtime native also more memory", m.Name, hutch.AsError(err).Message).Because(err)
	}
	return err
}

// withoutWrites is the archive that r reads, without write permissions. stop ends the work on it.
func withoutWrites(r io.Reader) (locked io.Reader, stop func()) {
	out, in := io.Pipe()
	go func() { in.CloseWithError(lockEntries(r, in)) }()
	return out, func() { out.Close() }
}

func lockEntries(r io.Reader, w io.Writer) error {
	from, to := tar.NewReader(r), tar.NewWriter(w)
	for {
		h, err := from.Next()
		if errors.Is(err, io.EOF) {
			return to.Close()
		}
		if err != nil {
			return err
		}
		if h.Typeflag != tar.TypeSymlink {
			h.Mode &^= 0o222
		}
		if err := to.WriteHeader(h); err != nil {
			return err
		}
		if _, err := io.Copy(to, from); err != nil {
			return err
		}
	}
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
	return names, e.saveVolumes(ctx, s, agent)
}

// saveVolumes saves the volumes that a running sandbox can write to.
func (e *lifecycle) saveVolumes(ctx context.Context, s *sandbox, agent *wire.Client) error {
	ctx, cancel := context.WithTimeout(ctx, packVolumeTime)
	defer cancel()
	v := s.Record().Sandbox
	var errs []error
	for _, m := range v.Volumes {
		if m.ReadOnly {
			continue
		}
		err := e.saveVolume(ctx, v.Owner, m, agent)
		switch {
		case err == nil:
			continue
		case ctx.Err() == nil:
			e.log.Warn("save a volume", "sandbox", s.ID(), "volume", m.Name, "err", err)
		}
		errs = append(errs, hutch.Errorf(hutch.KindOf(err), "the volume %q was not saved: %s. The sandbox %q still has all files in %s, and they can be copied out of it", m.Name, hutch.AsError(err).Message, s.ID(), m.Path).Because(err))
	}
	if len(errs) == 0 && s.Record().VolumesUnsaved {
		errs = append(errs, s.Update(ctx, func(r *store.Record) { r.VolumesUnsaved = false }))
	}
	return errors.Join(errs...)
}

// noteUnsaved records that a sandbox is about to be stopped without a save of its volumes.
func (e *lifecycle) noteUnsaved(s *sandbox) error {
	if !s.writes() {
		return nil
	}
	return s.Update(e.ctx, func(r *store.Record) { r.VolumesUnsaved = true })
}

// packTries is how often a volume is packed in which files become shorter meanwhile.
const packTries = 3

func (e *lifecycle) saveVolume(ctx context.Context, owner string, m hutch.VolumeMount, agent *wire.Client) (err error) {
	for range packTries {
		err = e.opt.Volumes.Save(ctx, owner, m.Name, func(w io.Writer) error { return packVolume(ctx, agent, m, w) })
		if !errors.Is(err, hutch.Conflict) {
			break
		}
	}
	return err
}

func packVolume(ctx context.Context, agent *wire.Client, m hutch.VolumeMount, w io.Writer) error {
	info, err := agent.Stat(ctx, m.Path)
	if err != nil {
		return err
	}
	if info.Type != hutch.Directory {
		return hutch.Errorf(hutch.Conflict, "%s is no longer a folder: make it one again", m.Path)
	}
	return agent.Pack(ctx, hutch.PackRequest{Dir: m.Path, Format: hutch.Tar}, w)
}

// lastSave saves the volumes of a sandbox that is about to be destroyed. The caller holds the lifecycle lock.
func (e *lifecycle) lastSave(ctx context.Context, s *sandbox) error {
	rec := s.Record()
	asleep := rec.Sandbox.Status.Sleeps() && rec.VolumesUnsaved
	if !s.writes() || s.Gone() || !s.Running() && !asleep {
		return nil
	}
	if err := e.wake(ctx, s); err != nil {
		return err
	}
	agent := s.BeginUse()
	if agent == nil {
		return nil
	}
	defer s.EndUse()
	return e.saveVolumes(ctx, s, agent)
}

// lastSaveByForce is lastSave for a sandbox that is destroyed whatever becomes of the save: it does not wait long, and not for an
// agent that does not answer.
func (e *lifecycle) lastSaveByForce(ctx context.Context, s *sandbox) error {
	if !s.writes() {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, lastSaveTime)
	defer cancel()
	if agent := s.BeginUse(); agent != nil {
		defer s.EndUse()
		patience := lastAnswerTime
		if s.Sandbox().Health == hutch.Unhealthy { // when it was last asked: it can have been slow only then
			patience = time.Second
		}
		asking, stop := context.WithTimeout(ctx, patience)
		defer stop()
		if _, err := agent.Ping(asking); err != nil {
			return err
		}
	}
	return e.lastSave(ctx, s)
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

// keepVolumesSaved saves the volumes of running sandboxes at intervals, until the engine closes. Sandboxes of one owner
// wait for each other. Owners do not wait for each other, because a sandbox can make its save slow.
func (e *lifecycle) keepVolumesSaved() {
	tick := time.NewTicker(e.opt.SaveEvery)
	defer tick.Stop()
	var busy sync.Map // owners whose sandboxes are being saved
	for {
		select {
		case <-e.ctx.Done():
			return
		case <-tick.C:
		}
		for owner, list := range e.byOwner() {
			if _, is := busy.LoadOrStore(owner, true); is {
				continue
			}
			e.background(func() {
				defer busy.Delete(owner)
				for _, s := range list {
					e.saveInPassing(s)
				}
			})
		}
	}
}

// saveInPassing saves the volumes of a sandbox if that is due. It does not count as a use of the sandbox, and ends
// without success when a caller wants the lifecycle lock, except after several such ends.
func (e *lifecycle) saveInPassing(s *sandbox) {
	if !s.writes() || time.Now().Before(s.nextSave) || s.Lock(e.ctx) != nil {
		return
	}
	defer s.Unlock()
	ctx, cancel := context.WithCancel(e.ctx)
	defer cancel()
	_, agent, _ := s.BeginSleep(cancel) // a destroy ends it, as it cancels putting the sandbox to sleep
	if agent == nil || !s.Running() || s.Gone() {
		return
	}
	if s.interruptedSaves < mostGiveWay {
		s.GiveWay(cancel)
		defer s.GiveWay(nil)
	}
	began := time.Now()
	e.saveVolumes(ctx, s, agent) // the log and the record of the volume have the error
	if s.interruptedSaves++; ctx.Err() == nil {
		s.interruptedSaves, s.nextSave = 0, time.Now().Add(saveShare*time.Since(began))
	}
}
