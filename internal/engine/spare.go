package engine

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
	"hutch/internal/pool"
	"hutch/internal/snapshots"
	"hutch/internal/wire"
)

// spare is a place that is nobody's yet. Nothing has run in it but its agent and,
// where it begins as a snapshot, what ran in that: it stands still then. In a
// vacant one nothing has run at all.
type spare struct {
	kind         pool.Kind
	place, token string
	root         image.Root
	inst         driver.Instance // of a vacant one a driver.Vacancy
	agent        *wire.Client    // of a vacant one nil
	frozen       bool
	below        *snapshots.Base // what it holds of others' files
}

// adoptTime bounds how long a spare place may take to become somebody's.
const adoptTime = 2 * time.Second

// adopt makes the place one that has this identity.
func (s *spare) adopt(ctx context.Context, who wire.Identity) error {
	ctx, cancel := context.WithTimeout(ctx, adoptTime)
	defer cancel()
	if r, ok := driver.As[driver.Renamer](s.inst); ok {
		if err := r.Rename(who.Hostname); err != nil {
			return err
		}
	}
	return s.agent.Adopt(ctx, who)
}

// become makes the place what it would have been made as from that, with tell
// for the interpreters that live in it.
func (s *spare) become(ctx context.Context, spec driver.Spec, tell map[string]string) error {
	if !reflect.DeepEqual(s.root, spec.Root) {
		return errors.New("the image is not as it was")
	}
	if s.frozen {
		if err := thaw(ctx, s.inst); err != nil {
			return err
		}
	}
	return s.adopt(ctx, wire.Identity{Hostname: spec.Boot.Hostname, Env: spec.Boot.Env, Tell: tell})
}

// wait has the place stand still until it becomes somebody's, if programs run in
// it: they shall go on where the snapshot was taken, and cost nothing until then.
func (s *spare) wait(ctx context.Context) error {
	f, ok := driver.As[driver.Freezer](s.inst)
	if !ok || !s.kind.Memory {
		return nil
	}
	s.frozen = true
	return f.Freeze(ctx)
}

// Dead implements pool.Instance.
func (s *spare) Dead() bool { return dead(s.inst) }

func dead(inst driver.Instance) bool {
	select {
	case <-inst.Done():
		return true
	default:
		return false
	}
}

// claim gives a new sandbox, whose lifecycle lock the caller holds, a place of the pool;
// nil when there is none.
func (e *Engine) claim(s *sandbox, k pool.Kind) *spare {
	sp, ok := e.pool.Take(k)
	if ok {
		s.Assign(sp.place, sp.token, sp.below)
		sp.below = nil
	}
	return sp
}

// claimCopy is claim for what begins as a snapshot, if others can, too.
func (e *Engine) claimCopy(s *sandbox, k pool.Kind) *spare {
	if !e.snaps.Has(k.Snapshot) {
		return nil
	}
	return e.claim(s, k)
}

// discard frees spare places.
func (e *Engine) discard(spares []*spare) {
	visit(spares, func(_ int, s *spare) {
		e.scrap(s.inst, s.agent)
		if s.below != nil {
			s.below.Release()
		}
	})
}

// poolEvery is how often the pool is looked at when nobody asks for anything.
const poolEvery = 5 * time.Second

// keepPool keeps the pool filled, one place at a time, until the engine closes.
// One copy may be made beside: of many files it takes long.
func (e *Engine) keepPool() {
	tick := time.NewTicker(poolEvery)
	defer tick.Stop()
	var beside sync.WaitGroup
	defer func() {
		beside.Wait()
		e.discard(e.pool.Empty())
	}()
	for {
		roots := e.currentRoots()
		e.discard(e.pool.Surplus(func(k pool.Kind, s *spare) bool { return !reflect.DeepEqual(s.root, roots[k.Image]) }))
		for k, ok := e.pool.Lacks(); ok && e.calm(); k, ok = e.pool.Lacks() {
			if k.Snapshot == "" {
				e.stock(k)
			} else {
				e.pool.Copying(&k)
				beside.Go(func() {
					defer e.pool.Copying(nil)
					e.stock(k)
				})
			}
			e.discard(e.pool.Withdrawn())
		}
		select {
		case <-e.ctx.Done():
			return
		case <-e.pool.Changed():
		case <-tick.C:
		}
	}
}

// currentRoots looks at the images of the pool, which may take a while when that
// was not done lately: better here than while somebody waits for a sandbox.
func (e *Engine) currentRoots() map[string]image.Root {
	roots := map[string]image.Root{}
	for _, name := range e.pool.Images() {
		root, err := e.opt.Image(e.ctx, name)
		if err != nil && e.ctx.Err() == nil {
			e.log.Warn("look at an image", "image", name, "err", err)
		}
		roots[name] = root
	}
	return roots
}

// patience is how long the keeper of the pool makes way for calls that are
// under way: some never end.
const patience = 500 * time.Millisecond

// calm waits until making a place is in nobody's way. It is false when the
// engine closes.
func (e *Engine) calm() bool {
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for late := time.Now().Add(patience); ; {
		if e.creating.Load() == 0 && (e.calls.Load() == 0 || time.Now().After(late)) {
			return e.ctx.Err() == nil
		}
		select {
		case <-tick.C:
		case <-e.ctx.Done():
			return false
		}
	}
}

// stock adds a place to the pool, once it has shown that it can become
// somebody's.
func (e *Engine) stock(k pool.Kind) {
	s, err := e.prepare(k)
	if k.Snapshot == "" && !k.Vacant && errors.Is(err, hutch.Unsupported) {
		e.log.Info("no places are kept ready", "driver", k.Runtime, "why", err)
		e.pool.Refuse(k.Runtime, err)
		return
	}
	if err != nil {
		e.pool.Failed(k, err)
		if e.ctx.Err() == nil {
			e.log.Warn("make a spare place", "driver", k.Runtime, "snapshot", k.Snapshot, "err", err, "cause", hutch.AsError(err).Cause)
		}
		return
	}
	e.pool.Put(k, s)
	if k.Snapshot != "" && !e.snaps.Has(k.Snapshot) { // deleted while this was made
		e.pool.Withdraw(k.Snapshot)
	}
}

// prepare makes a place of a kind, which is nobody's.
func (e *Engine) prepare(k pool.Kind) (*spare, error) {
	root, err := e.opt.Image(e.ctx, k.Image)
	if err != nil {
		return nil, err
	}
	how, err := e.source(k)
	if err != nil {
		return nil, err
	}
	s := &spare{kind: k, place: hutch.NewID("w"), token: rand.Text(), root: root, below: how.below}
	spec := driver.Spec{ID: s.place, Root: root, Limits: k.Limits}
	if k.Vacant {
		s.inst, err = e.place(e.ctx, how.create, spec)
		return s, err
	}
	spec.Boot = boot(s.token, s.place, root.Env, k.Limits)
	if s.inst, s.agent, err = e.settle(e.ctx, how, spec); err != nil {
		if s.below != nil {
			s.below.Release()
		}
		return nil, err
	}
	if err := e.tryOut(s); err != nil {
		e.discard([]*spare{s})
		return nil, err
	}
	return s, nil
}

// tryOut has a place become somebody's for a first time, and get ready for the
// second.
func (e *Engine) tryOut(s *spare) error {
	env := append(s.root.Env[:len(s.root.Env):len(s.root.Env)], pairs(e.opt.Env)...)
	if err := s.adopt(e.ctx, wire.Identity{Hostname: "spare", Env: env}); err != nil {
		return err
	}
	e.warm(s)
	return s.wait(e.ctx)
}

// source is how a place of a kind is made.
func (e *Engine) source(k pool.Kind) (opening, error) {
	d, err := e.driver(k.Runtime)
	if err != nil {
		return opening{}, err
	}
	switch r, _ := driver.As[driver.Restorer](d); {
	case k.Vacant:
		return opening{create: func(ctx context.Context, spec driver.Spec) (driver.Instance, error) { return r.Prepare(ctx, spec) }}, nil
	case k.Snapshot != "":
		return e.copying(k, d, r)
	}
	return opening{create: d.Create}, nil
}

// copying is how a place begins as a snapshot for whoever will have it. It takes
// none of those that wait for that: somebody who wakes needs it more.
func (e *Engine) copying(k pool.Kind, d driver.Driver, r driver.Restorer) (opening, error) {
	snap, err := e.snaps.ByID(k.Snapshot)
	if err != nil {
		return opening{}, err
	}
	if err := snap.Verify(); err != nil {
		return opening{}, err
	}
	if k.Memory {
		return e.resume(snap, snap.Record.Env, r.Restore), nil
	}
	return e.withFilesOf(e.ctx, snap, d), nil
}

// restore makes a place in which goes on what a driver saved to dir: in one that
// waits for that, when there is one.
func (e *Engine) restore(ctx context.Context, r driver.Restorer, v hutch.Sandbox, spec driver.Spec, dir string) (driver.Instance, error) {
	s, ok := e.pool.Take(vacant(kindOf(v)))
	if !ok {
		return r.Restore(ctx, spec, dir)
	}
	place, ok := driver.As[driver.Vacancy](s.inst)
	if !ok {
		e.discard([]*spare{s})
		return r.Restore(ctx, spec, dir)
	}
	inst, err := place.Restore(ctx, dir)
	if err == nil || ctx.Err() != nil {
		return inst, err
	}
	e.log.Warn("use a vacant place", "place", s.place, "err", err, "cause", hutch.AsError(err).Cause)
	return r.Restore(ctx, spec, dir)
}

// warm has the interpreters wait in a place that the pool is to have ready. One
// that does not costs the first context of its language time, and nothing else.
func (e *Engine) warm(s *spare) {
	if s.kind.Memory {
		return
	}
	for _, w := range e.opt.Pool.Warm {
		req, err := w.context()
		if err == nil {
			err = s.agent.Spare(e.ctx, req)
		}
		if err != nil && e.ctx.Err() == nil {
			e.log.Warn("make a spare interpreter", "place", s.place, "language", w.Language, "err", err)
		}
	}
}
