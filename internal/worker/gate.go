package worker

import (
	"sync"
	"time"
)

// gate counts running calls, and admits no new ones after it is closed.
type gate struct {
	mu      sync.Mutex
	running int
	closed  bool
	empty   chan struct{} // closed when the gate is closed and no call runs
}

func newGate() *gate { return &gate{empty: make(chan struct{})} }

// enter reports whether a call may run. If so, leave must be called at its end.
func (g *gate) enter() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return false
	}
	g.running++
	return true
}

func (g *gate) leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.running--; g.closed && g.running == 0 {
		close(g.empty)
	}
}

// close admits no more calls, and waits for running ones, for a limited time.
func (g *gate) close(patience time.Duration) {
	g.mu.Lock()
	g.closed = true
	waiting := g.running > 0
	g.mu.Unlock()
	if !waiting {
		return
	}
	t := time.NewTimer(patience)
	defer t.Stop()
	select {
	case <-g.empty:
	case <-t.C:
	}
}
