package engine

import (
	"context"
	"errors"
	"io"
	"path/filepath"
	"time"

	"hutch"
	"hutch/internal/caller"
	"hutch/internal/driver"
	"hutch/internal/saved"
	"hutch/internal/snapshots"
	"hutch/internal/wire"
)

// captures are the verbs of snapshots: they make, name and delete them.
type captures struct{ life *lifecycle }

// openSnapshots opens the catalog of snapshots.
func (e *lifecycle) openSnapshots() (err error) {
	e.snaps, err = snapshots.Open(filepath.Join(e.opt.Dir, "snapshots"), e.log)
	e.table.snaps = e.snaps
	e.instances.UseSnapshots(e.snaps)
	return err
}

// viewer returns the owner and the rights with which ctx sees snapshots.
func viewer(ctx context.Context) snapshots.Viewer {
	owner, owned := caller.OwnerOf(ctx)
	return snapshots.Viewer{Owner: owner.ID, Server: !owned}
}

// Snapshot implements hutch.Snapshots.
func (c captures) Snapshot(ctx context.Context, id string, req hutch.SnapshotRequest) (hutch.Snapshot, error) {
	if err := req.Check(); err != nil {
		return hutch.Snapshot{}, err
	}
	s, err := c.life.find(ctx, id)
	if err != nil {
		return hutch.Snapshot{}, err
	}
	return c.keepSnapshot(ctx, id, draftSnapshot(s, req), !req.FilesOnly, "")
}

// keepSnapshot makes a snapshot of a sandbox and puts it into the catalog. The new snapshot replaces the snapshot with
// the id over, unless over is empty.
func (c captures) keepSnapshot(ctx context.Context, id string, v hutch.Snapshot, memory bool, over string) (hutch.Snapshot, error) {
	release, err := c.life.snaps.Reserve(v, over)
	if err != nil {
		return hutch.Snapshot{}, err
	}
	defer release()
	snap, err := c.capture(ctx, id, v, parts{files: true, memory: memory})
	if err != nil {
		return hutch.Snapshot{}, err
	}
	replaced, err := c.life.snaps.Keep(snap)
	if err != nil {
		return hutch.Snapshot{}, c.life.snaps.Discard(snap, err)
	}
	c.dropReplaced(replaced)
	c.life.log.Info("snapshot", "sandbox", id, "snapshot", v.ID, "size", snap.Snapshot.Size, "stood", snap.Snapshot.Stood)
	return c.life.snaps.Record(snap), nil
}

// dropReplaced deletes a snapshot whose last name has moved to another snapshot. For nil it does nothing.
func (c captures) dropReplaced(old *snapshots.Snapshot) {
	if old == nil {
		return
	}
	if err := c.dropSnapshot(old); err != nil {
		c.life.log.Error("delete a snapshot that was replaced", "snapshot", old.Snapshot.ID, "err", err)
	}
}

func draftSnapshot(s *sandbox, req hutch.SnapshotRequest) hutch.Snapshot {
	sb := s.Record().Sandbox
	v := hutch.Snapshot{
		ID: hutch.NewID("snap"), Name: req.Name, SandboxID: s.ID(), Owner: s.Owner(), Shared: req.Shared, CreatedAt: time.Now().UTC(),
		Image: sb.Image, Runtime: sb.Runtime, Limits: sb.Limits,
	}
	if req.TTL > 0 {
		end := v.CreatedAt.Add(req.TTL.Duration())
		v.ExpiresAt = &end
	}
	return v
}

// parts selects what a snapshot contains. It gets memory only if the runtime can save memory.
type parts struct{ files, memory bool }

// capture writes a snapshot to a folder that has no name yet.
func (c captures) capture(ctx context.Context, id string, v hutch.Snapshot, what parts) (*snapshots.Snapshot, error) {
	snap, err := c.life.snaps.Begin(v)
	if err == nil {
		err = c.captureFiles(ctx, id, snap, what)
	}
	if err == nil && what.memory {
		err = c.captureMemory(ctx, id, snap)
	}
	if err != nil {
		return nil, c.life.snaps.Discard(snap, err)
	}
	return snap, nil
}

// captureFiles saves the files and the record of the sandbox.
func (c captures) captureFiles(ctx context.Context, id string, snap *snapshots.Snapshot, what parts) error {
	s, agent, err := c.life.use(ctx, id)
	if err != nil {
		return err
	}
	defer s.EndUse()
	snap.Record = s.Record()
	_, saves := driver.As[driver.Saver](s.Instance())
	snap.Record.Handle, snap.Record.Listing = nil, nil
	snap.Record.Sandbox.Network.Headers, snap.Record.HiddenNetwork = nil, nil // a snapshot outlives its sandbox, so it keeps no hidden values
	if what.memory && saves && !what.files {
		return nil
	}
	snap.Unpacked, err = saved.WriteArchive(snap.Archive(), saved.Most(snap.Record.Sandbox.Limits), what.files, func(w io.Writer) error { return saved.Pack(ctx, agent, snap.Record.Sandbox.Image, w) })
	return err
}

// captureMemory saves the memory of the sandbox, with everything that runs in it, if the runtime can do that.
func (c captures) captureMemory(ctx context.Context, id string, snap *snapshots.Snapshot) error {
	d, err := c.life.instances.Driver(snap.Snapshot.Runtime)
	if err != nil {
		return err
	}
	r, ok := driver.As[driver.Restorer](d)
	if !ok {
		return nil
	}
	snap.Snapshot.Memory = true
	return c.life.quiesce(ctx, id, func(s *sandbox, inst driver.Instance, agent *wire.Client) error {
		defer c.life.attach(s, inst, agent)
		began := time.Now()
		saver, ok := driver.As[driver.Saver](inst)
		if !ok {
			return hutch.Errorf(hutch.Internal, "the runtime %s restores memory, and cannot save it", snap.Snapshot.Runtime)
		}
		err := copyMemory(ctx, saver, agent, snap.Memory())
		snap.Snapshot.Stood = hutch.InSeconds(time.Since(began))
		if err == nil {
			snap.Build, err = r.BuildOf(snap.Memory())
		}
		return err
	})
}

// Snapshots implements hutch.Snapshots.
func (c captures) Snapshots(ctx context.Context) ([]hutch.Snapshot, error) {
	list := []hutch.Snapshot{}
	for _, s := range c.life.snaps.List(viewer(ctx)) {
		list = append(list, c.life.snaps.Record(s))
	}
	return list, nil
}

// TagSnapshot implements hutch.Snapshots.
func (c captures) TagSnapshot(ctx context.Context, id string, req hutch.SnapshotTag) (hutch.Snapshot, error) {
	if err := req.Check(); err != nil {
		return hutch.Snapshot{}, err
	}
	snap, err := c.ownSnapshot(ctx, id)
	if err != nil {
		return hutch.Snapshot{}, err
	}
	lost, err := c.life.snaps.Tag(snap, hutch.TemplateName(req.Name), req.Replace)
	if err != nil {
		return hutch.Snapshot{}, err
	}
	c.dropReplaced(lost)
	return c.life.snaps.Record(snap), nil
}

// ownSnapshot returns a snapshot, if the caller can change it.
func (c captures) ownSnapshot(ctx context.Context, id string) (*snapshots.Snapshot, error) {
	snap, err := c.life.snaps.Find(viewer(ctx), id)
	if err != nil {
		return nil, err
	}
	if owner, owned := caller.OwnerOf(ctx); owned && owner.ID != snap.Snapshot.Owner {
		return nil, hutch.Errorf(hutch.Denied, "the snapshot %q is shared with you: only its owner changes and deletes it", id)
	}
	return snap, nil
}

// DeleteSnapshot implements hutch.Snapshots.
func (c captures) DeleteSnapshot(ctx context.Context, id string) error {
	snap, err := c.ownSnapshot(ctx, id)
	switch {
	case errors.Is(err, hutch.NotFound):
		return nil
	case err != nil:
		return err
	case snap.Snapshot.ID == id:
		return c.dropSnapshot(snap)
	}
	if last, err := c.life.snaps.Untag(snap, id); err != nil || !last {
		return err
	}
	return c.dropSnapshot(snap)
}

// dropSnapshot deletes a snapshot, and the copies of it that wait in the pool.
func (c captures) dropSnapshot(snap *snapshots.Snapshot) error {
	c.life.snaps.Forget(snap)
	c.life.instances.Withdraw(snap.Snapshot.ID)
	return c.life.snaps.Remove(snap)
}

// expireSnapshots deletes the snapshots that have expired.
func (c captures) expireSnapshots() {
	for _, s := range c.life.snaps.Expired() {
		if err := c.dropSnapshot(s); err != nil {
			c.life.log.Error("delete an expired snapshot", "snapshot", s.Snapshot.ID, "err", err)
		}
	}
}
