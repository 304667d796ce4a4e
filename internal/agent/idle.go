package agent

import (
	"runtime"
	"runtime/debug"
	"sync/atomic"
	"time"
)

// idleDelay is the time without requests after which the agent gives memory back.
const idleDelay = time.Second

// minGarbage is how many bytes must have been allocated since the last collection to make another one worthwhile: the
// first collection itself takes 0.4 MB and keeps it, and most sandboxes wait without having done anything.
const minGarbage = 1 << 20

// idle returns freed memory to the kernel after a time without requests, because hundreds of sandboxes mostly wait.
type idle struct{ timer *time.Timer }

func newIdle() *idle {
	var given atomic.Uint64
	return &idle{time.AfterFunc(idleDelay, func() {
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		if m.TotalAlloc-given.Load() < minGarbage {
			return
		}
		given.Store(m.TotalAlloc)
		runtime.GC() // two collections empty a sync.Pool
		debug.FreeOSMemory()
	})}
}

func (i *idle) touch() { i.timer.Reset(idleDelay) }

func (i *idle) stop() { i.timer.Stop() }
