package agent

import (
	"runtime"
	"runtime/debug"
	"time"
)

// rest is after how long without requests the agent gives memory back.
const rest = time.Second

// idle returns freed memory to the kernel when nothing has been asked for a
// while: hundreds of sandboxes wait most of the time.
type idle struct{ timer *time.Timer }

func newIdle() *idle {
	return &idle{time.AfterFunc(rest, func() {
		runtime.GC() // two collections empty a sync.Pool
		debug.FreeOSMemory()
	})}
}

func (i *idle) touch() { i.timer.Reset(rest) }

func (i *idle) stop() { i.timer.Stop() }
