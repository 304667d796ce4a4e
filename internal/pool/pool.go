package pool

import (
	"slices"
	"sync"
	"time"

	"hutch"
)

// Options limit a pool. The zero value keeps nothing ready.
type Options struct {
	Max int // most instances, of all kinds together
	// Room limits the total size of the instances that start from a snapshot, in bytes. The size of an instance is that
	// of its snapshot.
	Room int64
	// Short reports whether memory is short; then the pool keeps nothing. It can
	// be nil.
	Short func() bool
	// Retry is the pause of a kind after an instance of it could not be made.
	Retry time.Duration
}

// Kind has everything that distinguishes instances: two instances of one kind can replace each other. It is comparable.
type Kind struct {
	Runtime string
	Image   string
	User    string // as in a sandbox's record
	Limits  hutch.Limits
	// Snapshot is the id of the snapshot that the instances start from, and Memory reports whether they include its
	// running programs. Any caller that can use the snapshot can take any of these instances.
	Snapshot string
	Memory   bool
	Size     int64 // bytes of the snapshot
	// Vacant instances have started nothing: they wait for a sandbox with saved state.
	Vacant bool
}

// Instance is what a pool keeps.
type Instance interface {
	comparable
	// Dead reports whether the instance can no longer be used.
	Dead() bool
}

// bucket has the instances of a kind, and the demand for them.
type bucket[I Instance] struct {
	ready        []I // oldest first
	asked        demand
	last         time.Time // when the kind was last requested
	hits, misses int64
	fault        error     // why the last instance could not be made
	retry        time.Time // when to try again
}

// Pool is a set of ready instances. Its methods are safe for concurrent use.
type Pool[I Instance] struct {
	opt     Options
	least   map[Kind]int // how many instances of a kind to keep ready even without demand
	changed chan struct{}

	mu           sync.Mutex
	buckets      map[Kind]*bucket[I]
	unusable     map[string]error // runtimes whose instances cannot be given to a caller
	toFree       []I              // for the keeper to free
	copying      *Kind            // the kind of the copy that is being made
	hits, misses int64
}

// maxKinds limits the kinds that the pool remembers, in addition to the kinds with ready instances.
const maxKinds = 128

// New returns an empty pool. least has the number of instances of a kind to keep ready even without demand; other kinds
// do not displace them.
func New[I Instance](opt Options, least map[Kind]int) *Pool[I] {
	p := &Pool[I]{
		opt: opt, least: least, changed: make(chan struct{}, 1),
		buckets: map[Kind]*bucket[I]{}, unusable: map[string]error{},
	}
	for k := range least {
		p.buckets[k] = &bucket[I]{}
	}
	return p
}

// Changed returns a channel that has a value when the keeper should check the pool.
func (p *Pool[I]) Changed() <-chan struct{} { return p.changed }

// Take returns an instance of a kind; ok is false if no instance is ready.
func (p *Pool[I]) Take(k Kind) (taken I, ok bool) {
	if p.opt.Max == 0 {
		return taken, false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	b := p.noteLocked(k)
	for i, inst := range b.ready {
		if !inst.Dead() { // Surplus removes the dead ones
			b.ready = slices.Delete(b.ready, i, i+1)
			b.hits++
			countCreate(k, &p.hits)
			return inst, true
		}
	}
	b.misses++
	countCreate(k, &p.misses)
	return taken, false
}

// countCreate counts a create. A wake in a vacant instance is not a create.
func countCreate(k Kind, n *int64) {
	if !k.Vacant {
		*n++
	}
}

// noteLocked records a request for a kind, and wakes the keeper.
func (p *Pool[I]) noteLocked(k Kind) *bucket[I] {
	b := p.buckets[k]
	if b == nil {
		b = &bucket[I]{}
		p.forgetOldestLocked()
		p.buckets[k] = b
	}
	b.last = time.Now()
	b.asked.note(b.last)
	p.wakeLocked()
	return b
}

// forgetOldestLocked forgets a kind if there are too many, so that a caller that requests ever new kinds cannot
// displace the kinds in use. It forgets the kind with the oldest request among those without ready instances.
func (p *Pool[I]) forgetOldestLocked() {
	if len(p.buckets) < maxKinds {
		return
	}
	var oldest Kind
	at := time.Now()
	for k, b := range p.buckets {
		if len(b.ready) == 0 && p.least[k] == 0 && b.last.Before(at) {
			oldest, at = k, b.last
		}
	}
	delete(p.buckets, oldest)
}

// wakeLocked makes the keeper check the pool.
func (p *Pool[I]) wakeLocked() {
	select {
	case p.changed <- struct{}{}:
	default:
	}
}

// Put adds a ready instance.
func (p *Pool[I]) Put(k Kind, inst I) {
	p.mu.Lock()
	defer p.mu.Unlock()
	b := p.buckets[k]
	if b == nil { // the kind was forgotten meanwhile
		b = &bucket[I]{}
		p.buckets[k] = b
	}
	b.ready = append(b.ready, inst)
	b.fault = nil
}

// Copying records the kind of the copy that is being made; nil when the copy is done. Until then it counts as an
// instance, and no second copy is started.
func (p *Pool[I]) Copying(k *Kind) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.copying = k
	p.wakeLocked()
}

// Failed records that an instance could not be made. For a while, the pool prefers other kinds.
func (p *Pool[I]) Failed(k Kind, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if b := p.buckets[k]; b != nil {
		b.fault, b.retry = err, time.Now().Add(p.opt.Retry)
	}
}

// Refuse makes the pool keep no more instances of a runtime.
func (p *Pool[I]) Refuse(runtime string, why error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.unusable[runtime] = why
}

func (p *Pool[I]) short() bool { return p.opt.Short != nil && p.opt.Short() }

// wantsLocked returns how many instances of each kind the pool should have. Vacant instances get only the slots that
// the other kinds leave: without an instance of another kind, a create has to wait, while a vacant instance saves at
// most half of that time. A kind whose last instance could not be made gets no slots.
func (p *Pool[I]) wantsLocked(now time.Time) map[Kind]int {
	wants, left := make(map[Kind]int, len(p.buckets)), p.opt.Max
	for k, b := range p.buckets {
		if p.unusable[k.Runtime] != nil {
			wants[k] = 0
			continue
		}
		wants[k] = min(max(b.asked.most(now), p.least[k]), p.opt.Max)
		switch {
		case k.Vacant || b.fault != nil:
			left -= p.least[k]
		case k.Size > 0: // Room limits copies, too
			left -= int(min(int64(wants[k]), p.opt.Room/k.Size))
		default:
			left -= wants[k]
		}
	}
	for k, n := range wants {
		if k.Vacant {
			wants[k] = min(n, p.least[k]+max(0, left))
		}
	}
	return wants
}

// hasRoomLocked reports whether the limits allow one more instance of a kind.
func (p *Pool[I]) hasRoomLocked(k Kind) bool {
	free, held, promised := p.opt.Max, int64(0), 0
	if p.copying != nil {
		free, held = free-1, p.copying.Size
	}
	for other, b := range p.buckets {
		free -= len(b.ready)
		held += other.Size * int64(len(b.ready))
		promised += max(0, p.least[other]-len(b.ready))
	}
	if len(p.buckets[k].ready) >= p.least[k] {
		free -= promised
	}
	return free > 0 && (k.Snapshot == "" || held+k.Size <= p.opt.Room)
}

// Lacks returns the kind that lacks the most instances, within the limits. Kinds that are always kept ready come first.
// ok is false if no kind lacks any.
func (p *Pool[I]) Lacks() (worst Kind, ok bool) {
	if p.short() {
		return Kind{}, false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	now, most := time.Now(), 0
	wants := p.wantsLocked(now)
	for k, b := range p.buckets {
		if k.Snapshot != "" && p.copying != nil {
			continue
		}
		n := wants[k] - len(b.ready)
		if len(b.ready) < p.least[k] {
			n += p.opt.Max
		}
		if n > most && now.After(b.retry) && p.hasRoomLocked(k) {
			worst, most = k, n
		}
	}
	return worst, most > 0
}

// Images returns the images that ready instances were made from.
func (p *Pool[I]) Images() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	var names []string
	for k, b := range p.buckets {
		if len(b.ready) > 0 && !slices.Contains(names, k.Image) {
			names = append(names, k.Image)
		}
	}
	return names
}

// Surplus removes and returns the instances that are dead, outdated, no longer wanted or withdrawn. It also forgets
// kinds without requests.
func (p *Pool[I]) Surplus(stale func(Kind, I) bool) []I {
	short := p.short()
	p.mu.Lock()
	defer p.mu.Unlock()
	copies := short && p.hasCopiesLocked() // then only copies are freed, which can be enough
	out := p.withdrawnLocked()
	now := time.Now()
	wants := p.wantsLocked(now)
	for k, b := range p.buckets {
		kept, want := 0, wants[k]
		if short && (k.Snapshot != "" || !copies) {
			want = 0
		}
		b.ready = slices.DeleteFunc(b.ready, func(inst I) bool {
			if kept < want && !inst.Dead() && !stale(k, inst) {
				kept++
				return false
			}
			out = append(out, inst)
			return true
		})
		if len(b.ready) == 0 && p.least[k] == 0 && b.asked.forgotten(now) {
			delete(p.buckets, k)
		}
	}
	return out
}

// hasCopiesLocked reports whether there are instances that start from a snapshot.
func (p *Pool[I]) hasCopiesLocked() bool {
	for k, b := range p.buckets {
		if k.Snapshot != "" && len(b.ready) > 0 {
			return true
		}
	}
	return false
}

// Withdraw makes the instances of a deleted snapshot unavailable to callers. Withdrawn and Surplus pass them to the
// keeper.
func (p *Pool[I]) Withdraw(snapshot string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for k, b := range p.buckets {
		if k.Snapshot == snapshot {
			p.toFree = append(p.toFree, b.ready...)
			delete(p.buckets, k)
		}
	}
	p.wakeLocked()
}

// Withdrawn removes and returns the withdrawn instances.
func (p *Pool[I]) Withdrawn() []I {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.withdrawnLocked()
}

func (p *Pool[I]) withdrawnLocked() []I {
	out := p.toFree
	p.toFree = nil
	return out
}

// Empty removes everything.
func (p *Pool[I]) Empty() []I {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := p.withdrawnLocked()
	for _, b := range p.buckets {
		out = append(out, b.ready...)
		b.ready = nil
	}
	return out
}
