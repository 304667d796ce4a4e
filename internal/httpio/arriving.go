package httpio

import (
	"io"
	"sync"
)

// Arriving is the content of a file while a client sends it. It keeps the error of a client that stops. After the write
// of the file has failed, a Read of the content can still be running.
type Arriving struct {
	from  io.Reader
	fault func(error) error

	reading sync.Mutex // held during a Read
	mu      sync.Mutex
	err     error
}

// NewArriving returns the content from a reader. fault turns an error of the reader, except the end, into the error for
// the client.
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

// Err returns the error of the content, or nil.
func (a *Arriving) Err() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.err
}

// Wait waits until no Read is running. Then others can continue to read from the client.
func (a *Arriving) Wait() {
	a.reading.Lock()
	defer a.reading.Unlock()
}
