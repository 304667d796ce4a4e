package hutchtest

import (
	"bytes"
	"strings"
	"sync"
)

// Buffer collects written data, and can be read while data is written.
type Buffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *Buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *Buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// Holds reports whether text was written.
func (b *Buffer) Holds(text string) bool { return strings.Contains(b.String(), text) }
