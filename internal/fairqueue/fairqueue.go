// Package fairqueue limits how many jobs run at once, and is fair between their owners.
//
// A job can be slow because of what it depends on: an agent that a hostile program has taken over, or a service that
// answers a byte at a time. So a slow job lends its slot to a job of another owner, and owners take turns. The number
// of jobs has a limit, because each job uses memory. At the limit, a slow job is ended if an owner without a job waits:
// the slow job whose owner has used the queue the longest. So each owner gets at least the time in which a job is not
// slow, and the time that others leave. No owner waits much longer than that, however many owners have jobs that never
// end.
package fairqueue

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"math"
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
	used    map[string]usage // by owner, for owners that used the queue not long ago
}

// usage is how long jobs of an owner have run. It halves with time, so that old use counts less.
type usage struct {
	time time.Duration
	at   time.Time
}

// halfLife is the time in which a usage halves, as a multiple of the time after which a job is slow.
const halfLife = 20

// ErrShare is the cause when the context of a job ends because the job has to make room for another owner. Only jobs
// that were started with Begin end in this way.
var ErrShare = errors.New("jobs of other owners wait, and this one has had its share")

// job has a slot, or waits for one.
type job struct {
	owner  string
	begun  chan struct{} // closed when the job can begin
	timer  *time.Timer
	began  time.Time
	isSlow bool
	over   bool
	cancel context.CancelCauseFunc // nil for a job that cannot be ended
	ending bool                    // cancel was called
	lent   *job                    // the job that uses this job's slot
	lender *job                    // the job whose slot this job uses; nil if it has a slot of its own
}

// New returns a queue with some slots. A job that takes longer than slow lends its slot to another job, as long as the
// number of jobs that run stays within most. If most is 0, this number has no limit, and no job is ended.
func New(slots, most int, slow time.Duration) *Queue {
	return &Queue{slow: slow, most: most, free: slots, turns: map[string]int{}, used: map[string]usage{}}
}

// Take waits until a job of an owner can begin. The caller calls end when it has ended.
func (q *Queue) Take(ctx context.Context, owner string) (end func(), err error) {
	return q.take(ctx, &job{owner: owner, begun: make(chan struct{})})
}

// Begin does the same as Take, for a job that can be ended: when its context ends with [ErrShare], the job has to end
// soon, and its caller calls end.
func (q *Queue) Begin(ctx context.Context, owner string) (_ context.Context, end func(), err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	free, err := q.take(ctx, &job{owner: owner, begun: make(chan struct{}), cancel: cancel})
	if err != nil {
		cancel(nil)
		return nil, nil, err
	}
	return ctx, func() { free(); cancel(nil) }, nil
}

func (q *Queue) take(ctx context.Context, j *job) (end func(), err error) {
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
	j.over = true
	if j.timer == nil {
		q.waiting = without(q.waiting, j)
		q.forgetLocked(j.owner)
		return
	}
	j.timer.Stop()
	q.noteLocked(j)
	q.running = without(q.running, j)
	switch {
	case j.lent != nil: // the borrower keeps the slot
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

// noteLocked adds a job that has ended to the usage of its owner.
func (q *Queue) noteLocked(j *job) {
	if q.most == 0 {
		return
	}
	now := time.Now()
	q.used[j.owner] = usage{q.leftLocked(j.owner, now) + now.Sub(j.began), now}
	maps.DeleteFunc(q.used, func(owner string, _ usage) bool { return q.leftLocked(owner, now) < q.slow/2 })
}

// leftLocked returns how much of an owner's usage has not decayed yet. Running jobs are not part of it.
func (q *Queue) leftLocked(owner string, now time.Time) time.Duration {
	u := q.used[owner]
	return time.Duration(float64(u.time) * math.Exp2(-float64(now.Sub(u.at))/float64(halfLife*q.slow)))
}

// usedLocked returns the usage of each owner that has jobs.
func (q *Queue) usedLocked() map[string]time.Duration {
	now, all := time.Now(), map[string]time.Duration{}
	for _, j := range slices.Concat(q.running, q.waiting) {
		if _, ok := all[j.owner]; !ok {
			all[j.owner] = q.leftLocked(j.owner, now)
		}
		if j.timer != nil {
			all[j.owner] += now.Sub(j.began)
		}
	}
	return all
}

// beginLocked begins jobs that wait, as long as there are slots for them, and makes room for jobs of owners that have
// none running.
func (q *Queue) beginLocked() {
	for q.beginNextLocked() {
	}
	if q.most > 0 && len(q.running) >= q.most && len(q.waiting) > 0 {
		q.endSlowLocked()
	}
}

// endSlowLocked ends slow jobs: one for each waiting owner that has no running job and has used the queue for a shorter
// time than the owner of the slow job.
func (q *Queue) endSlowLocked() {
	used, has := q.usedLocked(), map[string]bool{}
	var slow []*job
	ending := 0
	for _, j := range q.running {
		has[j.owner] = true
		switch {
		case j.ending:
			ending++
		case j.isSlow && j.cancel != nil:
			slow = append(slow, j)
		}
	}
	var owners []string
	for _, j := range q.waiting {
		if !has[j.owner] {
			has[j.owner] = true
			owners = append(owners, j.owner)
		}
	}
	slices.SortStableFunc(owners, func(a, b string) int { return cmp.Compare(used[a], used[b]) })
	slices.SortStableFunc(slow, func(a, b *job) int { return cmp.Compare(used[b.owner], used[a.owner]) })
	for i, j := range slow {
		if ending+i >= len(owners) || used[j.owner] < used[owners[ending+i]]+q.slow {
			return
		}
		j.ending = true
		j.cancel(ErrShare)
	}
}

// beginNextLocked begins the first job for which there is a slot. It returns false if there is no such job.
func (q *Queue) beginNextLocked() bool {
	if q.most > 0 && len(q.running) >= q.most {
		return false
	}
	of := map[string]int{}
	for _, r := range q.running {
		of[r.owner]++
	}
	order, used := slices.Clone(q.waiting), map[string]time.Duration{}
	if q.most > 0 {
		used = q.usedLocked()
	}
	slices.SortStableFunc(order, func(a, b *job) int {
		return cmp.Or(cmp.Compare(of[a.owner], of[b.owner]), cmp.Compare(used[a.owner]/q.slow, used[b.owner]/q.slow), cmp.Compare(q.turns[a.owner], q.turns[b.owner]))
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
		j.began = time.Now()
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
	if j.over {
		return
	}
	j.isSlow = true
	q.beginLocked()
	if q.most > 0 {
		j.timer.Reset(q.slow) // by then, the owner has used more time than owners that only wait
	}
}

func without(all []*job, j *job) []*job {
	return slices.DeleteFunc(all, func(other *job) bool { return other == j })
}
