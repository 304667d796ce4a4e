package engine

import (
	"context"
	"crypto/rand"
	"errors"

	"hutch"
	"hutch/internal/driver"
	"hutch/internal/snapshots"
	"hutch/internal/wire"
)

// Sandboxes that begin as one snapshot share its files where the runtime can:
// those are unpacked once, in a place for that alone, and what it has then is the
// layer that the places of the sandboxes lie on. It is held by those that run.
// A daemon that starts again knows of none: it makes another when one is wanted,
// and the old one goes with the last that lies on it.

// minShared is how much has to be written for a layer to be worth a place.
const minShared = 4 << 20

// unpacked is how a place begins with files of a snapshot that are its own.
func (e *Engine) unpacked(ctx context.Context, snap *snapshots.Snapshot, d driver.Driver) opening {
	return opening{create: d.Create, fill: func(a *wire.Client) error { return e.unpack(ctx, snap.Archive(), a) }}
}

// withFilesOf is how a place begins with the files of a snapshot, shared with
// others if they can be. Who opens it has the layer to release then.
func (e *Engine) withFilesOf(ctx context.Context, snap *snapshots.Snapshot, d driver.Driver) opening {
	apart := e.unpacked(ctx, snap, d)
	r, ok := driver.As[driver.Layerer](d)
	if !ok || !r.Layers() || !shareable(snap) {
		return apart
	}
	l, err := snap.Base.Hold(func() (driver.Layer, error) {
		l, err := e.layer(ctx, snap, r)
		if err != nil {
			e.unshared(snap, err)
		}
		return l, err
	})
	if err != nil {
		return apart
	}
	shares := true
	return opening{
		below: &snap.Base,
		create: func(ctx context.Context, spec driver.Spec) (driver.Instance, error) {
			spec.Layer = l
			inst, err := d.Create(ctx, spec)
			if !errors.Is(err, hutch.Unsupported) {
				return inst, err
			}
			e.unshared(snap, err)
			shares, spec.Layer = false, nil
			return d.Create(ctx, spec)
		},
		fill: func(a *wire.Client) error {
			if shares {
				return nil
			}
			return apart.fill(a)
		},
	}
}

// unshared tells why sandboxes have files of their own.
func (e *Engine) unshared(snap *snapshots.Snapshot, err error) {
	e.log.Warn("share the files of a snapshot", "snapshot", snap.Snapshot.ID, "err", err, "cause", hutch.AsError(err).Cause)
}

// shareable reports whether a layer of a snapshot's files is of use. When a
// sandbox on a layer sleeps, it gets its own files again: they must fit into its
// memory then, which does not count a layer.
func shareable(s *snapshots.Snapshot) bool {
	l := s.Snapshot.Limits
	return !s.Single && s.Unpacked >= minShared && s.Unpacked <= int64(l.Disk)<<19 && l.Disk <= l.Memory*3/4
}

// layer makes the layer of a snapshot's files.
func (e *Engine) layer(ctx context.Context, snap *snapshots.Snapshot, r driver.Layerer) (driver.Layer, error) {
	v := snap.Snapshot
	root, err := e.opt.Image(ctx, v.Image)
	if err != nil {
		return nil, err
	}
	id, token := hutch.NewID("layer"), rand.Text()
	inst, err := e.place(ctx, r.Create, driver.Spec{ID: id, Root: root, Limits: v.Limits, Boot: boot(token, id, root.Env, v.Limits)})
	if err != nil {
		return nil, err
	}
	agent := wire.NewClient(inst.Dial, token)
	defer agent.Close()
	if err := e.unpack(ctx, snap.Archive(), agent); err != nil {
		return nil, errors.Join(err, e.raze(inst))
	}
	return r.Layer(ctx, inst)
}
