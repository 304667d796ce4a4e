package engine

import (
	"context"
	"errors"
	"io"

	"hutch"
	"hutch/internal/caller"
	"hutch/internal/snapshots"
	"hutch/internal/travel"
)

// A snapshot consists of files that do not change, so it can be stored in a bucket and moved to another machine:
// SendSnapshot reads it, ReceiveSnapshot adds it, and DepartSnapshot removes it. Package fleet makes sure that only one
// machine has it at a time.

// SendSnapshot calls do with the requirements of a snapshot, and with a function that writes it. The error for a
// snapshot that cannot leave this machine is Unsupported.
func (m mover) SendSnapshot(ctx context.Context, id string, do func(ctx context.Context, img travel.Image, send func(io.Writer) error) error) error {
	snap, err := m.life.snaps.ByID(id)
	if err != nil {
		return err
	}
	needs, err := m.needsOfSnapshot(snap)
	if err != nil {
		return err
	}
	if err := snap.Verify(); err != nil {
		return err
	}
	return do(ctx, travel.Image{Needs: needs}, snap.Send)
}

// needsOfSnapshot returns the requirements of a snapshot on a machine.
func (m mover) needsOfSnapshot(snap *snapshots.Snapshot) (travel.Needs, error) {
	if t := snap.Snapshot.Template; t != nil && len(t.Volumes) > 0 {
		return travel.Needs{}, hutch.Errorf(hutch.Unsupported, "it has volumes, which are on this node")
	}
	memory := snap.Snapshot.Memory
	needs, err := m.life.here.needs(snap.Record, memory, memory)
	needs.Build = snap.Build
	return needs, err
}

// ReceiveSnapshot adds a snapshot of another machine to this one, with those names in v that are free here. read passes
// on the data that SendSnapshot wrote. Then ReceiveSnapshot calls commit. After any error, also of commit, nothing is
// left here.
func (m mover) ReceiveSnapshot(ctx context.Context, v hutch.Snapshot, read func(to func(io.Reader) error) error, commit func(context.Context) error) error {
	if m.life.snaps.Has(v.ID) {
		return commit(ctx)
	}
	// This comes first, because an image that was built on another machine cannot be pulled, and the snapshot is
	// useless without it.
	err := m.life.here.present(caller.WithOwner(ctx, caller.Owner{ID: v.Owner}), hutch.Sandbox{Image: v.Image, Runtime: v.Runtime, Limits: v.Limits, Owner: v.Owner})
	if err != nil {
		return err
	}
	var snap *snapshots.Snapshot
	err = read(func(r io.Reader) (err error) {
		snap, err = m.life.snaps.Receive(v.ID, v.Owner, r)
		return err
	})
	if err == nil && snap.Snapshot.Memory {
		err = snap.Change(func() error { return m.life.here.relocate(ctx, snap.Record, snap.Memory()) })
	}
	if err == nil {
		err = commit(context.WithoutCancel(ctx))
	}
	if err == nil {
		err = m.life.snaps.Add(snap, v.Names)
	}
	if err != nil {
		if snap != nil {
			err = m.life.snaps.Discard(snap, err)
		}
		return err
	}
	m.life.log.Info("a snapshot came from another node", "snapshot", v.ID, "size", snap.Snapshot.Size)
	return nil
}

// DepartSnapshot removes a snapshot from this machine, after leave has recorded that it is elsewhere. It returns
// Conflict while a sandbox is being made from the snapshot. It returns no error if this machine does not have the
// snapshot.
func (m mover) DepartSnapshot(ctx context.Context, id string, leave func(context.Context) error) error {
	snap, err := m.life.snaps.ByID(id)
	if errors.Is(err, hutch.NotFound) {
		return leave(context.WithoutCancel(ctx))
	}
	if err != nil {
		return err
	}
	unused, err := snap.Unused(func() error {
		if err := leave(context.WithoutCancel(ctx)); err != nil {
			return err
		}
		return m.captures.dropSnapshot(snap)
	})
	if err == nil && !unused {
		err = hutch.Errorf(hutch.Conflict, "a sandbox is being made of it")
	}
	return err
}

// CheckSnapshotsElsewhere refuses a new snapshot if its owner has too many snapshots that are on no machine. n is their
// number and size their total size in bytes.
func (m mover) CheckSnapshotsElsewhere(n int, size int64) error {
	return snapshots.CheckElsewhere(n, size)
}
