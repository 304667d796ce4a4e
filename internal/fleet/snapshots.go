package fleet

import (
	"context"
	"slices"

	"hutch"
)

// placed is a snapshot and the node that has it.
type placed struct {
	hutch.Snapshot
	node string
}

// snapshots lists the caller's snapshots on all nodes, those of this node first.
func (f *Fleet) snapshots(ctx context.Context) ([]placed, error) {
	return gather(ctx, f, hutch.Service.Snapshots, func(node string, list []hutch.Snapshot) (all []placed) {
		for _, s := range list {
			all = append(all, placed{s, node})
		}
		return all
	})
}

// Snapshots implements hutch.Service.
func (f *Fleet) Snapshots(ctx context.Context) ([]hutch.Snapshot, error) {
	all, err := f.snapshots(ctx)
	list := make([]hutch.Snapshot, len(all))
	for i, s := range all {
		list[i] = s.Snapshot
	}
	slices.SortStableFunc(list, func(a, b hutch.Snapshot) int { return a.CreatedAt.Compare(b.CreatedAt) })
	return list, err
}

// DeleteSnapshot implements hutch.Service.
func (f *Fleet) DeleteSnapshot(ctx context.Context, snapshot string) error {
	at, err := f.withSnapshot(ctx, snapshot)
	if err != nil {
		return err
	}
	return plain(at.DeleteSnapshot(ctx, snapshot))
}

// TagSnapshot implements hutch.Service. A name that a snapshot of another node has moves, too.
func (f *Fleet) TagSnapshot(ctx context.Context, snapshot string, req hutch.SnapshotTag) (hutch.Snapshot, error) {
	all, err := f.snapshots(ctx)
	if err != nil {
		return hutch.Snapshot{}, err
	}
	i := indexSnapshot(all, snapshot)
	if i < 0 {
		return f.resident.TagSnapshot(ctx, snapshot, req)
	}
	at, err := f.nodeOf(all[i].node)
	if err != nil {
		return hutch.Snapshot{}, err
	}
	elsewhere := slices.DeleteFunc(slices.Clone(all), func(s placed) bool {
		return s.node == all[i].node || s.Owner != all[i].Owner || !s.HasName(req.Name)
	})
	if len(elsewhere) > 0 && !req.Replace {
		return hutch.Snapshot{}, hutch.Errorf(hutch.Conflict, "there is a snapshot or template %q already, on the node %s: choose another name, replace that one, or delete it first", req.Name, elsewhere[0].node).Naming(hutch.AboutField, "name")
	}
	tagged, err := at.TagSnapshot(ctx, snapshot, req)
	for _, s := range elsewhere {
		var old hutch.Service
		if err == nil {
			old, err = f.nodeOf(s.node)
		}
		if err == nil {
			err = old.DeleteSnapshot(ctx, req.Name)
		}
	}
	return tagged, plain(err)
}

// DiffSnapshot implements hutch.Service. Both sides have to be on one node, because the files of a snapshot do not leave the node that has it.
func (f *Fleet) DiffSnapshot(ctx context.Context, snapshot string, req hutch.SnapshotDiffRequest) (hutch.SnapshotDiff, error) {
	if err := req.Check(); err != nil {
		return hutch.SnapshotDiff{}, err
	}
	all, err := f.snapshots(ctx)
	if err != nil {
		return hutch.SnapshotDiff{}, err
	}
	i := indexSnapshot(all, snapshot)
	if i < 0 {
		return f.resident.DiffSnapshot(ctx, snapshot, req) // it reports what is missing
	}
	if err := f.refuseOtherNode(ctx, all, i, req); err != nil {
		return hutch.SnapshotDiff{}, err
	}
	at, err := f.nodeOf(all[i].node)
	if err != nil {
		return hutch.SnapshotDiff{}, err
	}
	d, err := at.DiffSnapshot(ctx, snapshot, req)
	return d, plain(err)
}

// refuseOtherNode refuses to compare a snapshot with a sandbox or snapshot that is on another node, or only in the bucket.
func (f *Fleet) refuseOtherNode(ctx context.Context, all []placed, i int, req hutch.SnapshotDiffRequest) error {
	node := all[i].node
	if req.To != "" {
		if j := indexSnapshot(all, req.To); j >= 0 && all[j].node != node {
			return hutch.Errorf(hutch.Conflict, "the snapshot %q is on the node %s and %q on the node %s, and only snapshots on one node can be compared: restore both, and compare their files", all[i].ID, node, req.To, all[j].node)
		}
		return nil
	}
	id := req.SandboxID
	if id == "" && all[i].Owner == nameIn(ctx, "").Owner {
		id = all[i].SandboxID
	}
	if id == "" {
		return nil // the node refuses it
	}
	name := nameIn(ctx, id)
	if node == f.node.info.ID && f.resident.has(name) {
		return nil
	}
	h, ok, err := f.dir.holder(ctx, name)
	if err != nil || !ok {
		return err
	}
	if h.Node != node || h.Away {
		return hutch.Errorf(hutch.Conflict, "the snapshot %q is on the node %s and the sandbox %q is not, and only what is on one node can be compared: make a snapshot of the sandbox, restore both, and compare their files", all[i].ID, node, id).Naming(hutch.AboutSandbox, id)
	}
	return nil
}

// withSnapshot returns the node that has a snapshot, by id or name; this node if none has it.
func (f *Fleet) withSnapshot(ctx context.Context, snapshot string) (hutch.Service, error) {
	all, err := f.snapshots(ctx)
	if err != nil {
		return nil, err
	}
	if i := indexSnapshot(all, snapshot); i >= 0 {
		return f.nodeOf(all[i].node)
	}
	return f.resident, nil
}

func indexSnapshot(all []placed, snapshot string) int {
	return slices.IndexFunc(all, func(s placed) bool { return s.IsCalled(snapshot) })
}
