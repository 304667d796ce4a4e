package pipe

import (
	"cmp"
	"errors"
	"io"
	"sync"
)

// How much a writer of Ahead can be ahead of its reader.
const (
	pieceSize = 256 << 10
	pieces    = 4
)

// Ahead does the same as Through, with buffers between the two. So both work at the same time, on two processors, if
// each has work of its own: to compress, to compute a digest, to write a file. If read fails, write gets its error.
func Ahead(write func(io.Writer) error, read func(io.Reader) error) error {
	b := &buffers{full: make(chan []byte, pieces), free: make(chan []byte, pieces), left: make(chan struct{})}
	for range pieces {
		b.free <- nil // allocated at its first use
	}
	wrote := make(chan error, 1)
	go func() {
		err := write(b)
		err = cmp.Or(err, b.flush())
		b.writeErr = err
		close(b.full)
		wrote <- err
	}()
	err := read((*bufferReader)(b))
	b.readErr = cmp.Or(err, errReaderLeft)
	close(b.left)
	failed := <-wrote
	if err != nil && !b.hasEnded() || failed == nil || errors.Is(failed, errReaderLeft) {
		return err
	}
	return failed
}

// buffers are between a writer and a reader. A piece belongs to the side that took it from a channel.
type buffers struct {
	full, free chan []byte
	left       chan struct{} // closed when the reader has returned
	written    []byte        // piece of the writer
	writeErr   error         // set before full is closed
	readErr    error         // set before left is closed

	mu      sync.Mutex // held by Read, as a goroutine of the reader can outlive the reader
	reading []byte     // piece of the reader,
	unread  []byte     // and the unread rest of this piece
	ended   bool       // the reader has read to the end, and got writeErr if there is one
}

func (b *buffers) hasEnded() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.ended
}

// Write is called by the writer.
func (b *buffers) Write(p []byte) (n int, err error) {
	for n < len(p) {
		if cap(b.written) == 0 {
			select {
			case <-b.left:
				return n, b.readErr
			case piece := <-b.free:
				if cap(piece) == 0 {
					piece = make([]byte, 0, pieceSize)
				}
				b.written = piece[:0]
			}
		}
		fits := min(len(p)-n, cap(b.written)-len(b.written))
		b.written = append(b.written, p[n:n+fits]...)
		n += fits
		if len(b.written) == cap(b.written) {
			if err := b.flush(); err != nil {
				return n, err
			}
		}
	}
	return n, nil
}

// flush passes the piece of the writer to the reader.
func (b *buffers) flush() error {
	if len(b.written) == 0 {
		return nil
	}
	select {
	case <-b.left:
		return b.readErr
	case b.full <- b.written:
		b.written = nil
		return nil
	}
}

type bufferReader buffers

// Read is called by the reader.
func (b *bufferReader) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.unread) == 0 {
		if b.reading != nil {
			b.free <- b.reading // has room for all pieces
			b.reading = nil
		}
		piece, ok := <-b.full
		if !ok {
			b.ended = true
			return 0, cmp.Or(b.writeErr, io.EOF)
		}
		b.reading, b.unread = piece, piece
	}
	n := copy(p, b.unread)
	b.unread = b.unread[n:]
	return n, nil
}
