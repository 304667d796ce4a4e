package httpio

import (
	"io"
	"sync"
)

// Arriving is the content of a file as a client sends it, and why it does not come. A write that fails can leave one Read of
// its content under way.
type Arriving struct {
	from  io.Reader
	fault func(error) error

	reading sync.Mutex // held during a Read
	mu      sync.Mutex
	err     error
}

// NewArriving returns what arrives from a reader. fault says what an error of it, which is not the end, is for the client.
func NewArriving(from io.Reader, fault func(error) error) *Arriving {
	return &Arriving{from: from, fault: fault}
}

// Read implements io.Reader.
func (a *Arriving) Read(b []byte) (int, error) {
	a.reading.Lock()
	defer a.reading.Unlock()
	n, err := a.from.Read(b)
	if err == nil || err == io.EOF {
		return n, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.err = a.fault(err)
	return n, a.err
}

// Err returns why the content does not come, or nil.
func (a *Arriving) Err() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.err
}

// Wait waits until no Read is under way. Then others can read on from the client.
func (a *Arriving) Wait() {
	a.reading.Lock()
	defer a.reading.Unlock()
}
