// Package pipe connects code that writes a stream with code that reads it, when either can fail first.
package pipe

import (
	"errors"
	"io"
	"sync"
)

var errReaderLeft = errors.New("the rest of the stream is not read")

// Through runs write and read at the same time: read gets what write writes. It returns when both have returned. If one
// of them fails, the other is ended, and the error is returned. If read ends early without an error, the result is nil.
func Through(write func(io.Writer) error, read func(io.Reader) error) error {
	r, w := io.Pipe()
	wrote := make(chan error, 1)
	go func() {
		err := write(w)
		w.CloseWithError(err)
		wrote <- err
	}()
	err := read(r)
	r.CloseWithError(errReaderLeft)
	if failed := <-wrote; failed != nil && !errors.Is(failed, errReaderLeft) {
		return failed
	}
	return err
}

// Source keeps the error of its reader, so that it can be distinguished from an error of the code that reads from the Source. It is
// safe for concurrent use.
type Source struct {
	mu  sync.Mutex
	r   io.Reader
	err error
}

// NewSource returns a source that reads r.
func NewSource(r io.Reader) *Source { return &Source{r: r} }

// Failure returns the error of the reader; nil for none.
func (s *Source) Failure() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// Read implements [io.Reader].
func (s *Source) Read(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n, err := s.r.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		s.err = err
	}
	return n, err
}
