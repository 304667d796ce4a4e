package egress

import "context"

// slots bound a resource of one sandbox. It can always use its own slots. It can use up to most slots while the pool of
// all sandboxes has free ones.
type slots struct {
	own, more, pool chan struct{}
}

func newSlots(own, most int, pool chan struct{}) slots {
	return slots{own: make(chan struct{}, own), more: make(chan struct{}, most-own), pool: pool}
}

// take waits for a slot; ok is false if ctx ends first. The caller gives the slot back.
func (s slots) take(ctx context.Context) (giveBack func(), ok bool) {
	if giveBack, ok = s.try(); ok {
		return giveBack, true
	}
	select {
	case s.own <- struct{}{}:
		return func() { <-s.own }, true
	case <-ctx.Done():
		return nil, false
	}
}

// try does the same as take, without waiting.
func (s slots) try() (giveBack func(), ok bool) {
	select {
	case s.own <- struct{}{}:
		return func() { <-s.own }, true
	default:
	}
	select {
	case s.more <- struct{}{}:
	default:
		return nil, false
	}
	select {
	case s.pool <- struct{}{}:
		return func() { <-s.pool; <-s.more }, true
	default:
		<-s.more
		return nil, false
	}
}
