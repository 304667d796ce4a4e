package engine

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"time"

	"hutch"
	"hutch/internal/driver"
	"hutch/internal/durable"
	"hutch/internal/wire"
)

// Bounds on the snapshots of one owner: how many, and bytes on disk from which
// on there are no more.
const (
	maxSnapshots = 100
	snapshotRoom = 20 << 30
)

// Snapshot implements hutch.Snapshots.
func (e *Engine) Snapshot(ctx context.Context, id string, req hutch.SnapshotRequest) (hutch.Snapshot, error) {
	s, err := e.find(ctx, id)
	if err != nil {
		return hutch.Snapshot{}, err
	}
	v, err := draftSnapshot(s, req)
	if err != nil {
		return hutch.Snapshot{}, err
	}
	if err := e.snaps.enter(v); err != nil {
		return hutch.Snapshot{}, err
	}
	defer e.snaps.leave(v.ID)
	snap, err := e.capture(ctx, id, v, parts{files: true, memory: !req.FilesOnly})
	if err != nil {
		return hutch.Snapshot{}, err
	}
	if err := e.keep(snap); err != nil {
		return hutch.Snapshot{}, e.uncaptured(snap.dir, err)
	}
	e.log.Info("snapshot", "sandbox", id, "snapshot", v.ID, "size", snap.Snapshot.Size, "stood", snap.Snapshot.Stood)
	return snap.Snapshot, nil
}

func draftSnapshot(s *sandbox, req hutch.SnapshotRequest) (hutch.Snapshot, error) {
	if req.Name != "" {
		if err := hutch.CheckID(req.Name); err != nil {
			return hutch.Snapshot{}, err
		}
	}
	if !(req.TTL >= 0 && req.TTL <= maxLifetime) {
		return hutch.Snapshot{}, hutch.Errorf(hutch.Invalid, "ttl is in seconds, not negative and at most %d", maxLifetime)
	}
	s.mu.Lock()
	sb := s.rec.Sandbox
	s.mu.Unlock()
	v := hutch.Snapshot{
		ID: hutch.NewID("snap"), Name: req.Name, SandboxID: s.id, Owner: s.owner, Shared: req.Shared, CreatedAt: time.Now().UTC(),
		Image: sb.Image, Runtime: sb.Runtime, Limits: sb.Limits,
	}
	if req.TTL > 0 {
		end := v.CreatedAt.Add(req.TTL.Duration())
		v.ExpiresAt = &end
	}
	return v, nil
}

// enter reserves the name of a snapshot, and its place among the owner's.
func (l *snapshots) enter(v hutch.Snapshot) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	n, size := 0, int64(0)
	others := slices.Clone(l.making)
	for _, s := range l.all {
		if !s.expired(time.Now()) {
			others = append(others, s.Snapshot)
		}
	}
	for _, o := range others {
		if o.Owner != v.Owner {
			continue
		}
		size += o.Size
		if n++; v.Name != "" && (o.Name == v.Name || o.ID == v.Name) {
			return hutch.Errorf(hutch.Conflict, "there is a snapshot %q already: choose another name, or delete it first", v.Name).With("field", "name")
		}
	}
	if n >= maxSnapshots {
		return hutch.Errorf(hutch.Exhausted, "the limit of %d snapshots is reached: delete some first", maxSnapshots).With("limit", "snapshots")
	}
	if size >= snapshotRoom {
		return hutch.Errorf(hutch.Exhausted, "the snapshots take %d bytes, and from %d on there are no more: delete some first", size, int64(snapshotRoom)).With("limit", "snapshots")
	}
	l.making = append(l.making, v)
	return nil
}

func (l *snapshots) leave(id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.making = slices.DeleteFunc(l.making, func(v hutch.Snapshot) bool { return v.ID == id })
}

// parts say what a snapshot is to have; memory where the runtime can.
type parts struct{ files, memory bool }

// capture writes a snapshot to a folder that has not its name yet.
func (e *Engine) capture(ctx context.Context, id string, v hutch.Snapshot, what parts) (*snapshot, error) {
	snap := &snapshot{dir: filepath.Join(e.snapshotsDir(), "."+v.ID)}
	snap.Version, snap.Snapshot = manifestVersion, v
	if err := os.MkdirAll(filepath.Join(snap.dir, snapMemory), 0o700); err != nil {
		return nil, err
	}
	err := e.captureFiles(ctx, id, snap, what)
	if err == nil && what.memory {
		err = e.captureMemory(ctx, id, snap)
	}
	if err != nil {
		return nil, e.uncaptured(snap.dir, err)
	}
	return snap, nil
}

// uncaptured removes what could not be written, and says whether the disk was
// full.
func (e *Engine) uncaptured(dir string, err error) error {
	err = durable.Explained(err, dir)
	return errors.Join(err, os.RemoveAll(dir))
}

// captureFiles keeps the files, and what is known of the sandbox.
func (e *Engine) captureFiles(ctx context.Context, id string, snap *snapshot, what parts) error {
	s, agent, err := e.use(ctx, id)
	if err != nil {
		return err
	}
	defer e.done(s)
	s.mu.Lock()
	snap.Record = s.rec
	_, saves := s.inst.(driver.Saver)
	s.mu.Unlock()
	snap.Record.Handle, snap.Record.Books = nil, nil
	if what.memory && saves && !what.files {
		return nil
	}
	snap.Unpacked, err = e.pack(ctx, s, agent, snap.files(), what.files)
	return err
}

// captureMemory keeps all that runs, where the runtime can.
func (e *Engine) captureMemory(ctx context.Context, id string, snap *snapshot) error {
	d, err := e.driver(snap.Snapshot.Runtime)
	if err != nil {
		return err
	}
	r, ok := d.(driver.Restorer)
	if !ok {
		return nil
	}
	snap.Build, snap.Snapshot.Memory = r.Build(), true
	return e.still(ctx, id, func(s *sandbox, inst driver.Instance, agent *wire.Client) error {
		defer e.reuse(s, inst, agent)
		began := time.Now()
		err := agent.Park(ctx)
		if err == nil {
			err = inst.(driver.Saver).Copy(ctx, filepath.Join(snap.dir, snapMemory))
		}
		snap.Snapshot.Stood = hutch.InSeconds(time.Since(began))
		return err
	})
}

// keep gives a snapshot its name, when all of it is on disk.
func (e *Engine) keep(snap *snapshot) error {
	if err := snap.seal(); err != nil {
		return err
	}
	named := filepath.Join(e.snapshotsDir(), snap.Snapshot.ID)
	if err := os.Rename(snap.dir, named); err != nil {
		return err
	}
	snap.dir = named
	if err := durable.Sync(e.snapshotsDir()); err != nil {
		return err
	}
	e.snaps.mu.Lock()
	defer e.snaps.mu.Unlock()
	e.snaps.all[snap.Snapshot.ID] = snap
	return nil
}

// Snapshots implements hutch.Snapshots.
func (e *Engine) Snapshots(ctx context.Context) ([]hutch.Snapshot, error) {
	e.snaps.mu.Lock()
	defer e.snaps.mu.Unlock()
	list := []hutch.Snapshot{}
	for _, s := range e.snaps.listLocked(ctx) {
		list = append(list, s.Snapshot)
	}
	return list, nil
}

// DeleteSnapshot implements hutch.Snapshots.
func (e *Engine) DeleteSnapshot(ctx context.Context, id string) error {
	snap, err := e.snaps.find(ctx, id)
	if errors.Is(err, hutch.NotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	if owner, owned := hutch.OwnerOf(ctx); owned && owner.ID != snap.Snapshot.Owner {
		return hutch.Errorf(hutch.Denied, "the snapshot %q is shared with you: only its owner deletes it", id)
	}
	return e.drop(snap)
}

// drop deletes a snapshot: its name first, and with it the places that wait to
// be given to somebody as its copies.
func (e *Engine) drop(snap *snapshot) error {
	e.snaps.mu.Lock()
	delete(e.snaps.all, snap.Snapshot.ID)
	e.snaps.mu.Unlock()
	e.pool.Withdraw(snap.Snapshot.ID)
	gone := filepath.Join(e.snapshotsDir(), "."+snap.Snapshot.ID)
	if err := os.Rename(snap.dir, gone); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return os.RemoveAll(gone)
}

// expireSnapshots deletes the snapshots whose time has come.
func (e *Engine) expireSnapshots() {
	e.snaps.mu.Lock()
	var old []*snapshot
	for _, s := range e.snaps.all {
		if s.expired(time.Now()) {
			old = append(old, s)
		}
	}
	e.snaps.mu.Unlock()
	for _, s := range old {
		if err := e.drop(s); err != nil {
			e.log.Error("delete an expired snapshot", "snapshot", s.Snapshot.ID, "err", err)
		}
	}
}
