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
	Min int // of the default kind, also when nobody asks
	// Warm are the interpreters that wait in each place, for its first context
	// of their language.
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

// PoolState is what a pool has, and how often it had what was asked for.
type PoolState struct {
	Ready, Vacant int
	Hits, Misses  int64 // of those that are ready
}

// kind is what places have in common of which one is as good as the other.
type kind struct {
	runtime string
	image   string
	limits  hutch.Limits
	// vacant are those that wait for something which was saved.
	vacant bool
}

func kindOf(v hutch.Sandbox) kind { return kind{runtime: v.Runtime, image: v.Image, limits: v.Limits} }

func (k kind) vacated() kind {
	k.vacant = true
	return k
}

// pool is the spare places. Whoever takes one has it alone.
type pool struct {
	Pool
	least map[kind]int  // how many there are also when nobody asks
	stir  chan struct{} // one was taken

	mu    sync.Mutex
	ready map[kind][]*spare // oldest first
	asked map[kind]*demand
	unfit map[string]bool // runtimes whose places cannot become somebody's
	state PoolState
}

// maxKinds bounds of how many kinds the pool remembers that they were asked for.
const maxKinds = 32

func newPool(p Pool, least map[kind]int) *pool {
	return &pool{
		Pool: p, least: least, stir: make(chan struct{}, 1),
		ready: map[kind][]*spare{}, asked: map[kind]*demand{}, unfit: map[string]bool{},
	}
}

// take returns a place of a kind, or nil when there is none.
func (p *pool) take(k kind) *spare {
	if p.Max == 0 {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.noteLocked(k)
	for i, s := range p.ready[k] {
		if !s.dead() { // those the keeper removes
			p.ready[k] = slices.Delete(p.ready[k], i, i+1)
			p.countLocked(k, &p.state.Hits)
			return s
		}
	}
	p.countLocked(k, &p.state.Misses)
	return nil
}

func (p *pool) countLocked(k kind, n *int64) {
	if !k.vacant {
		*n++
	}
}

// noteLocked remembers that a kind was asked for, and wakes the keeper.
func (p *pool) noteLocked(k kind) {
	if p.asked[k] == nil && len(p.asked) < maxKinds {
		p.asked[k] = &demand{}
	}
	if d := p.asked[k]; d != nil {
		d.note(time.Now())
	}
	select {
	case p.stir <- struct{}{}:
	default:
	}
}

func (p *pool) put(s *spare) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ready[s.kind] = append(p.ready[s.kind], s)
}

func (p *pool) short() bool { return p.Short != nil && p.Short() }

// wantLocked is how many of a kind there should be.
func (p *pool) wantLocked(k kind, now time.Time) int {
	if p.unfit[k.runtime] {
		return 0
	}
	n := 0
	if d := p.asked[k]; d != nil {
		n = d.most(now)
	}
	return min(max(n, p.least[k]), p.Max)
}

func (p *pool) readyLocked() (ready, vacant int) {
	for k, list := range p.ready {
		if k.vacant {
			vacant += len(list)
		} else {
			ready += len(list)
		}
	}
	return ready, vacant
}

// lacks returns the kind of which most are missing; ok is false when nothing
// is, or there is no room.
func (p *pool) lacks() (worst kind, ok bool) {
	if p.short() {
		return kind{}, false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if ready, vacant := p.readyLocked(); ready+vacant >= p.Max {
		return kind{}, false
	}
	now, most := time.Now(), 0
	for k := range p.kindsLocked() {
		if n := p.wantLocked(k, now) - len(p.ready[k]); n > most {
			worst, most = k, n
		}
	}
	return worst, most > 0
}

func (p *pool) kindsLocked() map[kind]bool {
	kinds := map[kind]bool{}
	for k := range p.least {
		kinds[k] = true
	}
	for k := range p.asked {
		kinds[k] = true
	}
	for k := range p.ready {
		kinds[k] = true
	}
	return kinds
}

// images are those that places were made from.
func (p *pool) images() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	var names []string
	for k := range p.ready {
		names = append(names, k.image)
	}
	return names
}

// surplus takes out the places that are dead, of an image that is not as it
// was, or not wanted any more; and forgets kinds that nobody asks for.
func (p *pool) surplus(roots map[string]image.Root) []*spare {
	short := p.short()
	p.mu.Lock()
	defer p.mu.Unlock()
	var out []*spare
	now := time.Now()
	for k := range p.kindsLocked() {
		kept, want := 0, p.wantLocked(k, now)
		if short {
			want = 0
		}
		p.ready[k] = slices.DeleteFunc(p.ready[k], func(s *spare) bool {
			if kept < want && !s.dead() && reflect.DeepEqual(s.root, roots[k.image]) {
				kept++
				return false
			}
			out = append(out, s)
			return true
		})
		p.forgetLocked(k, now)
	}
	return out
}

// forgetLocked forgets a kind of which there is none, and that nobody asks for.
func (p *pool) forgetLocked(k kind, now time.Time) {
	if len(p.ready[k]) == 0 {
		delete(p.ready, k)
	}
	if d := p.asked[k]; d != nil && d.forgotten(now) {
		delete(p.asked, k)
	}
}

// empty takes out all.
func (p *pool) empty() []*spare {
	p.mu.Lock()
	defer p.mu.Unlock()
	var out []*spare
	for _, list := range p.ready {
		out = append(out, list...)
	}
	p.ready = map[kind][]*spare{}
	return out
}

// refuse keeps no places of a runtime any more.
func (p *pool) refuse(runtime string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.unfit[runtime] = true
}
