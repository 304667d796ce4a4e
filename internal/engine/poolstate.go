package engine

import (
	"cmp"
	"context"
	"slices"
	"time"

	"hutch"
)

var _ hutch.Pools = (*Engine)(nil)

// Pool implements hutch.Pools.
func (e *Engine) Pool(context.Context) (hutch.PoolState, error) { return e.PoolState(), nil }

// PoolState tells how the pool does.
func (e *Engine) PoolState() hutch.PoolState { return e.pool.tell() }

func (p *pool) tell() hutch.PoolState {
	short := p.short()
	p.mu.Lock()
	defer p.mu.Unlock()
	state := hutch.PoolState{Max: p.Max, Hits: p.hits, Misses: p.misses, Kinds: []hutch.PoolKind{}}
	now := time.Now()
	for k, sh := range p.shelves {
		v := hutch.PoolKind{
			Runtime: k.runtime, Image: k.image, Limits: k.limits, Snapshot: k.snapshot, Memory: k.memory, Vacant: k.vacant,
			Ready: len(sh.ready), Wanted: p.wantLocked(k, now), Hits: sh.hits, Misses: sh.misses,
		}
		if v.Ready < v.Wanted || v.Wanted == 0 {
			v.Why = p.whyLocked(k, sh, v.Wanted, short)
		}
		if k.vacant {
			state.Vacant += v.Ready
		} else {
			state.Ready += v.Ready
		}
		state.Kinds = append(state.Kinds, v)
	}
	slices.SortFunc(state.Kinds, func(a, b hutch.PoolKind) int {
		return cmp.Or(cmp.Compare(b.Wanted, a.Wanted), cmp.Compare(a.Runtime, b.Runtime), cmp.Compare(a.Image, b.Image),
			cmp.Compare(a.Snapshot, b.Snapshot), cmp.Compare(a.Limits.Memory, b.Limits.Memory))
	})
	return state
}

// whyLocked says why there are not as many of a kind as are wanted.
func (p *pool) whyLocked(k kind, sh *shelf, wanted int, short bool) string {
	unfit := p.unfit[k.runtime]
	switch {
	case p.Max == 0:
		return "the pool is off"
	case unfit != nil:
		return unfit.Error()
	case wanted == 0:
		return "it was not asked for twice within ten minutes"
	case short:
		return "the memory of the machine is short"
	case sh.fault != nil:
		return "the last one could not be made: " + sh.fault.Error()
	case !p.roomLocked(k):
		return "there is no room for more"
	}
	return "they are being made"
}
