package instance

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"
)

// starts limits how many instances are made at once: more would only delay each of them. A start can be slow because of
// what runs in the instance: an agent that a hostile program has taken over, and whose memory is restored, does not
// answer. So a slow start lends its place to one of another owner, and owners take turns.
type starts struct {
	slow time.Duration // after which a start is slow

	mu      sync.Mutex
	free    int
	running []*start
	waiting []*start       // in order
	turns   map[string]int // when an owner's last start began, for owners in the lists
	turn    int
}

// start is one instance that is being made.
type start struct {
	owner  string
	begun  chan struct{} // closed when it can begin
	timer  *time.Timer
	isSlow bool
	lent   *start // has its place
	lender *start // whose place it has; nil for one of its own
}

// slowStart is how long an ordinary start takes at most, on a busy machine.
const slowStart = 5 * time.Second

func newStarts(places int, slow time.Duration) *starts {
	return &starts{slow: slow, free: places, turns: map[string]int{}}
}

// take waits until a start of an owner can begin. The caller calls end when it has ended.
func (l *starts) take(ctx context.Context, owner string) (end func(), err error) {
	s := &start{owner: owner, begun: make(chan struct{})}
	l.mu.Lock()
	l.waiting = append(l.waiting, s)
	l.beginLocked()
	l.mu.Unlock()
	select {
	case <-s.begun:
		return func() { l.end(s) }, nil
	case <-ctx.Done():
		l.end(s)
		return nil, context.Cause(ctx)
	}
}

// end removes a start, whether it has begun or not.
func (l *starts) end(s *start) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if s.timer == nil {
		l.waiting = without(l.waiting, s)
		l.forgetLocked(s.owner)
		return
	}
	s.timer.Stop()
	l.running = without(l.running, s)
	switch {
	case s.lent != nil: // which keeps the place
		s.lent.lender = s.lender
	case s.lender == nil:
		l.free++
	}
	if s.lender != nil {
		s.lender.lent = s.lent
	}
	l.forgetLocked(s.owner)
	l.beginLocked()
}

// forgetLocked forgets the turn of an owner that has no starts.
func (l *starts) forgetLocked(owner string) {
	has := func(s *start) bool { return s.owner == owner }
	if !slices.ContainsFunc(l.running, has) && !slices.ContainsFunc(l.waiting, has) {
		delete(l.turns, owner)
	}
}

// beginLocked begins starts that wait, as long as there are places for them.
func (l *starts) beginLocked() {
	for l.beginNextLocked() {
	}
}

// beginNextLocked begins the first start for which there is a place. It returns false if there is none.
func (l *starts) beginNextLocked() bool {
	of := map[string]int{}
	for _, r := range l.running {
		of[r.owner]++
	}
	order := slices.Clone(l.waiting)
	slices.SortStableFunc(order, func(a, b *start) int {
		return cmp.Or(cmp.Compare(of[a.owner], of[b.owner]), cmp.Compare(l.turns[a.owner], l.turns[b.owner]))
	})
	for _, s := range order {
		switch slow := l.slowLocked(s.owner); {
		case l.free > 0:
			l.free--
		case slow != nil:
			slow.lent, s.lender = s, slow
		default:
			continue
		}
		l.waiting, l.running = without(l.waiting, s), append(l.running, s)
		l.turn++
		l.turns[s.owner] = l.turn
		s.timer = time.AfterFunc(l.slow, func() { l.becameSlow(s) })
		close(s.begun)
		return true
	}
	return false
}

// slowLocked returns a slow start of another owner that still has its place.
func (l *starts) slowLocked(owner string) *start {
	for _, r := range l.running {
		if r.isSlow && r.lent == nil && r.owner != owner {
			return r
		}
	}
	return nil
}

func (l *starts) becameSlow(s *start) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s.isSlow = true
	l.beginLocked()
}

func without(all []*start, s *start) []*start {
	return slices.DeleteFunc(all, func(other *start) bool { return other == s })
}
