package engine

import (
	"maps"
	"slices"
	"sync"

	"hutch/internal/box"
)

// moved has the names of sandboxes that are new, gone, or have another status or health, while somebody reads them. Those
// who add a name hold locks: it never waits for its reader.
type moved struct {
	some chan struct{} // signalled when there are names

	mu    sync.Mutex
	names map[box.Name]bool // nil while nobody reads
}

func newMoved() *moved { return &moved{some: make(chan struct{}, 1)} }

// listen begins to collect names, or ends it.
func (m *moved) listen(on bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.names = nil; on {
		m.names = map[box.Name]bool{}
	}
}

// note adds a name.
func (m *moved) note(name box.Name) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.names == nil {
		return
	}
	m.names[name] = true
	select {
	case m.some <- struct{}{}:
	default:
	}
}

// take returns the names since the last call.
func (m *moved) take() []box.Name {
	m.mu.Lock()
	defer m.mu.Unlock()
	names := slices.Collect(maps.Keys(m.names))
	clear(m.names)
	return names
}
