package engine

import (
	"context"
	"strings"
	"sync/atomic"

	"hutch"
	"hutch/internal/driver"
	"hutch/internal/image"
	"hutch/internal/instance"
	"hutch/internal/kernel"
	"hutch/internal/pool"
	"hutch/internal/wire"
)

// Pool configures how many instances are kept ready for new sandboxes. Their number follows demand (see package pool);
// the zero Pool keeps no instances ready.
type Pool struct {
	Max int // most instances, of all kinds together
	Min int // fewest instances of the default kind, kept even without demand; other kinds do not displace them
	// Room limits the total size of the instances that start from a snapshot, in bytes. The size of an instance is that
	// of its snapshot.
	Room int64
	// Warm are the interpreters that wait in each instance, for the first context of its language. An instance that
	// starts from a snapshot has the interpreters of the snapshot.
	Warm []Warm
	// Short reports whether memory is short; then no instances are kept ready. It can be nil.
	Short func() bool
}

// Memory reports on the memory of the machine.
type Memory = instance.Memory

// instanceOptions returns the settings for the engine's instances.
func instanceOptions(opt Options, uses *atomic.Int32) instance.Options {
	p := opt.Pool
	made := instance.Options{
		Drivers: opt.Drivers, Image: opt.Image, Network: opt.Gateway != nil, Env: opt.Env,
		Pool:  pool.Options{Max: p.Max, Room: p.Room, Short: p.Short},
		Least: least(opt), Memory: opt.Memory, Uses: uses, Log: opt.Log,
	}
	for _, w := range p.Warm {
		c, err := w.context()
		if err != nil {
			opt.Log.Warn("no interpreter is kept ready", "language", w.Language, "err", err)
			continue
		}
		made.Warm = append(made.Warm, c)
	}
	return made
}

// least returns how many instances the pool keeps ready even without demand. They are of the kind that a sandbox with
// default settings needs.
func least(opt Options) map[pool.Kind]int {
	if len(opt.Drivers) == 0 || opt.Pool.Max == 0 {
		return nil
	}
	d := opt.Drivers[0]
	usual := pool.Kind{Runtime: d.Name(), Image: image.HostName, Limits: fillLimits(hutch.Limits{}, opt.MaxLimits, d.Defaults())}
	all := map[pool.Kind]int{usual: opt.Pool.Min}
	if _, ok := driver.As[driver.Restorer](d); ok {
		all[instance.Vacant(usual)] = min(opt.Pool.Min, 1)
	}
	return all
}

var _ hutch.Pools = (*Engine)(nil)

// Pool implements hutch.Pools.
func (e *Engine) Pool(context.Context) (hutch.PoolState, error) { return e.PoolState(), nil }

// PoolState reports the instances that the pool has, and those that it has yet to make.
func (e *Engine) PoolState() hutch.PoolState { return e.instances.PoolState() }

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
