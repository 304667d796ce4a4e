package fleet

import (
	"context"
	"errors"
	"slices"

	"hutch"
	"hutch/internal/caller"
)

// bringNamed fetches the snapshot with an id or a name, if its files are not here, and by the directory it is on this
// node or on no live node. If name is the name of an image, nothing is fetched.
func (r *resident) bringNamed(ctx context.Context, name string) error {
	if r.f.carrier == nil || name == "" || hutch.CheckTemplateName(name) != nil {
		return nil
	}
	list, err := r.here.Snapshots(ctx)
	if err != nil {
		return err
	}
	list = slices.DeleteFunc(list, func(s hutch.Snapshot) bool { return !s.IsCalled(name) })
	if slices.ContainsFunc(list, func(s hutch.Snapshot) bool { return isOwn(ctx, s) }) {
		return nil
	}
	rows, err := r.f.dir.snapshotsInBucket(ctx, ownerIn(ctx))
	if err != nil {
		return err
	}
	i := indexSnapshot(ctx, rows, name)
	if i < 0 || len(list) > 0 && !isOwn(ctx, rows[i].Record) {
		return nil
	}
	return r.f.bringHere(ctx, rows[i])
}

// bringHere makes this node fetch a snapshot, unless another live node has it.
func (f *Fleet) bringHere(ctx context.Context, s snapshotRow) error {
	me := f.node.info.ID
	if s.Node != me {
		if s.Alive {
			return nil
		}
		if err := f.dir.claimSnapshot(ctx, s, me, false); err != nil {
			if errors.Is(err, errMoved) {
				return errBusySnapshot(s.Record.ID)
			}
			return err
		}
	}
	return f.carrier.bringSnapshot(ctx, s)
}

func errBusySnapshot(id string) error {
	return hutch.Errorf(hutch.Unavailable, "another node fetches or deletes the snapshot %q just now: try again in a moment", id)
}

// errNameTaken returns the error for a name that another snapshot already has; where says where that snapshot is.
func errNameTaken(name, where string) error {
	return hutch.Errorf(hutch.Conflict, "there is a snapshot or template %q already, %s: choose another name, replace that one, or delete it first", name, where).Naming(hutch.AboutField, "name")
}

// ownerIn returns the owner of a call; nil if the server itself calls.
func ownerIn(ctx context.Context) *string {
	if o, ok := caller.OwnerOf(ctx); ok {
		return &o.ID
	}
	return nil
}

// isOwn reports whether a snapshot belongs to the caller, and is not shared by another owner. The server owns all.
func isOwn(ctx context.Context, s hutch.Snapshot) bool {
	owner := ownerIn(ctx)
	return owner == nil || s.Owner == *owner
}

// checkElsewhere refuses a new snapshot if its name is taken by a snapshot of the owner that no live node has, or if
// such snapshots reach the limits of a node.
func (r *resident) checkElsewhere(ctx context.Context, name string) error {
	if r.f.carrier == nil {
		return nil
	}
	rows, err := r.f.dir.snapshotsElsewhere(ctx, nameIn(ctx, "").Owner)
	if err != nil {
		return err
	}
	var size int64
	for _, s := range rows {
		if size += s.Record.Size; s.Record.HasName(name) {
			return errNameTaken(name, inBucket)
		}
	}
	return r.f.carrier.Engine.CheckSnapshotsElsewhere(len(rows), size)
}

// Snapshot implements hutch.Service: it also counts the owner's snapshots that are on no node.
func (r *resident) Snapshot(ctx context.Context, sandbox string, req hutch.SnapshotRequest) (hutch.Snapshot, error) {
	if err := r.checkElsewhere(ctx, req.Name); err != nil {
		return hutch.Snapshot{}, err
	}
	return r.Service.Snapshot(ctx, sandbox, req)
}

// CreateTemplate implements hutch.Service.
func (r *resident) CreateTemplate(ctx context.Context, req hutch.TemplateRequest) (hutch.Snapshot, error) {
	if err := r.bringNamed(ctx, req.Snapshot); err != nil {
		return hutch.Snapshot{}, err
	}
	if req.Replace {
		if err := r.bringNamed(ctx, req.Name); err != nil {
			return hutch.Snapshot{}, err
		}
	}
	if err := r.checkElsewhere(ctx, req.Name); err != nil {
		return hutch.Snapshot{}, err
	}
	return r.Service.CreateTemplate(ctx, req)
}

// TagSnapshot implements hutch.Service.
func (r *resident) TagSnapshot(ctx context.Context, snapshot string, req hutch.SnapshotTag) (hutch.Snapshot, error) {
	if err := r.bringNamed(ctx, snapshot); err != nil {
		return hutch.Snapshot{}, err
	}
	v, err := r.Service.TagSnapshot(ctx, snapshot, req)
	if err == nil {
		err = r.syncSnapshots(ctx)
	}
	if err != nil || r.f.carrier == nil {
		return v, err
	}
	if _, here := r.f.carrier.snapshots.find(v.ID); !here { // only an old copy here has the name
		return hutch.Snapshot{}, hutch.Errorf(hutch.Unavailable, "the snapshot %q is moving between nodes: try again in a moment", v.ID)
	}
	return v, nil
}

// DiffSnapshot implements hutch.Service.
func (r *resident) DiffSnapshot(ctx context.Context, snapshot string, req hutch.SnapshotDiffRequest) (hutch.SnapshotDiff, error) {
	for _, name := range []string{snapshot, req.To} {
		if err := r.bringNamed(ctx, name); err != nil {
			return hutch.SnapshotDiff{}, err
		}
	}
	return r.Service.DiffSnapshot(ctx, snapshot, req)
}

// DeleteSnapshot implements hutch.Service.
func (r *resident) DeleteSnapshot(ctx context.Context, snapshot string) error {
	err := r.Service.DeleteSnapshot(ctx, snapshot)
	if err == nil {
		err = r.syncSnapshots(ctx)
	}
	return err
}

func (r *resident) syncSnapshots(ctx context.Context) error {
	if r.f.carrier == nil {
		return nil
	}
	return r.f.carrier.syncSnapshots(context.WithoutCancel(ctx))
}
