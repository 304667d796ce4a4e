package instance

import (
	"context"
	"crypto/rand"
	"errors"

	"hutch"
	"hutch/internal/driver"
	"hutch/internal/kernel"
	"hutch/internal/saved"
	"hutch/internal/snapshots"
	"hutch/internal/wire"
)

// Sandboxes that start from the same snapshot share its files if the runtime supports it: the files are unpacked once,
// into an instance that becomes the base layer of the sandboxes' instances. Running sandboxes hold the layer. A
// restarted daemon knows no layers: it makes a new layer when needed, and the old one is removed with the last instance
// that uses it.

// minShared is the least size of the files for which a layer is worth an instance.
const minShared = 4 << 20

// OwnFiles plans an instance with its own copy of the files of a snapshot.
func (m *Maker) OwnFiles(ctx context.Context, snap *snapshots.Snapshot, d driver.Driver) Plan {
	return Plan{Create: d.Create, Fill: func(a *wire.Client) error { return saved.Unpack(ctx, a, snap.Record.Sandbox.Image, snap.Archive()) }}
}

// SharedFiles plans an instance that starts with the files of a snapshot, and shares them with other instances if
// possible.
func (m *Maker) SharedFiles(ctx context.Context, snap *snapshots.Snapshot, d driver.Driver) Plan {
	own := m.OwnFiles(ctx, snap, d)
	r, ok := driver.As[driver.Layerer](d)
	if !ok || !r.Layers() || !shareable(snap) {
		return own
	}
	l, err := snap.Base.Hold(func() (driver.Layer, error) {
		l, err := m.layer(ctx, snap, r)
		if err != nil {
			m.notShared(snap, err)
		}
		return l, err
	})
	if err != nil {
		return own
	}
	shares := true
	return Plan{
		Base: &snap.Base,
		Create: func(ctx context.Context, spec driver.Spec) (driver.Instance, error) {
			spec.Layer = l
			inst, err := d.Create(ctx, spec)
			if !errors.Is(err, hutch.Unsupported) {
				return inst, err
			}
			m.notShared(snap, err)
			shares, spec.Layer = false, nil
			return d.Create(ctx, spec)
		},
		Fill: func(a *wire.Client) error {
			if shares {
				return nil
			}
			return own.Fill(a)
		},
	}
}

// notShared logs why sandboxes have files of their own.
func (m *Maker) notShared(snap *snapshots.Snapshot, err error) {
	m.log.Warn("share the files of a snapshot", "snapshot", snap.Snapshot.ID, "err", err, "cause", hutch.AsError(err).Cause)
}

// shareable reports whether a shared layer of a snapshot's files is useful. A sandbox with a shared layer has its own
// copy of the files after a sleep. This copy must fit into the sandbox's memory, while a layer does not count as its
// memory.
func shareable(s *snapshots.Snapshot) bool {
	l := s.Snapshot.Limits
	return !s.Single && s.Unpacked >= minShared && s.Unpacked <= int64(l.Disk)<<19 && l.Disk <= l.Memory*3/4
}

// layer makes the layer of a snapshot's files.
func (m *Maker) layer(ctx context.Context, snap *snapshots.Snapshot, r driver.Layerer) (driver.Layer, error) {
	v := snap.Snapshot
	root, err := m.Root(ctx, KindOf(snap.Record.Sandbox))
	if err != nil {
		return nil, err
	}
	id, token := hutch.NewID("layer"), rand.Text()
	inst, err := m.create(ctx, v.Owner, v.Runtime, r.Create, driver.Spec{ID: id, Image: v.Image, Root: root, Limits: v.Limits, Boot: Boot(token, id, root, root.Env, v.Limits)})
	if err != nil {
		return nil, err
	}
	agent := wire.NewClient(inst.Dial, token)
	defer agent.Close()
	if err := saved.Unpack(ctx, agent, snap.Record.Sandbox.Image, snap.Archive()); err != nil {
		return nil, errors.Join(err, Destroy(inst))
	}
	return r.Layer(ctx, inst)
}

// FromMemory plans an instance that continues from a snapshot's memory. env is the environment of its sandbox. restore
// is Maker.Restore, or the driver's Restore.
func FromMemory(s *snapshots.Snapshot, env map[string]string, restore func(context.Context, driver.Spec, string) (driver.Instance, error)) Plan {
	tell := kernel.Reborn(env)
	return Plan{Tell: tell, Create: func(ctx context.Context, spec driver.Spec) (driver.Instance, error) {
		inst, err := restore(ctx, spec, s.Memory())
		if err != nil {
			if ctx.Err() != nil {
				return nil, err
			}
			return nil, hutch.Errorf(hutch.Unavailable, "the memory of the snapshot %q could not be restored: where programs of this host have changed since it was made, create with filesOnly for its files", s.Snapshot.ID).Because(err)
		}
		who := wire.Identity{Hostname: spec.Boot.Hostname, Env: spec.Boot.Env, Token: spec.Boot.Token, Tell: tell}
		return GiveIdentity(ctx, inst, s.Record.Token, who)
	}}
}

// GiveIdentity gives an instance the identity of its new sandbox. token is the old token, which is in the
// instance's memory. On failure the instance is destroyed.
func GiveIdentity(ctx context.Context, inst driver.Instance, token string, who wire.Identity) (driver.Instance, error) {
	agent := wire.NewClient(inst.Dial, token)
	defer agent.Close()
	if err := agent.Adopt(ctx, who); err != nil {
		return nil, errors.Join(err, inst.Destroy(context.WithoutCancel(ctx)))
	}
	return inst, nil
}

// Restore makes an instance that continues from the state that a driver saved to dir. It uses a vacant instance of the
// pool if there is one.
func (m *Maker) Restore(ctx context.Context, r driver.Restorer, v hutch.Sandbox, spec driver.Spec, dir string) (driver.Instance, error) {
	if build, err := r.BuildOf(dir); err != nil || build != r.Build() { // vacant instances have the present build
		return r.Restore(ctx, spec, dir)
	}
	s, ok := m.pool.Take(Vacant(KindOf(v)))
	if !ok {
		return r.Restore(ctx, spec, dir)
	}
	vacancy, ok := driver.As[driver.Vacancy](s.inst)
	if !ok {
		m.discardSpares([]*Spare{s})
		return r.Restore(ctx, spec, dir)
	}
	inst, err := vacancy.Restore(ctx, dir)
	if err == nil || ctx.Err() != nil {
		return inst, err
	}
	m.log.Warn("use a vacant instance", "instance", s.id, "err", err, "cause", hutch.AsError(err).Cause)
	return r.Restore(ctx, spec, dir)
}
