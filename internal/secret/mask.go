package secret

import (
	"bytes"
	"errors"
	"io"
	"sync"
	"time"
)

// Mask returns src with every byte of a secret replaced by an asterisk, so that
// lengths that were announced stay right. Like a relay, it does not hold back the
// end of slow input for longer than a moment.
//
// It reads src in a goroutine; Close, which closes src, ends it.
func (r *Redactor) Mask(src io.ReadCloser) io.ReadCloser {
	if r == nil {
		return src
	}
	m := &mask{src: src, s: stream{r: r}, filled: make(chan piece), free: make(chan []byte, 2), done: make(chan struct{})}
	for range cap(m.free) {
		m.free <- make([]byte, 16<<10)
	}
	return m
}

// mask is read by one goroutine and filled by another.
type mask struct {
	src    io.ReadCloser
	s      stream
	ready  []byte // masked, to be read
	buf    []byte // buf of ready
	err    error  // returned after everything was read
	shown  bool   // the harmless part of the held text was passed on
	start  sync.Once
	end    sync.Once
	work   sync.WaitGroup
	filled chan piece
	free   chan []byte
	done   chan struct{}
}

type piece struct {
	data []byte
	err  error
}

// Read implements io.Reader.
func (m *mask) Read(p []byte) (int, error) {
	m.start.Do(func() { m.work.Go(m.pump) })
	for len(m.ready) == 0 {
		if m.err != nil {
			return 0, m.err
		}
		m.fill()
	}
	n := copy(p, m.ready)
	m.ready = m.ready[n:]
	return n, nil
}

// Close implements io.Closer.
func (m *mask) Close() error {
	m.start.Do(func() {}) // a later Read does not start the work
	m.end.Do(func() { close(m.done) })
	err := m.src.Close()
	m.work.Wait()
	return err
}

// pump reads the source, ahead by one piece.
func (m *mask) pump() {
	for {
		select {
		case <-m.done:
			return
		case buf := <-m.free:
			n, err := m.src.Read(buf[:cap(buf)])
			select {
			case <-m.done:
				return
			case m.filled <- piece{buf[:n], err}:
			}
			if err != nil {
				return
			}
		}
	}
}

// fill prepares output, or waits for the next piece.
func (m *mask) fill() {
	var patience <-chan time.Time
	if len(m.s.held) > 0 && !m.shown {
		t := time.NewTimer(idle)
		defer t.Stop()
		patience = t.C
	}
	m.ready = m.buf[:0]
	select {
	case <-m.done:
		m.err = errors.New("read of what was closed")
	case p := <-m.filled:
		m.take(p)
	case <-patience:
		m.shown = true
		m.s.reveal(m.emitter())
	}
	m.buf = m.ready
}

func (m *mask) take(p piece) {
	m.shown = false
	if len(p.data) > 0 {
		m.s.write(p.data, m.emitter())
	}
	if m.err = p.err; m.err != nil {
		m.s.release(m.emitter())
	}
	m.free <- p.data
}

// emitter returns the function that receives the stream's output.
func (m *mask) emitter() emit {
	at := m.s.passed // the position of the reported bytes
	return func(data []byte, end int, marker bool) {
		if marker {
			data = bytes.Repeat([]byte{'*'}, end-at)
		}
		m.ready, at = append(m.ready, data...), end
	}
}
