package engine

import (
	"context"
	"strings"

	"hutch"
	"hutch/internal/driver"
	"hutch/internal/kernel"
	"hutch/internal/pool"
	"hutch/internal/wire"
)

// Pool says how many instances are kept ready for sandboxes to come. Their number
// follows demand (package pool); the zero Pool keeps none.
type Pool struct {
	Max int // most instances, of all kinds together
	Min int // of the default kind, even when no caller asks; others do not get their room
	// Room is how many bytes the instances that begin as a snapshot can take
	// together, by the size of the snapshot.
	Room int64
	// Warm are the interpreters that wait in each instance, for its first context
	// of their language. An instance that begins as a snapshot has those of the
	// snapshot.
	Warm []Warm
	// Short reports whether memory is short; then none are kept. It can be nil.
	Short func() bool
}

// newPool returns the engine's pool.
func newPool(opt Options) *pool.Pool[*spare] {
	p := opt.Pool
	return pool.New[*spare](pool.Options{Max: p.Max, Room: p.Room, Short: p.Short, Retry: poolEvery}, least(opt))
}

// least is how many instances the pool keeps ready even when no caller asks: of
// the kind that a sandbox with default settings needs.
func least(opt Options) map[pool.Kind]int {
	if len(opt.Drivers) == 0 || opt.Pool.Max == 0 {
		return nil
	}
	d := opt.Drivers[0]
	usual := pool.Kind{Runtime: d.Name(), Image: defaultImage, Limits: fillLimits(hutch.Limits{}, opt.MaxLimits, d.Name())}
	all := map[pool.Kind]int{usual: opt.Pool.Min}
	if _, ok := driver.As[driver.Restorer](d); ok {
		all[vacant(usual)] = min(opt.Pool.Min, 1)
	}
	return all
}

// kindOf is the kind of instance that a sandbox needs.
func kindOf(v hutch.Sandbox) pool.Kind {
	return pool.Kind{Runtime: v.Runtime, Image: v.Image, Limits: v.Limits}
}

// vacant is a kind in which nothing has begun.
func vacant(k pool.Kind) pool.Kind {
	k.Vacant = true
	return k
}

var _ hutch.Pools = (*Engine)(nil)

// Pool implements hutch.Pools.
func (e *Engine) Pool(context.Context) (hutch.PoolState, error) { return e.PoolState(), nil }

// PoolState reports what the pool holds and wants.
func (e *Engine) PoolState() hutch.PoolState { return e.pool.State() }

// Warm is an interpreter with the modules that it has imported.
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
