package engine

import (
	"maps"
	"slices"
	"sync"

	"hutch/internal/box"
)

// moved collects the names of sandboxes that are new, gone, or have a new status or health, while a caller reads the
// names. The callers of note hold locks, so note never waits.
type moved struct {
	some chan struct{} // signalled when there are names

	mu    sync.Mutex
	names map[box.Name]bool // nil while no caller reads
}

func newMoved() *moved { return &moved{some: make(chan struct{}, 1)} }

// listen begins to collect names.
func (m *moved) listen() { m.collect(map[box.Name]bool{}) }

// stop forgets the names, and collects no more.
func (m *moved) stop() { m.collect(nil) }

func (m *moved) collect(into map[box.Name]bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.names = into
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
