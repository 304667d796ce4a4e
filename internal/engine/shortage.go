package engine

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"hutch/internal/driver"
)

// A machine with very little memory can do nothing but read the same parts of running programs from disk again and
// again. Then no call would end. The kernel would end no process either, because some memory always becomes free. So
// the engine stops a sandbox then.

// stoppedForShortage is the reason of a sandbox that was stopped because the server had no memory left.
const (
	serverShort        = "the server had no memory left, and this sandbox used the most"
	stoppedForShortage = serverShort + filesKept
)

// freeWithin is how long watchMemory waits for a sandbox that is busy with another change, before it tries the next
// sandbox.
const freeWithin = 5 * time.Second

var errStalled = errors.New("programs made no progress for lack of memory")

// watchMemory stops a sandbox each time that programs have made no progress for a while. It chooses the sandbox that
// uses the most memory among those that are not busy with another change.
func (e *Engine) watchMemory() {
	every(e.ctx, time.Second, func() {
		if !e.opt.Memory.Stalls() {
			return
		}
		for _, u := range e.largestFirst() {
			ctx, cancel := context.WithTimeout(e.ctx, freeWithin)
			stopped := e.salvage(ctx, u.sandbox, u.inst, serverShort, errStalled)
			cancel()
			if stopped || e.ctx.Err() != nil {
				return
			}
			e.log.Warn("a sandbox could not be stopped for lack of memory: it is busy with another change", "sandbox", u.sandbox.ID())
		}
	})
}

// memoryUse is a sandbox with the memory that its instance uses.
type memoryUse struct {
	*sandbox
	inst   driver.Instance
	memory int64
}

// largestFirst lists the running sandboxes, those with the largest memory first. A paused sandbox is not among them:
// its programs do not run, so they do not wait for memory.
func (e *Engine) largestFirst() []memoryUse {
	var mu sync.Mutex
	var all []memoryUse
	visit(e.table.oldestFirst(), func(_ int, s *sandbox) {
		inst, agent := s.Attached()
		if agent == nil {
			return
		}
		ctx, cancel := context.WithTimeout(e.ctx, lookTime)
		defer cancel()
		if u, err := inst.Usage(ctx); err == nil {
			mu.Lock()
			defer mu.Unlock()
			all = append(all, memoryUse{s, inst, u.Memory})
		}
	})
	slices.SortFunc(all, func(a, b memoryUse) int { return cmp.Compare(b.memory, a.memory) })
	return all
}
