package engine

import (
	"context"
	"errors"
	"sync"
	"time"

	"hutch/internal/driver"
)

// A machine with very little memory can be busy with nothing but reading the same parts of running programs from disk
// again and again. No call would end, and the kernel would end no process, because some memory always becomes free. So
// the engine stops a sandbox then.

// stoppedForShortage is the reason of a sandbox that was stopped because the server had no memory left.
const stoppedForShortage = "the server had no memory left, and this sandbox used the most: its files are kept, its processes have ended; the next use starts it again"

// freeWithin is how long a sandbox can be busy with another change before a stop gives up.
const freeWithin = 5 * time.Second

var errStalled = errors.New("programs made no progress for lack of memory")

// watchMemory stops the sandbox that uses the most memory each time that programs have made no progress for a while.
func (e *Engine) watchMemory() {
	every(e.ctx, time.Second, func() {
		if !e.opt.Memory.Stalls() {
			return
		}
		if s, inst := e.largest(); s != nil {
			ctx, cancel := context.WithTimeout(e.ctx, freeWithin)
			defer cancel()
			e.salvage(ctx, s, inst, stoppedForShortage, errStalled)
		}
	})
}

// largest returns the sandbox that uses the most memory, of those that run.
func (e *Engine) largest() (largest *sandbox, its driver.Instance) {
	var mu sync.Mutex
	most := int64(-1)
	visit(e.table.oldestFirst(), func(_ int, s *sandbox) {
		inst, agent := s.Attached()
		if agent == nil {
			return
		}
		u, err := inst.Usage(e.ctx)
		mu.Lock()
		defer mu.Unlock()
		if err == nil && u.Memory > most {
			most, largest, its = u.Memory, s, inst
		}
	})
	return largest, its
}
