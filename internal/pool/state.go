package pool

import (
	"cmp"
	"slices"
	"time"

	"hutch"
)

// State reports the instances that the pool has, and those that it has yet to make.
func (p *Pool[I]) State() hutch.PoolState {
	short := p.short()
	p.mu.Lock()
	defer p.mu.Unlock()
	state := hutch.PoolState{Max: p.opt.Max, Hits: p.hits, Misses: p.misses, Kinds: []hutch.PoolKind{}}
	now := time.Now()
	wants := p.wantsLocked(now)
	for k, b := range p.buckets {
		v := hutch.PoolKind{
			Runtime: k.Runtime, Image: k.Image, Limits: k.Limits, Snapshot: k.Snapshot, Memory: k.Memory, Vacant: k.Vacant,
			Ready: len(b.ready), Wanted: wants[k], Hits: b.hits, Misses: b.misses,
		}
		if v.Ready < v.Wanted || v.Wanted == 0 {
			v.Why = p.whyLocked(k, b, v.Wanted, short, now)
		}
		if k.Vacant {
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

// whyLocked explains why the pool has fewer instances of a kind than wanted, or why it wants none.
func (p *Pool[I]) whyLocked(k Kind, b *bucket[I], wanted int, short bool, now time.Time) string {
	unfit := p.unusable[k.Runtime]
	switch {
	case p.opt.Max == 0:
		return "the pool is off"
	case unfit != nil:
		return unfit.Error()
	case wanted == 0 && b.asked.most(now) > 0:
		return "instances of other kinds need all places"
	case wanted == 0:
		return "it was not asked for twice within ten minutes"
	case short:
		return "the memory of the machine is short"
	case b.fault != nil:
		return "the last one could not be made: " + b.fault.Error()
	case !p.hasRoomLocked(k):
		return "there is no room for more"
	}
	return "they are being made"
}
