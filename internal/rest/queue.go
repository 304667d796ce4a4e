package rest

import (
	"sync"

	"hutch/internal/stream"
)

// queue is standard input on its way from the connection to the program. What
// arrives never waits, so that the connection is always read; the client keeps
// within the window.
type queue struct {
	taken func(int64) // tells the client how much was read, in all

	mu     sync.Mutex
	change sync.Cond
	buf    []byte
	read   int64 // bytes
	told   int64 // bytes that the client knows to be read
	err    error // behind buf; nil until the end
}

func newQueue(taken func(int64)) *queue {
	q := &queue{taken: taken}
	q.change.L = &q.mu
	return q
}

// add reports false when b is over the window, or behind the end.
func (q *queue) add(b []byte) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.err != nil || q.read-q.told+int64(len(q.buf)+len(b)) > stream.StdinWindow {
		return false
	}
	q.buf = append(q.buf, b...)
	q.change.Signal()
	return true
}

func (q *queue) end(err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.err == nil {
		q.err = err
	}
	q.change.Signal()
}

// Read implements io.Reader.
func (q *queue) Read(p []byte) (int, error) {
	n, tell, err := q.pop(p)
	if tell > 0 {
		q.taken(tell)
	}
	return n, err
}

// pop takes bytes, and says what to tell the client, if anything.
func (q *queue) pop(p []byte) (n int, tell int64, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.buf) == 0 && q.err == nil {
		q.change.Wait()
	}
	if len(q.buf) == 0 {
		return 0, 0, q.err
	}
	n = copy(p, q.buf)
	q.buf = q.buf[:copy(q.buf, q.buf[n:])]
	q.read += int64(n)
	if q.read-q.told < stream.StdinWindow/4 {
		return n, 0, nil
	}
	q.told = q.read
	return n, q.told, nil
}
