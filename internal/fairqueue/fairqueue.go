// Package fairqueue limits how many jobs run at once, and is fair between their owners.
//
// A job can be slow because of what it depends on: an agent that a hostile program has taken over, or a service that
// answers a byte at a time. So a slow job lends its slot to a job of another owner, and owners take turns. A number of
// jobs is never exceeded, because each uses memory: owners who have that many slow jobs make others wait until one of
// those has ended.
package fairqueue

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"
)

// Queue limits jobs. It is safe for concurrent use.
type Queue struct {
	slow time.Duration // after which a job is slow
	most int           // most jobs that run at once, with those in lent slots; 0 for no limit

	mu      sync.Mutex
	free    int // slots
	running []*job
	waiting []*job         // in order
	turns   map[string]int // when an owner's last job began, for owners in the lists
	turn    int
}

// job has a slot, or waits for one.
type job struct {
	owner  string
	begun  chan struct{} // closed when it can begin
	timer  *time.Timer
	isSlow bool
	lent   *job // has its slot
	lender *job // whose slot it has; nil for one of its own
}

// New returns a queue with some slots. A job that takes longer than slow lends its slot, as long as at most most jobs
// run; 0 is no such limit.
func New(slots, most int, slow time.Duration) *Queue {
	return &Queue{slow: slow, most: most, free: slots, turns: map[string]int{}}
}

// Take waits until a job of an owner can begin. The caller calls end when it has ended.
func (q *Queue) Take(ctx context.Context, owner string) (end func(), err error) {
	j := &job{owner: owner, begun: make(chan struct{})}
	q.mu.Lock()
	q.waiting = append(q.waiting, j)
	q.beginLocked()
	q.mu.Unlock()
	select {
	case <-j.begun:
		return func() { q.end(j) }, nil
	case <-ctx.Done():
		q.end(j)
		return nil, context.Cause(ctx)
	}
}

// end removes a job, whether it has begun or not.
func (q *Queue) end(j *job) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if j.timer == nil {
		q.waiting = without(q.waiting, j)
		q.forgetLocked(j.owner)
		return
	}
	j.timer.Stop()
	q.running = without(q.running, j)
	switch {
	case j.lent != nil: // which keeps the slot
		j.lent.lender = j.lender
	case j.lender == nil:
		q.free++
	}
	if j.lender != nil {
		j.lender.lent = j.lent
	}
	q.forgetLocked(j.owner)
	q.beginLocked()
}

// forgetLocked forgets the turn of an owner that has no jobs.
func (q *Queue) forgetLocked(owner string) {
	has := func(j *job) bool { return j.owner == owner }
	if !slices.ContainsFunc(q.running, has) && !slices.ContainsFunc(q.waiting, has) {
		delete(q.turns, owner)
	}
}

// beginLocked begins jobs that wait, as long as there are slots for them.
func (q *Queue) beginLocked() {
	for q.beginNextLocked() {
	}
}

// beginNextLocked begins the first job for which there is a slot. It returns false if there is none.
func (q *Queue) beginNextLocked() bool {
	if q.most > 0 && len(q.running) >= q.most {
		return false
	}
	of := map[string]int{}
	for _, r := range q.running {
		of[r.owner]++
	}
	order := slices.Clone(q.waiting)
	slices.SortStableFunc(order, func(a, b *job) int {
		return cmp.Or(cmp.Compare(of[a.owner], of[b.owner]), cmp.Compare(q.turns[a.owner], q.turns[b.owner]))
	})
	for _, j := range order {
		switch slow := q.slowLocked(j.owner); {
		case q.free > 0:
			q.free--
		case slow != nil:
			slow.lent, j.lender = j, slow
		default:
			continue
		}
		q.waiting, q.running = without(q.waiting, j), append(q.running, j)
		q.turn++
		q.turns[j.owner] = q.turn
		j.timer = time.AfterFunc(q.slow, func() { q.becameSlow(j) })
		close(j.begun)
		return true
	}
	return false
}

// slowLocked returns a slow job of another owner that still has its slot.
func (q *Queue) slowLocked(owner string) *job {
	for _, r := range q.running {
		if r.isSlow && r.lent == nil && r.owner != owner {
			return r
		}
	}
	return nil
}

func (q *Queue) becameSlow(j *job) {
	q.mu.Lock()
	defer q.mu.Unlock()
	j.isSlow = true
	q.beginLocked()
}

func without(all []*job, j *job) []*job {
	return slices.DeleteFunc(all, func(other *job) bool { return other == j })
}
