package snapshots

import (
	"errors"
	"sync"

	"hutch"
	"hutch/internal/driver"
)

// Base is the layer that the sandboxes of one snapshot share. It is made for the first sandbox and closed after the
// last. A restarted daemon knows no layers: it makes a new layer when needed, and the runtime frees the old one with
// the last sandbox on it.
type Base struct {
	mu    sync.Mutex // held while the layer is made
	layer driver.Layer
	none  error // why there can be no layer
	users int
}

// Hold returns the layer, and makes it if it does not exist. The caller calls Release. After an
// error of kind hutch.Unsupported, Hold does not try again.
func (b *Base) Hold(open func() (driver.Layer, error)) (driver.Layer, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.none != nil {
		return nil, b.none
	}
	if b.layer == nil {
		l, err := open()
		if errors.Is(err, hutch.Unsupported) {
			b.none = err
		}
		if err != nil {
			return nil, err
		}
		b.layer = l
	}
	b.users++
	return b.layer, nil
}

// Release releases the layer. It never waits for a layer that is being made, because the caller has a finished one.
func (b *Base) Release() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.users--; b.users == 0 {
		b.layer.Close()
		b.layer = nil
	}
}
