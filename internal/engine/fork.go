package engine

import (
	"cmp"
	"context"
	"errors"
	"runtime"
	"sync"

	"hutch"
	"hutch/internal/driver"
	"hutch/internal/instance"
	"hutch/internal/snapshots"
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
	forks, err := e.populate(ctx, snap, n, hutch.CreateRequest{
		Env: req.Env, Network: hidden, NodeSelector: parent.Sandbox().NodeSelector, Tolerations: parent.Sandbox().Tolerations,
	})
	if err == nil {
		e.log.Info("forked", "sandbox", id, "forks", n, "stood", snap.Snapshot.Stood)
	}
	return forks, err
}

// isFork reports whether a sandbox began as a copy of another one.
func isFork(sb hutch.Sandbox) bool { return sb.Parent != "" && sb.Snapshot == "" }

// forkedNetwork returns the parts of a sandbox's network that have hidden values, for the forks of the sandbox. It
// returns them only if the caller is the owner of the sandbox.
func (e *Engine) forkedNetwork(ctx context.Context, parent *sandbox) (hutch.Network, error) {
	if parent.Owner() != nameOf(ctx, "").Owner {
		return hutch.Network{}, nil
	}
	n, err := e.networks.hidden.whole(parent.Record())
	return hutch.Network{Headers: n.Headers, Proxy: n.Proxy}, err
}

// populate makes n sandboxes from a snapshot; after an error it makes none.
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
	if errors.Is(err, hutch.NotFound) { // a sandbox that exists does not need the snapshot
		id := req.ID
		if req.NormalizeID {
			id = hutch.NormalizeID(id)
		}
		if s, missing := e.find(ctx, id); missing == nil {
			return s.join(ctx)
		}
	}
	switch {
	case errors.Is(err, hutch.NotFound) && req.Template != "":
		return hutch.Sandbox{}, hutch.Errorf(hutch.NotFound, "there is no template %q: it was never made, was deleted, or has expired; list the templates", req.Template)
	case err != nil:
		return hutch.Sandbox{}, err
	}
	defer snap.Hold()()
	if !e.snaps.Has(snap.Snapshot.ID) {
		return hutch.Sandbox{}, hutch.Errorf(hutch.Unavailable, "the snapshot %q was moved to the fleet's bucket or deleted just now: try again", snap.Snapshot.ID)
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

// beginAs makes a sandbox from a snapshot, with an instance of this snapshot from the pool if the pool has one. made is
// false if the sandbox existed already.
func (e *lifecycle) beginAs(ctx context.Context, snap *snapshots.Snapshot, req hutch.CreateRequest) (sb hutch.Sandbox, made bool, err error) {
	rec, d, err := e.drafter.draftFrom(ctx, snap, e.snaps.Record(snap), req)
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
		case sp != nil: // this plan is only used if the spare instance cannot be used
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
