package engine

import (
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"hutch"
	"hutch/internal/image"
	"hutch/internal/kernel"
	"hutch/internal/wire"
)

// Pool says how many places are kept ready for sandboxes to come. How many
// there are follows what is asked for; the zero Pool keeps none.
type Pool struct {
	Max int // places at most, of all kinds together
	Min int // of the default kind, also when nobody asks; others do not get their room
	// Room is how many bytes places that begin as a snapshot may take together,
	// by the size of that.
	Room int64
	// Warm are the interpreters that wait in each place, for its first context
	// of their language. A snapshot has its own.
	Warm []Warm
	// Short reports whether memory is short; then none are kept. It may be nil.
	Short func() bool
}

// Warm is an interpreter with what it has imported.
type Warm struct {
	Language string
	Modules  []string
}

// ParseWarm reads "python" and "python=pandas,numpy".
func ParseWarm(text string) (Warm, error) {
	language, modules, some := strings.Cut(text, "=")
	w := Warm{Language: language}
	if some {
		w.Modules = strings.Split(modules, ",")
	}
	_, err := w.context()
	return w, err
}

func (w Warm) context() (wire.Context, error) {
	k, err := kernel.Lookup(w.Language)
	if err != nil {
		return wire.Context{}, err
	}
	return k.Spare(w.Modules)
}

// kind is what places have in common of which one is as good as the other.
type kind struct {
	runtime string
	image   string
	limits  hutch.Limits
	// snapshot is the id of what they begin as, and memory whether that is with
	// what was running. Who may begin as one, may have any of them.
	snapshot string
	memory   bool
	size     int64 // of the snapshot
	// vacant are those that wait for something which was saved.
	vacant bool
}

func kindOf(v hutch.Sandbox) kind { return kind{runtime: v.Runtime, image: v.Image, limits: v.Limits} }

func (k kind) vacated() kind {
	k.vacant = true
	return k
}

// shelf is the places of a kind, and what is known of the demand for them.
type shelf struct {
	ready        []*spare // oldest first
	asked        demand
	last         time.Time // that it was asked for
	hits, misses int64
	fault        error // of the last that was made, and when to try again
	retry        time.Time
}

// pool is the spare places. Whoever takes one has it alone.
type pool struct {
	Pool
	least map[kind]int  // how many there are also when nobody asks
	stir  chan struct{} // for the keeper to look

	mu           sync.Mutex
	shelves      map[kind]*shelf
	unfit        map[string]error // runtimes whose places cannot become somebody's
	doomed       []*spare         // for the keeper to free
	copying      *kind            // of the copy that is being made
	hits, misses int64
}

// maxKinds is of how many kinds the pool remembers that they were asked for, next
// to those that are ready.
const maxKinds = 128

func newPool(p Pool, least map[kind]int) *pool {
	n := &pool{
		Pool: p, least: least, stir: make(chan struct{}, 1),
		shelves: map[kind]*shelf{}, unfit: map[string]error{},
	}
	for k := range least {
		n.shelves[k] = &shelf{}
	}
	return n
}

// take returns a place of a kind, or nil when there is none.
func (p *pool) take(k kind) *spare {
	if p.Max == 0 {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	sh := p.noteLocked(k)
	for i, s := range sh.ready {
		if !s.dead() { // those the keeper removes
			sh.ready = slices.Delete(sh.ready, i, i+1)
			sh.hits++
			countCreate(k, &p.hits)
			return s
		}
	}
	sh.misses++
	countCreate(k, &p.misses)
	return nil
}

// countCreate counts one; to go on in a vacant place is none.
func countCreate(k kind, n *int64) {
	if !k.vacant {
		*n++
	}
}

// noteLocked remembers that a kind was asked for, and wakes the keeper.
func (p *pool) noteLocked(k kind) *shelf {
	sh := p.shelves[k]
	if sh == nil {
		sh = &shelf{}
		p.makeRoomLocked()
		p.shelves[k] = sh
	}
	sh.last = time.Now()
	sh.asked.note(sh.last)
	p.wakeLocked()
	return sh
}

// makeRoomLocked forgets a kind if there are too many: whoever asks for ever new
// ones shall not keep the pool from those that are in use. It goes that was asked
// for longest ago, of those of which none is ready.
func (p *pool) makeRoomLocked() {
	if len(p.shelves) < maxKinds {
		return
	}
	var oldest kind
	at := time.Now()
	for k, sh := range p.shelves {
		if len(sh.ready) == 0 && p.least[k] == 0 && sh.last.Before(at) {
			oldest, at = k, sh.last
		}
	}
	delete(p.shelves, oldest)
}

// wakeLocked has the keeper look.
func (p *pool) wakeLocked() {
	select {
	case p.stir <- struct{}{}:
	default:
	}
}

// put adds a place to those that are ready.
func (p *pool) put(s *spare) {
	p.mu.Lock()
	defer p.mu.Unlock()
	sh := p.shelves[s.kind]
	if sh == nil { // forgotten meanwhile
		sh = &shelf{}
		p.shelves[s.kind] = sh
	}
	sh.ready = append(sh.ready, s)
	sh.fault = nil
}

// copies says of which kind a copy is being made; nil when none is.
func (p *pool) copies(k *kind) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.copying = k
	p.wakeLocked()
}

// failed notes that no place of a kind could be made: others come first now.
func (p *pool) failed(k kind, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if sh := p.shelves[k]; sh != nil {
		sh.fault, sh.retry = err, time.Now().Add(poolEvery)
	}
}

func (p *pool) short() bool { return p.Short != nil && p.Short() }

// wantLocked is how many of a kind there should be.
func (p *pool) wantLocked(k kind, now time.Time) int {
	if p.unfit[k.runtime] != nil {
		return 0
	}
	return min(max(p.shelves[k].asked.most(now), p.least[k]), p.Max)
}

// roomLocked reports whether there is room for one more of a kind.
func (p *pool) roomLocked(k kind) bool {
	free, held, promised := p.Max, int64(0), 0
	if p.copying != nil {
		free, held = free-1, p.copying.size
	}
	for other, sh := range p.shelves {
		free -= len(sh.ready)
		held += other.size * int64(len(sh.ready))
		promised += max(0, p.least[other]-len(sh.ready))
	}
	if len(p.shelves[k].ready) >= p.least[k] {
		free -= promised
	}
	return free > 0 && (k.snapshot == "" || held+k.size <= p.Room)
}

// lacks returns the kind of which most are missing, and can be made, those first
// that are ready always; ok is false when there is none.
func (p *pool) lacks() (worst kind, ok bool) {
	if p.short() {
		return kind{}, false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	now, most := time.Now(), 0
	for k, sh := range p.shelves {
		if k.snapshot != "" && p.copying != nil {
			continue
		}
		n := p.wantLocked(k, now) - len(sh.ready)
		if len(sh.ready) < p.least[k] {
			n += p.Max
		}
		if n > most && now.After(sh.retry) && p.roomLocked(k) {
			worst, most = k, n
		}
	}
	return worst, most > 0
}

// images are those that places were made from.
func (p *pool) images() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	var names []string
	for k, sh := range p.shelves {
		if len(sh.ready) > 0 && !slices.Contains(names, k.image) {
			names = append(names, k.image)
		}
	}
	return names
}

// surplus takes out the places that are dead, of an image that is not as it
// was, or not wanted any more; and forgets kinds that nobody asks for.
func (p *pool) surplus(roots map[string]image.Root) []*spare {
	short := p.short()
	p.mu.Lock()
	defer p.mu.Unlock()
	copies := short && p.copiesLocked() // those go first, and may be enough
	out := p.withdrawnLocked()
	now := time.Now()
	for k, sh := range p.shelves {
		kept, want := 0, p.wantLocked(k, now)
		if short && (k.snapshot != "" || !copies) {
			want = 0
		}
		sh.ready = slices.DeleteFunc(sh.ready, func(s *spare) bool {
			if kept < want && !s.dead() && reflect.DeepEqual(s.root, roots[k.image]) {
				kept++
				return false
			}
			out = append(out, s)
			return true
		})
		if len(sh.ready) == 0 && p.least[k] == 0 && sh.asked.forgotten(now) {
			delete(p.shelves, k)
		}
	}
	return out
}

// copiesLocked reports whether there are places that begin as a snapshot.
func (p *pool) copiesLocked() bool {
	for k, sh := range p.shelves {
		if k.snapshot != "" && len(sh.ready) > 0 {
			return true
		}
	}
	return false
}

// withdraw puts the places that begin as a snapshot, which is no more, out of
// everybody's reach.
func (p *pool) withdraw(snapshot string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for k, sh := range p.shelves {
		if k.snapshot == snapshot {
			p.doomed = append(p.doomed, sh.ready...)
			delete(p.shelves, k)
		}
	}
	p.wakeLocked()
}

// withdrawn takes out the places that are to be freed for that.
func (p *pool) withdrawn() []*spare {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.withdrawnLocked()
}

func (p *pool) withdrawnLocked() []*spare {
	out := p.doomed
	p.doomed = nil
	return out
}

// empty takes out all.
func (p *pool) empty() []*spare {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := p.withdrawnLocked()
	for _, sh := range p.shelves {
		out = append(out, sh.ready...)
		sh.ready = nil
	}
	return out
}

// refuse keeps no places of a runtime any more.
func (p *pool) refuse(runtime string, why error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.unfit[runtime] = why
}
