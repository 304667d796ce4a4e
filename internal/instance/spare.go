package instance

import (
	"context"
	"crypto/rand"
	"errors"
	"reflect"
	"sync"
	"time"

	"hutch"
	"hutch/internal/driver"
	"hutch/internal/image"
	"hutch/internal/kernel"
	"hutch/internal/pool"
	"hutch/internal/snapshots"
	"hutch/internal/wire"
)

// Spare is an instance of the pool that has no sandbox yet. Only its agent has run in it. If it starts from a snapshot,
// it is frozen, and the snapshot's programs have run in it too. In a vacant instance nothing has run.
type Spare struct {
	kind      pool.Kind
	id, token string
	image     image.Root      // image of the kind, when the instance was made
	root      image.Root      // root file system for the kind's user
	inst      driver.Instance // a driver.Vacancy if vacant
	agent     *wire.Client    // nil if vacant
	frozen    bool
	base      *snapshots.Base // layer that the instance shares with others
}

// adoptTime limits how long adopting a spare instance can take.
const adoptTime = 2 * time.Second

// adopt gives an identity to the instance.
func (s *Spare) adopt(ctx context.Context, who wire.Identity) error {
	ctx, cancel := context.WithTimeout(ctx, adoptTime)
	defer cancel()
	if r, ok := driver.As[driver.Renamer](s.inst); ok {
		if err := r.Rename(who.Hostname); err != nil {
			return err
		}
	}
	return s.agent.Adopt(ctx, who)
}

// become gives a spare instance the same state as a new instance for the sandbox. tell is the environment for the
// interpreters that already run in it.
func (s *Spare) become(ctx context.Context, spec driver.Spec, tell map[string]string) error {
	if !reflect.DeepEqual(s.root, spec.Root) {
		return errors.New("the image is not as it was")
	}
	if s.frozen {
		if err := Thaw(ctx, s.inst); err != nil {
			return err
		}
	}
	return s.adopt(ctx, wire.Identity{Hostname: spec.Boot.Hostname, Env: spec.Boot.Env, Tell: tell})
}

// wait pauses the instance until a sandbox takes it, if programs run in it. Those programs must use no CPU until then,
// and must continue from the moment of the snapshot.
func (s *Spare) wait(ctx context.Context) error {
	f, ok := driver.As[driver.Freezer](s.inst)
	if !ok || !s.kind.Memory {
		return nil
	}
	s.frozen = true
	return f.Freeze(ctx)
}

// Dead implements pool.Instance.
func (s *Spare) Dead() bool { return Dead(s.inst) }

// HandOver returns what a sandbox takes over with the instance: its name on this host, its token, and its base layer.
func (s *Spare) HandOver() (id, token string, base *snapshots.Base) {
	base, s.base = s.base, nil
	return s.id, s.token, base
}

// Take returns an instance of the pool, or nil if none is ready. The caller opens the instance by a Plan. An instance
// from a deleted snapshot is not returned.
func (m *Maker) Take(k pool.Kind) *Spare {
	if k.Snapshot != "" && !m.snaps.Has(k.Snapshot) {
		return nil
	}
	s, _ := m.pool.Take(k)
	return s
}

// Withdraw frees the copies of a snapshot that wait in the pool.
func (m *Maker) Withdraw(snapshot string) { m.pool.Withdraw(snapshot) }

// PoolState reports the instances that the pool has, and those that it has yet to make.
func (m *Maker) PoolState() hutch.PoolState { return m.pool.State() }

// discardSpares frees spare instances.
func (m *Maker) discardSpares(spares []*Spare) {
	var all sync.WaitGroup
	for _, s := range spares {
		all.Go(func() {
			m.Discard(s.inst, s.agent)
			if s.base != nil {
				s.base.Release()
			}
		})
	}
	all.Wait()
}

// poolEvery is how often the pool is checked if there is no request.
const poolEvery = 5 * time.Second

// KeepPool keeps the pool filled until the engine closes. It makes one instance at a time. In parallel it makes one
// copy of a snapshot at a time, because a copy of many files takes long.
func (m *Maker) KeepPool() {
	tick := time.NewTicker(poolEvery)
	defer tick.Stop()
	var beside sync.WaitGroup
	defer func() {
		beside.Wait()
		m.discardSpares(m.pool.Empty())
	}()
	for {
		roots := m.currentRoots()
		m.discardSpares(m.pool.Surplus(func(k pool.Kind, s *Spare) bool { return !reflect.DeepEqual(s.image, roots[k.Image]) }))
		for k, ok := m.pool.Lacks(); ok && m.waitQuiet(); k, ok = m.pool.Lacks() {
			if k.Snapshot == "" {
				m.addToPool(k)
			} else {
				m.pool.Copying(&k)
				beside.Go(func() {
					defer m.pool.Copying(nil)
					m.addToPool(k)
				})
			}
			m.discardSpares(m.pool.Withdrawn())
		}
		select {
		case <-m.ctx.Done():
			return
		case <-m.pool.Changed():
		case <-tick.C:
		}
	}
}

// currentRoots looks up the images of the pool. That can take a while if it was not done recently, so it is done here
// and not while a caller waits for a sandbox.
func (m *Maker) currentRoots() map[string]image.Root {
	roots := map[string]image.Root{}
	for _, name := range m.pool.Images() {
		root, err := m.opt.Image(m.ctx, name)
		if err != nil && m.ctx.Err() == nil {
			m.log.Warn("look at an image", "image", name, "err", err)
		}
		roots[name] = root
	}
	return roots
}

const (
	// keeperWait is how long the keeper of the pool waits for calls in progress before it makes an instance. Some calls
	// never end.
	keeperWait = 500 * time.Millisecond
	// beginWait is how long the keeper waits for sandboxes that are being created. A sandbox with a large volume, or
	// with an agent that does not answer, takes minutes.
	beginWait = 3 * time.Second
	// poolOwner is the owner on whose behalf the pool starts instances. No real owner has this id.
	poolOwner = "the pool"
)

// waitQuiet waits until making an instance delays no caller, but only for a limited time. It returns false when the
// engine closes.
func (m *Maker) waitQuiet() bool {
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for began := time.Now(); ; {
		waited := time.Since(began)
		if (m.beginning.Load() == 0 || waited > beginWait) && (m.opt.Uses.Load() == 0 || waited > keeperWait) {
			return m.ctx.Err() == nil
		}
		select {
		case <-tick.C:
		case <-m.ctx.Done():
			return false
		}
	}
}

// addToPool adds an instance to the pool, if a trial adoption succeeds.
func (m *Maker) addToPool(k pool.Kind) {
	s, err := m.prepare(k)
	if k.Snapshot == "" && !k.Vacant && errors.Is(err, hutch.Unsupported) {
		m.log.Info("no instances are kept ready", "driver", k.Runtime, "why", err)
		m.pool.Refuse(k.Runtime, err)
		return
	}
	if err != nil {
		m.pool.Failed(k, err)
		if m.ctx.Err() == nil {
			m.log.Warn("make a spare instance", "driver", k.Runtime, "snapshot", k.Snapshot, "err", err, "cause", hutch.AsError(err).Cause)
		}
		return
	}
	m.pool.Put(k, s)
	if k.Snapshot != "" && !m.snaps.Has(k.Snapshot) { // the snapshot was deleted meanwhile
		m.pool.Withdraw(k.Snapshot)
	}
}

// prepare makes a spare instance of a kind.
func (m *Maker) prepare(k pool.Kind) (*Spare, error) {
	img, err := m.opt.Image(m.ctx, k.Image)
	if err != nil {
		return nil, err
	}
	root, err := m.forUser(img, k)
	if err != nil {
		return nil, err
	}
	how, err := m.plan(k)
	if err != nil {
		return nil, err
	}
	how.Owner = poolOwner
	s := &Spare{kind: k, id: hutch.NewID("w"), token: rand.Text(), image: img, root: root, base: how.Base}
	spec := driver.Spec{ID: s.id, Image: k.Image, Root: root, Limits: k.Limits}
	if k.Vacant {
		s.inst, err = m.create(m.ctx, how.Owner, k.Runtime, how.Create, spec)
		return s, err
	}
	spec.Boot = Boot(s.token, s.id, root, root.Env, k.Limits)
	if s.inst, s.agent, err = m.Open(m.ctx, k.Runtime, how, spec); err != nil {
		if s.base != nil {
			s.base.Release()
		}
		return nil, err
	}
	if err := m.tryOut(s); err != nil {
		m.discardSpares([]*Spare{s})
		return nil, err
	}
	return s, nil
}

// tryOut makes a trial adoption of an instance, and prepares the instance for the real adoption.
func (m *Maker) tryOut(s *Spare) error {
	env := append(s.root.Env[:len(s.root.Env):len(s.root.Env)], Environ(m.opt.Env)...)
	if err := s.adopt(m.ctx, wire.Identity{Hostname: "spare", Env: env}); err != nil {
		return err
	}
	m.warm(s)
	return s.wait(m.ctx)
}

// plan returns how to make an instance of a kind.
func (m *Maker) plan(k pool.Kind) (Plan, error) {
	d, err := m.Driver(k.Runtime)
	if err != nil {
		return Plan{}, err
	}
	switch r, _ := driver.As[driver.Restorer](d); {
	case k.Vacant:
		return Plan{Create: func(ctx context.Context, spec driver.Spec) (driver.Instance, error) { return r.Prepare(ctx, spec) }}, nil
	case k.Snapshot != "":
		return m.planCopy(k, d, r)
	}
	return Plan{Create: d.Create}, nil
}

// planCopy plans an instance that starts from a snapshot, for any later owner. It uses no vacant instance: a waking
// sandbox needs it more.
func (m *Maker) planCopy(k pool.Kind, d driver.Driver, r driver.Restorer) (Plan, error) {
	snap, err := m.snaps.ByID(k.Snapshot)
	if err != nil {
		return Plan{}, err
	}
	if err := snap.Verify(); err != nil {
		return Plan{}, err
	}
	if k.Memory {
		return FromMemory(snap, snap.Record.Env, r.Restore), nil
	}
	return m.SharedFiles(m.ctx, snap, d), nil
}

// warm starts the waiting interpreters in an instance for the pool. If an interpreter fails, only the first
// context of its language is slower.
func (m *Maker) warm(s *Spare) {
	if s.kind.Memory {
		return
	}
	for _, w := range m.warmOf(s.kind) {
		if err := s.agent.Spare(m.ctx, w); err != nil && m.ctx.Err() == nil {
			m.log.Warn("make a spare interpreter", "instance", s.id, "context", w.ID, "err", err)
		}
	}
}

// warmOf returns the interpreters that wait in an instance of a kind: those of its template, or those of the server if
// it has no template.
func (m *Maker) warmOf(k pool.Kind) []wire.Context {
	if k.Snapshot == "" {
		return m.opt.Warm
	}
	snap, err := m.snaps.ByID(k.Snapshot)
	if err != nil || snap.Snapshot.Template == nil || len(snap.Snapshot.Template.Warm) == 0 {
		return m.opt.Warm
	}
	all, err := kernel.Spares(snap.Snapshot.Template.Warm)
	if err != nil { // they were checked when the template was made
		m.log.Warn("no interpreters wait in copies of a template", "snapshot", k.Snapshot, "err", err)
	}
	return all
}

// KindOf returns the kind of instance that a sandbox needs.
func KindOf(v hutch.Sandbox) pool.Kind {
	return pool.Kind{Runtime: v.Runtime, Image: v.Image, User: v.User, Limits: v.Limits}
}

// Vacant returns a kind of instance in which nothing has started.
func Vacant(k pool.Kind) pool.Kind {
	k.Vacant = true
	return k
}

// KindFrom returns the kind of instance that starts from a snapshot, for sandboxes like v. The instance has memory if
// memory is true and the snapshot has memory.
func KindFrom(s *snapshots.Snapshot, v hutch.Sandbox, memory bool) pool.Kind {
	k := KindOf(v)
	k.Snapshot, k.Memory, k.Size = s.Snapshot.ID, memory && s.Snapshot.Memory, max(s.Snapshot.Size, s.Unpacked)
	return k
}
