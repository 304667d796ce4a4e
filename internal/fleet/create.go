package fleet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"hutch"
	"hutch/internal/caller"
)

// Create implements hutch.Service: it reserves the id and the capacity on a node in one transaction, and then calls
// that node.
func (f *Fleet) Create(ctx context.Context, req hutch.CreateRequest) (hutch.Sandbox, error) {
	if err := f.node.serving(); err != nil {
		return hutch.Sandbox{}, err
	}
	if req.NormalizeID {
		req.ID = hutch.NormalizeID(req.ID)
	}
	if err := req.Check(); err != nil {
		return hutch.Sandbox{}, err
	}
	if req.ID == "" {
		req.ID = hutch.NewID("sb")
	}
	name := nameIn(ctx, req.ID)
	if f.resident.has(name) {
		return f.resident.Create(ctx, req)
	}
	want, err := f.want(ctx, name, req)
	if err != nil || want.moves() { // an existing sandbox needs neither its snapshot nor its volumes here
		if sb, done, err := f.createWhereHeld(ctx, name, req); done {
			return sb, err
		}
	}
	if err == nil && want.moves() {
		want.Only, err = f.claimForCreate(ctx, want)
	}
	if err != nil {
		return hutch.Sandbox{}, err
	}
	if want.From != nil && req.Snapshot == "" && req.Template == "" { // the image in the request is the name of a template
		req.Image, req.Template = "", req.Image
	}
	for moved := false; ; {
		at, made, err := f.dir.place(ctx, want)
		if needsOtherNode(err) && !moved && want.From != nil && want.From.row != nil && want.Mounts == "" {
			moved = true
			if err = f.moveSnapshot(ctx, &want, err); err == nil {
				continue
			}
		}
		if err != nil {
			return hutch.Sandbox{}, err
		}
		if !made && f.carrier != nil { // perhaps only the bucket has the sandbox
			if sb, done, err := f.createWhereHeld(ctx, name, req); done {
				return sb, err
			}
			at = f.node.info.ID
		}
		if at == f.node.info.ID {
			return f.resident.Create(ctx, req)
		}
		sb, err := f.createAt(ctx, at, req)
		if err == nil {
			f.remember(name, at)
		}
		if made && notReached(err) {
			// The call did not reach the node, so the reservation is freed. The node's lease will show that the node is
			// away.
			if err := f.freeSoon(ctx, at, name); err != nil {
				return hutch.Sandbox{}, err
			}
			f.log.Warn("a node does not answer: the sandbox is made on another", "node", at, "sandbox", req.ID, "err", hutch.AsError(err).Cause)
			want.Not = append(want.Not, at)
			continue
		}
		return sb, plain(err)
	}
}

// freeSoon frees the reservation of a sandbox that was not made, even if the caller has left meanwhile.
func (f *Fleet) freeSoon(ctx context.Context, node string, name Name) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	return f.dir.free(ctx, node, name)
}

// createWhereHeld calls another node that has the sandbox already. done is false if no other node has it.
func (f *Fleet) createWhereHeld(ctx context.Context, name Name, req hutch.CreateRequest) (sb hutch.Sandbox, done bool, err error) {
	f.forget(name) // the sandbox may have left the remembered node
	p, _, err := f.locate(ctx, name)
	if err != nil || p == nil {
		return hutch.Sandbox{}, err != nil, err
	}
	sb, err = p.Create(ctx, req)
	return sb, true, plain(err)
}

func (f *Fleet) createAt(ctx context.Context, node string, req hutch.CreateRequest) (hutch.Sandbox, error) {
	p, err := f.peer(node)
	if err != nil {
		return hutch.Sandbox{}, &connectError{err}
	}
	return p.Create(ctx, req)
}

// want returns the requirements for the placement of a new sandbox.
func (f *Fleet) want(ctx context.Context, name Name, req hutch.CreateRequest) (placement, error) {
	owner, _ := caller.OwnerOf(ctx)
	limits := req.Limits
	if req.InstanceType != "" {
		t, err := hutch.FindInstanceType(f.opt.Types, req.InstanceType)
		if err != nil {
			return placement{}, err
		}
		limits = t.Fill(limits)
	}
	from, err := f.beginsAs(ctx, req)
	if err != nil {
		return placement{}, err
	}
	var only []string
	if from != nil {
		limits = from.Limits
	}
	if from != nil && !from.away() {
		only = []string{from.node}
	}
	mounts, err := f.mounts(ctx, req, from)
	if err != nil {
		return placement{}, err
	}
	if mounts != "" {
		only = []string{mounts}
	}
	limits.Memory = cmp.Or(limits.Memory, f.opt.Usual.Memory, 512)
	limits.CPU = cmp.Or(limits.CPU, f.opt.Usual.CPU, 1)
	return placement{
		Name: name, Memory: int64(limits.Memory), CPU: limits.CPU, Most: owner.MaxSandboxes, Only: only, From: from, Mounts: mounts, Needs: needsOf(caller.From(ctx)),
		About: About{Image: cmp.Or(req.Image, "host"), Runtime: req.Runtime, Labels: req.Labels, Limits: limits, NodeSelector: req.NodeSelector, Tolerations: req.Tolerations},
	}, nil
}

// beginsAs returns the snapshot or template that a sandbox starts from; nil for none.
func (f *Fleet) beginsAs(ctx context.Context, req hutch.CreateRequest) (*snapshotOn, error) {
	asked := cmp.Or(req.Snapshot, req.Template)
	wanted := cmp.Or(asked, req.Image)
	if wanted == "" || wanted == "host" || asked == "" && hutch.CheckTemplateName(wanted) != nil {
		return nil, nil
	}
	all, err := f.snapshots(ctx)
	if err != nil {
		return nil, err
	}
	if asked == "" {
		all = slices.DeleteFunc(all, func(s snapshotOn) bool { return s.Template == nil })
	}
	i := indexSnapshot(ctx, all, wanted)
	if i < 0 && asked != "" || i >= 0 && !isOwn(ctx, all[i].Snapshot) {
		if err := f.lostSnapshot(ctx, wanted, i < 0); err != nil {
			return nil, err
		}
	}
	if i < 0 {
		return nil, nil // the engine reports the missing snapshot or template
	}
	return &all[i], nil
}

// mounts returns the node with the volumes of a new sandbox, or "" for no volumes. It returns an error if the sandbox's
// snapshot cannot come to that node.
func (f *Fleet) mounts(ctx context.Context, req hutch.CreateRequest, from *snapshotOn) (node string, err error) {
	list := req.Volumes
	if from != nil && from.Template != nil {
		list = from.Template.WithVolumes(list)
	}
	if len(list) == 0 {
		return "", nil
	}
	if node, err = f.nodeOfVolumes(ctx, list); err != nil {
		return "", err
	}
	own := from == nil || isOwn(ctx, from.Snapshot)
	if from == nil || from.node == node || from.row != nil && (own || from.away()) {
		return node, nil
	}
	why := "the fleet has no bucket through which it could come there: make the sandbox without them, or use volumes on the node " + from.node
	if from.row != nil {
		why = "only a sandbox of its owner makes it come there: make the sandbox without them, use volumes on the node " + from.node + ", or make a snapshot of your own, of a sandbox that begins as this one, and use that"
	} else if f.carrier != nil {
		why = "it is not in the fleet's bucket, through which it could come there: try again in a moment if it is new; a snapshot or template with volumes of its own stays on its node"
	}
	return "", hutch.Errorf(hutch.Conflict, "the snapshot %q is on the node %s, and the volumes of the sandbox are on the node %s: %s", from.ID, from.node, node, why).Naming(hutch.AboutField, "volumes")
}

// volumeOn is a volume of the caller, and its node.
type volumeOn struct{ name, node string }

// nodeOfVolumes returns the node that has the volumes of a sandbox: this node, if it has them all. If all nodes have
// answered and a volume is on none of them, it returns this node, which then reports the missing volume.
func (f *Fleet) nodeOfVolumes(ctx context.Context, list []hutch.VolumeMount) (string, error) {
	me := f.node.info.ID
	if f.opt.Volumes == nil {
		return me, nil
	}
	has := map[volumeOn]bool{}
	note := func(node string, list []hutch.Volume) (nodes []string) {
		for _, v := range list {
			has[volumeOn{v.Name, node}] = true
		}
		return []string{node}
	}
	hasAll := func(node string) bool {
		return !slices.ContainsFunc(list, func(m hutch.VolumeMount) bool { return !has[volumeOn{m.Name, node}] })
	}
	mine, err := f.opt.Volumes.Volumes(ctx)
	if err != nil {
		return "", err
	}
	if note(me, mine); hasAll(me) {
		return me, nil
	}
	nodes, silent, err := gatherNoting(ctx, f, func(s hutch.Service, ctx context.Context) ([]hutch.Volume, error) {
		if p, ok := s.(*peer); ok {
			return p.Volumes(ctx)
		}
		return mine, nil
	}, note)
	if err != nil {
		return "", err
	}
	slices.Sort(nodes)
	switch these := slices.DeleteFunc(slices.Clone(nodes), func(node string) bool { return !hasAll(node) }); len(these) {
	case 0:
	case 1:
		return these[0], nil
	default:
		return "", hutch.Errorf(hutch.Conflict, "several nodes have volumes with these names: %s. Create the sandbox through the node with the volumes that you mean", strings.Join(these, ", ")).Naming(hutch.AboutField, "volumes")
	}
	var at []string
	for _, m := range list {
		i := slices.IndexFunc(nodes, func(node string) bool { return has[volumeOn{m.Name, node}] })
		if i < 0 {
			return me, f.lostVolume(m.Name, silent)
		}
		at = append(at, fmt.Sprintf("%q on the node %s", m.Name, nodes[i]))
	}
	return "", hutch.Errorf(hutch.Conflict, "a sandbox needs all its volumes on one node, and these are on several: %s", strings.Join(at, ", ")).Naming(hutch.AboutField, "volumes")
}

// lostVolume returns an error for a volume that no node has listed, if it can be on a node that is away or silent.
// Otherwise the caller would make the volume again, and there would be two of that name when the node is back.
func (f *Fleet) lostVolume(name string, silent []string) error {
	_, away := f.node.others()
	for _, info := range away {
		silent = append(silent, info.ID)
	}
	if len(silent) == 0 {
		return nil
	}
	slices.Sort(silent)
	return hutch.Errorf(hutch.Unavailable, "no node that answers has the volume %q, and these nodes do not answer: %s. Try again when they are back; an administrator removes a node that does not come back with `hutch node rm`", name, strings.Join(silent, ", ")).
		Naming(hutch.AboutField, "volumes").With("node", silent[0])
}

// lostSnapshot returns an error if a snapshot is not in the bucket and its node is away. If shared is false, only the
// caller's own snapshots count: while one of these is away, a shared snapshot of another owner with the same name does
// not replace it.
func (f *Fleet) lostSnapshot(ctx context.Context, asked string, shared bool) error {
	if f.carrier == nil {
		return nil
	}
	rows, err := f.dir.snapshotsLost(ctx, ownerIn(ctx))
	if err != nil {
		return err
	}
	if i := indexSnapshot(ctx, rows, asked); i >= 0 && (shared || isOwn(ctx, rows[i].Record)) {
		return hutch.Errorf(hutch.Unavailable, "the snapshot %q is on the node %s, which is away, and is not in the fleet's bucket: it is back when the node is", asked, rows[i].Node).With("node", rows[i].Node)
	}
	return nil
}

// claimForCreate chooses the node that is to fetch the snapshot of a new sandbox, if the snapshot is on no live node,
// or not on the node of the sandbox's volumes. If another create has chosen a node in the meantime, it returns that
// node.
func (f *Fleet) claimForCreate(ctx context.Context, want placement) (only []string, err error) {
	row := *want.From.row
	to, err := f.dir.nodeFor(ctx, row.cargo(&want), f.node.info.ID, "")
	if err != nil {
		return nil, err
	}
	err = f.dir.claimSnapshot(ctx, row, to, !want.From.away())
	if !errors.Is(err, errMoved) {
		return []string{to}, err
	}
	rows, err := f.dir.snapshotsInBucket(ctx, ownerIn(ctx))
	if err != nil {
		return nil, err
	}
	if i := slices.IndexFunc(rows, func(s snapshotRow) bool {
		return s.Record.ID == row.Record.ID && s.Alive && (want.Mounts == "" || s.Node == want.Mounts)
	}); i >= 0 {
		return []string{rows[i].Node}, nil
	}
	return nil, errBusySnapshot(row.Record.ID)
}

// moveSnapshot assigns a snapshot to another node when its node has refused the new sandbox, because that node is full,
// cordoned or draining, or does not suit. The other node suits and has capacity. If there is no such node, the error is
// the refusal of the snapshot's node.
func (f *Fleet) moveSnapshot(ctx context.Context, want *placement, refused error) error {
	if suitsNoNode(refused) && !isOwn(ctx, want.From.Snapshot) {
		if hutch.KindOf(refused) != hutch.Invalid { // the snapshot's node has an older version
			return refused
		}
		return want.staysShared()
	}
	row := *want.From.row
	row.Node = want.Only[0]
	to, err := f.dir.nodeFor(ctx, row.cargo(want), f.node.info.ID, row.Node)
	if err == nil {
		err = f.dir.claimSnapshot(ctx, row, to, true)
	}
	if err != nil {
		return refused
	}
	want.Only = []string{to}
	return nil
}

// staysShared returns the error for a sandbox that the node of its snapshot does not suit, if another owner shares the
// snapshot. A shared snapshot stays on its node: otherwise callers could take it away from its owner and from each
// other.
func (p placement) staysShared() error {
	field, why, next := "tolerations", "has a taint that the sandbox does not tolerate", "give tolerations, or ask an administrator, who sees the taints with `hutch node ls`"
	if len(p.About.NodeSelector) > 0 {
		field, why = "nodeSelector", "does not have all labels of nodeSelector, "+hutch.FormatNodeLabels(p.About.NodeSelector)+", and only taints that tolerations has"
		next = "leave nodeSelector out or correct it"
	}
	return hutch.Errorf(hutch.Invalid, "the node of the snapshot %q %s, and a snapshot that is shared with you stays on its node: %s; or make a snapshot of your own, of a sandbox that begins as this one, and use that",
		p.From.ID, why, next).Naming(hutch.AboutField, field).With("limit", nodesForSandbox)
}

// CreateTemplate implements hutch.Service. It runs on the node that has the template's snapshot, or the template that it replaces.
func (f *Fleet) CreateTemplate(ctx context.Context, req hutch.TemplateRequest) (hutch.Snapshot, error) {
	if err := f.node.serving(); err != nil {
		return hutch.Snapshot{}, err
	}
	var at hutch.Service = f.resident
	if req.From != "" && hutch.CheckID(req.From) == nil {
		f.forget(nameIn(ctx, req.From)) // the sandbox may have left the remembered node
		p, _, err := f.locate(ctx, nameIn(ctx, req.From))
		if err != nil {
			return hutch.Snapshot{}, err
		}
		if p != nil {
			at = p
		}
	} else if hutch.CheckTemplateName(req.Name) == nil {
		var err error
		if at, err = f.withSnapshot(ctx, cmp.Or(req.Snapshot, req.Name)); err != nil {
			return hutch.Snapshot{}, err
		}
	}
	s, err := at.CreateTemplate(ctx, req)
	return s, plain(err)
}
