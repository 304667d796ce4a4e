package engine

import (
	"context"
	"crypto/rand"
	"errors"
	"reflect"
	"time"

	"hutch"
	"hutch/internal/driver"
	"hutch/internal/image"
	"hutch/internal/wire"
)

// spare is a place that is nobody's yet. Nothing has run in it but its agent,
// and in a vacant one nothing at all.
type spare struct {
	kind
	place, token string
	root         image.Root
	inst         driver.Instance // of a vacant one a driver.Vacancy
	agent        *wire.Client    // of a vacant one nil
}

// adoptTime bounds how long a spare place may take to become somebody's.
const adoptTime = 2 * time.Second

// adopt makes the place one that has this name and environment.
func (s *spare) adopt(ctx context.Context, hostname string, env []string) error {
	ctx, cancel := context.WithTimeout(ctx, adoptTime)
	defer cancel()
	if r, ok := s.inst.(driver.Renamer); ok {
		if err := r.Rename(hostname); err != nil {
			return err
		}
	}
	return s.agent.Adopt(ctx, wire.Identity{Hostname: hostname, Env: env})
}

// become makes the place what it would have been made as from that.
func (s *spare) become(ctx context.Context, spec driver.Spec) error {
	if !reflect.DeepEqual(s.root, spec.Root) {
		return errors.New("the image is not as it was")
	}
	return s.adopt(ctx, spec.Boot.Hostname, spec.Boot.Env)
}

func (s *spare) dead() bool {
	select {
	case <-s.inst.Done():
		return true
	default:
		return false
	}
}

// PoolState tells how the pool does.
func (e *Engine) PoolState() PoolState {
	e.pool.mu.Lock()
	defer e.pool.mu.Unlock()
	state := e.pool.state
	state.Ready, state.Vacant = e.pool.readyLocked()
	return state
}

// claim gives a new sandbox, whose turn the caller holds, a place of the pool;
// nil when there is none.
func (e *Engine) claim(s *sandbox) *spare {
	s.mu.Lock()
	defer s.mu.Unlock()
	sp := e.pool.take(kindOf(s.rec.Sandbox))
	if sp != nil {
		s.place, s.rec.Place, s.rec.Token = sp.place, sp.place, sp.token
	}
	return sp
}

// discard frees spare places.
func (e *Engine) discard(spares []*spare) {
	visit(spares, func(_ int, s *spare) {
		if s.agent != nil {
			s.agent.Close()
		}
		if err := e.raze(s.inst); err != nil {
			e.log.Error("remove a spare place", "place", s.place, "err", err)
		}
	})
}

// poolEvery is how often the pool is looked at when nobody asks for anything.
const poolEvery = 5 * time.Second

// keepPool keeps the pool filled, one place at a time, until the engine closes.
func (e *Engine) keepPool() {
	tick := time.NewTicker(poolEvery)
	defer tick.Stop()
	defer func() { e.discard(e.pool.empty()) }()
	for {
		e.discard(e.pool.surplus(e.currentRoots()))
		for k, ok := e.pool.lacks(); ok && e.calm(); k, ok = e.pool.lacks() {
			if err := e.stock(k); err != nil {
				if e.ctx.Err() == nil {
					e.log.Warn("make a spare place", "driver", k.runtime, "err", err, "cause", hutch.AsError(err).Cause)
				}
				break // until the next tick
			}
		}
		select {
		case <-e.ctx.Done():
			return
		case <-e.pool.stir:
		case <-tick.C:
		}
	}
}

// currentRoots looks at the images of the pool, which may take a while when that
// was not done lately: better here than while somebody waits for a sandbox.
func (e *Engine) currentRoots() map[string]image.Root {
	roots := map[string]image.Root{}
	for _, name := range e.pool.images() {
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
func (e *Engine) stock(k kind) error {
	d, err := e.driver(k.runtime)
	if err != nil {
		return err
	}
	root, err := e.opt.Image(e.ctx, k.image)
	if err != nil {
		return err
	}
	s := &spare{kind: k, place: hutch.NewID("w"), token: rand.Text(), root: root}
	if k.vacant {
		return e.vacate(d.(driver.Restorer), s)
	}
	s.inst, err = e.place(e.ctx, d.Create, driver.Spec{ID: s.place, Root: root, Limits: k.limits, Boot: boot(s.token, s.place, root.Env, k.limits)})
	if err != nil {
		return err
	}
	s.agent = wire.NewClient(s.inst.Dial, s.token)
	err = s.adopt(e.ctx, "spare", append(root.Env[:len(root.Env):len(root.Env)], pairs(e.opt.Env)...))
	if err == nil {
		e.warm(s)
		e.pool.put(s)
		return nil
	}
	e.discard([]*spare{s})
	if errors.Is(err, hutch.Unsupported) {
		e.log.Info("no places are kept ready", "driver", k.runtime, "why", err)
		e.pool.refuse(k.runtime)
		return nil
	}
	return err
}

// vacate adds a place to the pool that waits for something which was saved.
func (e *Engine) vacate(r driver.Restorer, s *spare) (err error) {
	prepare := func(ctx context.Context, spec driver.Spec) (driver.Instance, error) { return r.Prepare(ctx, spec) }
	s.inst, err = e.place(e.ctx, prepare, driver.Spec{ID: s.place, Root: s.root, Limits: s.limits})
	if err == nil {
		e.pool.put(s)
	}
	return err
}

// restore makes a place in which goes on what a driver saved to dir: in one that
// waits for that, when there is one.
func (e *Engine) restore(ctx context.Context, r driver.Restorer, v hutch.Sandbox, spec driver.Spec, dir string) (driver.Instance, error) {
	s := e.pool.take(kindOf(v).vacated())
	if s == nil {
		return r.Restore(ctx, spec, dir)
	}
	inst, err := s.inst.(driver.Vacancy).Restore(ctx, dir)
	if err == nil || ctx.Err() != nil {
		return inst, err
	}
	e.log.Warn("use a vacant place", "place", s.place, "err", err, "cause", hutch.AsError(err).Cause)
	return r.Restore(ctx, spec, dir)
}

// warm has the interpreters wait in a place that the pool is to have ready. One
// that does not costs the first context of its language time, and nothing else.
func (e *Engine) warm(s *spare) {
	for _, w := range e.pool.Warm {
		req, err := w.context()
		if err == nil {
			err = s.agent.Spare(e.ctx, req)
		}
		if err != nil && e.ctx.Err() == nil {
			e.log.Warn("make a spare interpreter", "place", s.place, "language", w.Language, "err", err)
		}
	}
}
