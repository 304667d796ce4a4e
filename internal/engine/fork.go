package engine

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"runtime"
	"slices"
	"sync"

	"hutch"
	"hutch/internal/driver"
	"hutch/internal/instance"
	"hutch/internal/snapshots"
	"hutch/internal/store"
)

// Fork implements hutch.Snapshots.
func (e *Engine) Fork(ctx context.Context, id string, req hutch.ForkRequest) ([]hutch.Sandbox, error) {
	if err := req.Check(); err != nil {
		return nil, err
	}
	n := max(req.Count, 1)
	parent, err := e.find(ctx, id)
	if err != nil {
		return nil, err
	}
	if err := e.room(ctx, n); err != nil {
		return nil, err
	}
	hidden, err := e.forkedNetwork(ctx, parent)
	if err != nil {
		return nil, err
	}
	snap, err := e.capture(ctx, id, draftSnapshot(parent, hutch.SnapshotRequest{}), parts{memory: true})
	if err != nil {
		return nil, err
	}
	defer e.saved.RemoveInBackground(snap.Dir)
	snap.Single = n == 1
	forks, err := e.populate(ctx, snap, n, hutch.CreateRequest{Env: req.Env, Network: hidden})
	if err == nil {
		e.log.Info("forked", "sandbox", id, "forks", n, "stood", snap.Snapshot.Stood)
	}
	return forks, err
}

func (e *lifecycle) room(ctx context.Context, n int) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.roomLocked(ctx, n)
}

// forkedNetwork returns those parts of a sandbox's network that have hidden values, for its forks, if the caller is its
// owner.
func (e *lifecycle) forkedNetwork(ctx context.Context, parent *sandbox) (hutch.Network, error) {
	if parent.Owner() != nameOf(ctx, "").Owner {
		return hutch.Network{}, nil
	}
	n, err := e.networks.hidden.whole(parent.Record())
	return hutch.Network{Headers: n.Headers, Proxy: n.Proxy}, err
}

// populate makes n sandboxes from a snapshot, or none.
func (e *Engine) populate(ctx context.Context, snap *snapshots.Snapshot, n int, req hutch.CreateRequest) ([]hutch.Sandbox, error) {
	forks, errs := make([]hutch.Sandbox, n), make([]error, n)
	var wg sync.WaitGroup
	slots := make(chan struct{}, max(2, runtime.NumCPU()))
	for i := range n {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			forks[i], _, errs[i] = e.beginAs(ctx, snap, req)
		})
	}
	wg.Wait()
	err := errors.Join(errs...)
	if err == nil {
		return forks, nil
	}
	for i, f := range forks {
		if errs[i] == nil {
			_, failed := e.Destroy(context.WithoutCancel(ctx), f.ID, true)
			err = errors.Join(err, failed)
		}
	}
	return nil, err
}

// createFrom implements Create for a sandbox that starts from a snapshot.
func (e *Engine) createFrom(ctx context.Context, req hutch.CreateRequest) (hutch.Sandbox, error) {
	if err := req.Check(); err != nil {
		return hutch.Sandbox{}, err
	}
	snap, err := e.snaps.Find(viewer(ctx), cmp.Or(req.Template, req.Snapshot))
	switch {
	case errors.Is(err, hutch.NotFound) && req.Template != "":
		return hutch.Sandbox{}, hutch.Errorf(hutch.NotFound, "there is no template %q: it was never made, was deleted, or has expired; list the templates", req.Template)
	case err != nil:
		return hutch.Sandbox{}, err
	}
	if err := snap.Verify(); err != nil {
		return hutch.Sandbox{}, err
	}
	sb, made, err := e.beginAs(ctx, snap, req)
	if t := snap.Snapshot.Template; err == nil && made && t != nil && (req.FilesOnly || !snap.Snapshot.Memory) {
		return sb, e.startTemplate(ctx, sb.ID, *t)
	}
	return sb, err
}

// beginAs makes a sandbox from a snapshot, with an instance of this snapshot from the pool
// if there is one. It reports whether it has made the sandbox; false means that the sandbox
// existed already.
func (e *lifecycle) beginAs(ctx context.Context, snap *snapshots.Snapshot, req hutch.CreateRequest) (sb hutch.Sandbox, made bool, err error) {
	rec, d, err := e.draftFrom(ctx, snap, req)
	if err != nil {
		return hutch.Sandbox{}, false, err
	}
	k := instance.KindFrom(snap, rec.Sandbox, !req.FilesOnly)
	r, ok := driver.As[driver.Restorer](d)
	if k.Memory {
		if err := fits(snap, r, ok); err != nil {
			return hutch.Sandbox{}, false, err
		}
	}
	sb, err = e.make(ctx, rec, func(s *sandbox) (how startPlan) {
		made = true
		sp := e.claim(s, k)
		switch {
		case k.Memory:
			how.Plan = instance.FromMemory(snap, rec.Env, func(ctx context.Context, spec driver.Spec, dir string) (driver.Instance, error) {
				return e.instances.Restore(ctx, r, rec.Sandbox, spec, dir)
			})
		case sp != nil: // should that be of no use
			how.Plan = e.instances.OwnFiles(ctx, snap, d)
		default:
			how.Plan = e.instances.SharedFiles(ctx, snap, d)
		}
		how.Spare, how.snapshot = sp, snap.Snapshot.ID
		if req.Snapshot == "" && req.Template == "" { // a temporary snapshot
			how.forked = snap.Snapshot.SandboxID
		}
		return how
	})
	return sb, made, err
}

// draftFrom makes the record of a sandbox that starts from a snapshot. Some settings
// cannot differ from those of the snapshot, and are taken from it.
func (e *lifecycle) draftFrom(ctx context.Context, snap *snapshots.Snapshot, req hutch.CreateRequest) (store.Record, driver.Driver, error) {
	v, was := snap.Snapshot, snap.Record
	if req.Image != "" && req.Image != v.Image || req.User != "" && req.User != was.Sandbox.User || req.Runtime != "" && req.Runtime != v.Runtime && v.Memory && !req.FilesOnly || req.Limits != (hutch.Limits{}) && req.Limits != v.Limits || req.InstanceType != "" && req.InstanceType != was.Sandbox.InstanceType {
		return store.Record{}, nil, hutch.Errorf(hutch.Invalid, "image, user, runtime, limits and instance type of a sandbox that begins as a snapshot are the snapshot's: leave them out")
	}
	req.Image, req.User, req.Limits, req.InstanceType = v.Image, was.Sandbox.User, v.Limits, was.Sandbox.InstanceType
	if req.Runtime == "" {
		req.Runtime = v.Runtime
	}
	env := maps.Clone(was.Env)
	maps.Copy(env, req.Env)
	req.Env = env
	if v.Owner == nameOf(ctx, "").Owner { // only the server has these
		req.Secrets = append(slices.Clone(was.Secrets), req.Secrets...)
		req.Network = e.inherited(ctx, req.Network, was.Sandbox.Network)
	}
	t := v.Template
	if t != nil {
		req.Labels = merged(t.Labels, req.Labels)
		req.Volumes = mergedVolumes(t.Volumes, req.Volumes)
	}
	rec, d, err := e.draft(ctx, req)
	if rec.Sandbox.Parent = v.SandboxID; req.Snapshot != "" || req.Template != "" { // a fork's snapshot is not kept
		rec.Sandbox.Snapshot = v.ID
	}
	if rec.Sandbox.Template, rec.Template = was.Sandbox.Template, was.Template; t != nil {
		rec.Sandbox.Template, rec.Template = askedName(e.snaps.Record(snap), cmp.Or(req.Template, req.Snapshot)), v.ID
	}
	return rec, d, err
}

// askedName is the name with which a caller requested a snapshot, or its oldest name if the caller gave the id.
func askedName(v hutch.Snapshot, asked string) string {
	if v.HasName(asked) {
		return hutch.TemplateName(asked)
	}
	return v.Name
}

// merged returns the entries of a and b; those of b win.
func merged(a, b map[string]string) map[string]string {
	if len(a) == 0 {
		return b
	}
	all := maps.Clone(a)
	maps.Copy(all, b)
	return all
}

// mergedVolumes returns the volumes of a template and those of a create, which replace the template's with the same
// name or path.
func mergedVolumes(template, create []hutch.VolumeMount) []hutch.VolumeMount {
	kept := slices.DeleteFunc(slices.Clone(template), func(m hutch.VolumeMount) bool {
		return slices.ContainsFunc(create, func(o hutch.VolumeMount) bool { return o.Name == m.Name || o.Path == m.Path })
	})
	return append(kept, create...)
}

// fits reports whether this server can restore the memory of a snapshot.
func fits(s *snapshots.Snapshot, r driver.Restorer, ok bool) error {
	if !ok {
		return hutch.Errorf(hutch.Unsupported, "the runtime %s cannot restore memory: create with filesOnly", s.Snapshot.Runtime)
	}
	if err := r.Restores(s.Build); err != nil {
		return hutch.Errorf(hutch.Conflict, "the memory of the snapshot %q cannot be restored here: %v; create with filesOnly for its files, or make the snapshot again", s.Snapshot.ID, err)
	}
	return nil
}
