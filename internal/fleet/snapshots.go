package fleet

import (
	"context"
	"errors"
	"slices"

	"hutch"
	"hutch/internal/caller"
)

// snapshotOn is a snapshot with its node.
type snapshotOn struct {
	hutch.Snapshot
	node string       // the node that has it, or is about to fetch it; "" if no live node has it
	row  *snapshotRow // nil if the bucket does not have it
}

func (p snapshotOn) record() hutch.Snapshot { return p.Snapshot }

// away reports whether the snapshot is in the bucket and on no live node.
func (p snapshotOn) away() bool { return p.row != nil && p.node == "" }

// snapshots lists the caller's snapshots: those on all live nodes, beginning with this node, and those in the bucket.
func (f *Fleet) snapshots(ctx context.Context) ([]snapshotOn, error) {
	all, err := gather(ctx, f, hutch.Service.Snapshots, func(node string, list []hutch.Snapshot) (all []snapshotOn) {
		for _, s := range list {
			all = append(all, snapshotOn{Snapshot: s, node: node})
		}
		return all
	})
	if err != nil || f.carrier == nil {
		return all, err
	}
	rows, err := f.dir.snapshotsInBucket(ctx, ownerIn(ctx))
	if err != nil {
		return nil, err
	}
	stale, err := f.dir.allCopies(ctx)
	if err != nil {
		return nil, err
	}
	return withBucket(all, rows, stale), nil
}

// withBucket adds the snapshots in the bucket to those that nodes have listed. It leaves out old copies: a node's
// snapshot that by the directory is on another node, or that the node is to remove.
func withBucket(listed []snapshotOn, rows []snapshotRow, stale map[[2]string]bool) (all []snapshotOn) {
	byID := map[string]*snapshotRow{}
	for i, s := range rows {
		byID[s.Record.ID] = &rows[i]
	}
	seen := map[string]bool{}
	for _, s := range listed {
		s.row = byID[s.ID]
		if stale[[2]string{s.node, s.ID}] || s.row != nil && s.row.Node != s.node {
			continue
		}
		seen[s.ID] = true
		all = append(all, s)
	}
	for i, s := range rows {
		if seen[s.Record.ID] {
			continue
		}
		p := snapshotOn{Snapshot: s.Record, row: &rows[i]}
		if s.Alive {
			p.node = s.Node
		}
		all = append(all, p)
	}
	return all
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

// Complete returns the service with complete lists. Its list of snapshots also has those that are not in the bucket and
// whose nodes are away; these can be deleted. A list fails if a live node does not answer, because the list would be
// incomplete without it.
func (f *Fleet) Complete() hutch.Service { return complete{f} }

type complete struct{ *Fleet }

// Sandboxes implements hutch.Service.
func (c complete) Sandboxes(ctx context.Context, filter hutch.Filter) ([]hutch.Sandbox, error) {
	return c.Fleet.Sandboxes(context.WithValue(ctx, needsAll{}, true), filter)
}

// DeleteSnapshot implements hutch.Service.
func (c complete) DeleteSnapshot(ctx context.Context, snapshot string) error {
	return c.Fleet.DeleteSnapshot(context.WithValue(ctx, needsAll{}, true), snapshot)
}

// Snapshots implements hutch.Service.
func (c complete) Snapshots(ctx context.Context) ([]hutch.Snapshot, error) {
	list, err := c.Fleet.Snapshots(context.WithValue(ctx, needsAll{}, true))
	if err != nil || c.carrier == nil {
		return list, err
	}
	rows, err := c.dir.snapshotsLost(ctx, ownerIn(ctx))
	for _, s := range rows {
		list = append(list, s.Record)
	}
	return list, err
}

// Unreached returns an error if a node is away and its snapshots are not known here: in a fleet without a bucket, only
// the node itself knows them.
func (f *Fleet) Unreached() error {
	_, away := f.node.others()
	if f.carrier != nil || len(away) == 0 {
		return nil
	}
	return hutch.Errorf(hutch.Unavailable, "the node %s is away and can have snapshots of the owner, which are back when it is: delete the owner's data again then, or remove the node with `hutch node rm`", away[0].ID).With("node", away[0].ID)
}

// deleteTries is how often DeleteSnapshot tries to follow a snapshot that moves between nodes.
const deleteTries = 3

// DeleteSnapshot implements hutch.Service. A snapshot that no live node has is deleted in the directory and the bucket.
func (f *Fleet) DeleteSnapshot(ctx context.Context, snapshot string) error {
	for range deleteTries {
		all, err := f.snapshots(ctx)
		if err != nil {
			return err
		}
		i := indexSnapshot(ctx, all, snapshot)
		if i < 0 || !isOwn(ctx, all[i].Snapshot) {
			found, err := f.deleteLost(ctx, snapshot)
			if errors.Is(err, errMoved) {
				continue
			}
			if found || err != nil {
				return err
			}
		}
		if i < 0 {
			return f.resident.DeleteSnapshot(ctx, snapshot)
		}
		s := all[i]
		if s.away() {
			if err := f.deleteAway(ctx, *s.row, snapshot); !errors.Is(err, errMoved) {
				return err
			}
			continue
		}
		at, err := f.nodeOf(s.node)
		if err != nil {
			return err
		}
		if err := at.DeleteSnapshot(ctx, snapshot); err != nil || s.row == nil {
			return plain(err)
		}
		gone, err := f.isDeleted(ctx, s, snapshot)
		if err != nil || gone {
			return err
		}
	}
	return hutch.Errorf(hutch.Unavailable, "the snapshot %q is moving between nodes: try again in a moment", snapshot)
}

// deleteLost deletes a snapshot of the caller that is not in the bucket and whose node is away. The node removes the
// files when it is back.
func (f *Fleet) deleteLost(ctx context.Context, snapshot string) (found bool, err error) {
	if f.carrier == nil {
		return false, nil
	}
	rows, err := f.dir.snapshotsLost(ctx, ownerIn(ctx))
	if err != nil {
		return false, err
	}
	i := indexSnapshot(ctx, rows, snapshot)
	if i < 0 || !isOwn(ctx, rows[i].Record) {
		return false, nil
	}
	return true, f.deleteAway(ctx, rows[i], snapshot)
}

// isDeleted reports whether a snapshot is no longer in the directory under an id or name after its node has deleted it.
// If the node has not fetched it yet, isDeleted deletes the row, and the fetch then stops.
func (f *Fleet) isDeleted(ctx context.Context, s snapshotOn, snapshot string) (bool, error) {
	rows, err := f.dir.snapshotsInBucket(ctx, ownerIn(ctx))
	if err != nil {
		return false, err
	}
	i := slices.IndexFunc(rows, func(r snapshotRow) bool { return r.Record.ID == s.ID && r.Record.IsCalled(snapshot) })
	if i < 0 {
		return true, nil
	}
	if rows[i].Node != s.node {
		return false, nil
	}
	err = f.deleteAway(ctx, rows[i], snapshot)
	if errors.Is(err, errMoved) {
		return false, nil
	}
	return err == nil, err
}

// deleteAway deletes a snapshot whose node does not have its files.
func (f *Fleet) deleteAway(ctx context.Context, s snapshotRow, snapshot string) error {
	v := s.Record
	if owner, owned := caller.OwnerOf(ctx); owned && owner.ID != v.Owner {
		return hutch.Errorf(hutch.Denied, "the snapshot %q is shared with you: only its owner changes and deletes it", snapshot)
	}
	if snapshot != v.ID {
		names := slices.DeleteFunc(slices.Clone(v.Names), func(n string) bool { return n == hutch.TemplateName(snapshot) })
		if len(names) > 0 && s.Image == nil {
			return hutch.Errorf(hutch.Unavailable, "the snapshot %q, which has other names too, is on the node %s, which is away: try again when the node is back, or delete the whole snapshot by its id", v.ID, s.Node).With("node", s.Node)
		}
		if len(names) > 0 {
			v.Name, v.Names = names[0], names
			return f.dir.renameSnapshot(ctx, s, v)
		}
	}
	if err := f.dir.deleteSnapshot(ctx, s); err != nil {
		return err
	}
	if s.Image != nil {
		f.carrier.drop(s.Image.Key)
	}
	return nil
}

// TagSnapshot implements hutch.Service. A name can also be moved from a snapshot on another node.
func (f *Fleet) TagSnapshot(ctx context.Context, snapshot string, req hutch.SnapshotTag) (hutch.Snapshot, error) {
	all, i, err := f.broughtSnapshot(ctx, snapshot)
	if err != nil {
		return hutch.Snapshot{}, err
	}
	if i < 0 {
		if err := f.lostSnapshot(ctx, snapshot, true); err != nil {
			return hutch.Snapshot{}, err
		}
		return f.resident.TagSnapshot(ctx, snapshot, req)
	}
	at, err := f.nodeOf(all[i].node)
	if err != nil {
		return hutch.Snapshot{}, err
	}
	elsewhere := slices.DeleteFunc(slices.Clone(all), func(s snapshotOn) bool {
		return s.node == all[i].node || s.Owner != all[i].Owner || !s.HasName(req.Name)
	})
	if len(elsewhere) > 0 && !req.Replace {
		return hutch.Snapshot{}, errNameTaken(req.Name, elsewhere[0].where())
	}
	tagged, err := at.TagSnapshot(ctx, snapshot, req)
	for _, s := range elsewhere {
		if err != nil {
			break
		}
		if s.away() {
			if err = f.deleteAway(ctx, *s.row, req.Name); errors.Is(err, errMoved) {
				err = hutch.Errorf(hutch.Unavailable, "the snapshot %q, which had the name %q until now, is moving between nodes: try again in a moment", s.ID, req.Name)
			}
			continue
		}
		var old hutch.Service
		if old, err = f.nodeOf(s.node); err == nil {
			err = old.DeleteSnapshot(ctx, req.Name)
		}
	}
	return tagged, plain(err)
}

// inBucket says, in errors, where a snapshot is if no live node has it.
const inBucket = "in the fleet's bucket"

// where says where a snapshot is.
func (p snapshotOn) where() string {
	if p.away() {
		return inBucket
	}
	return "on the node " + p.node
}

// broughtSnapshot lists the caller's snapshots with the index of the snapshot that has the id or name snapshot, or -1.
// If no live node has that snapshot, this node fetches it first.
func (f *Fleet) broughtSnapshot(ctx context.Context, snapshot string) (all []snapshotOn, i int, err error) {
	all, err = f.snapshots(ctx)
	if err != nil {
		return nil, -1, err
	}
	i = indexSnapshot(ctx, all, snapshot)
	if i < 0 || !all[i].away() {
		return all, i, nil
	}
	if err := f.bringHere(ctx, *all[i].row); err != nil {
		return nil, -1, err
	}
	all[i].node = f.node.info.ID
	return all, i, nil
}

// DiffSnapshot implements hutch.Service. Both sides must be on the same node. Snapshots that are only in the bucket are
// fetched to this node.
func (f *Fleet) DiffSnapshot(ctx context.Context, snapshot string, req hutch.SnapshotDiffRequest) (hutch.SnapshotDiff, error) {
	if err := req.Check(); err != nil {
		return hutch.SnapshotDiff{}, err
	}
	all, i, err := f.broughtSnapshot(ctx, snapshot)
	if err != nil {
		return hutch.SnapshotDiff{}, err
	}
	if i < 0 {
		if err := f.lostSnapshot(ctx, snapshot, true); err != nil {
			return hutch.SnapshotDiff{}, err
		}
		return f.resident.DiffSnapshot(ctx, snapshot, req) // it reports the missing snapshot
	}
	if j := indexSnapshot(ctx, all, req.To); req.To != "" && j >= 0 && all[j].away() && all[i].node == f.node.info.ID {
		if err := f.bringHere(ctx, *all[j].row); err != nil {
			return hutch.SnapshotDiff{}, err
		}
		all[j].node = all[i].node
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
func (f *Fleet) refuseOtherNode(ctx context.Context, all []snapshotOn, i int, req hutch.SnapshotDiffRequest) error {
	node := all[i].node
	if req.To != "" {
		if j := indexSnapshot(ctx, all, req.To); j >= 0 && all[j].node != node {
			return hutch.Errorf(hutch.Conflict, "the snapshot %q is on the node %s and %q is %s, and only snapshots on one node can be compared: restore both, and compare their files", all[i].ID, node, req.To, all[j].where())
		}
		return nil
	}
	id := req.SandboxID
	if id == "" && all[i].Owner == nameIn(ctx, "").Owner {
		id = all[i].SandboxID
	}
	if id == "" {
		return nil // no error here: the node itself refuses such a request
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

// withSnapshot returns the node that has a snapshot, by id or name. If no node has the snapshot, or only the bucket has
// it, it returns this node.
func (f *Fleet) withSnapshot(ctx context.Context, snapshot string) (hutch.Service, error) {
	all, i, err := f.broughtSnapshot(ctx, snapshot)
	if err != nil {
		return nil, err
	}
	if i >= 0 {
		return f.nodeOf(all[i].node)
	}
	return f.resident, nil
}

// indexSnapshot finds a snapshot by id or name, as the engine does: a snapshot of the caller comes before a shared one,
// whatever nodes they are on.
func indexSnapshot[S interface{ record() hutch.Snapshot }](ctx context.Context, list []S, snapshot string) int {
	found := -1
	for i, s := range list {
		if !s.record().IsCalled(snapshot) {
			continue
		}
		if isOwn(ctx, s.record()) {
			return i
		}
		if found < 0 {
			found = i
		}
	}
	return found
}
