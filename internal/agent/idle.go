package agent

import (
	"runtime"
	"runtime/debug"
	"sync/atomic"
	"time"
)

// rest is after how long without requests the agent gives memory back.
const rest = time.Second

// worth is how much must have been allocated since the last time. The first
// collection alone takes 0.4 MB for its own ends, and keeps it: most sandboxes
// wait without having done anything.
const worth = 1 << 20

// idle returns freed memory to the kernel when nothing has been asked for a
// while: hundreds of sandboxes wait most of the time.
type idle struct{ timer *time.Timer }

func newIdle() *idle {
	var given atomic.Uint64
	return &idle{time.AfterFunc(rest, func() {
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		if m.TotalAlloc-given.Load() < worth {
			return
		}
		given.Store(m.TotalAlloc)
		runtime.GC() // two collections empty a sync.Pool
		debug.FreeOSMemory()
	})}
}

func (i *idle) touch() { i.timer.Reset(rest) }

func (i *idle) stop() { i.timer.Stop() }
