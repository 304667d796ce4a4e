// Package flowcontrol receives data under flow control: the sender has at most one window of unconfirmed bytes under way.
// So the goroutine that reads the connection never waits for the consumer of the bytes, and the buffer for the
// consumer is bounded.
package flowcontrol

import (
	"bytes"
	"io"
	"sync"
)

// Queue holds bytes that have arrived but were not consumed. The reader of the connection calls Add and End, the
// consumer calls Read.
type Queue struct {
	size  int
	taken func(int64)

	mu     sync.Mutex
	change sync.Cond
	buf    bytes.Buffer
	read   int64 // bytes
	told   int64 // bytes that the sender knows to be consumed
	err    error // after buf; nil until the end
}

// NewQueue returns a queue for a window of size bytes. Read calls taken to tell the sender how many bytes were
// consumed in total.
func NewQueue(size int, taken func(int64)) *Queue {
	q := &Queue{size: size, taken: taken}
	q.change.L = &q.mu
	return q
}

// Add queues a copy of b. It returns false if b is over the window or after the end.
func (q *Queue) Add(b []byte) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.err != nil || q.read-q.told+int64(q.buf.Len()+len(b)) > int64(q.size) {
		return false
	}
	q.buf.Write(b)
	q.change.Signal()
	return true
}

// End sets what follows the queued bytes: io.EOF, or an error, which Read returns at once. A second End has no
// effect.
func (q *Queue) End(err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.err != nil {
		return
	}
	if q.err = err; err != io.EOF {
		q.buf = bytes.Buffer{}
	}
	q.change.Signal()
}

// Read implements io.Reader.
func (q *Queue) Read(p []byte) (int, error) {
	n, tell, err := q.pop(p)
	if tell > 0 {
		q.taken(tell)
	}
	return n, err
}

// pop removes bytes from the queue, and returns the count to send, if any.
func (q *Queue) pop(p []byte) (n int, tell int64, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for q.buf.Len() == 0 && q.err == nil {
		q.change.Wait()
	}
	if q.buf.Len() == 0 {
		return 0, 0, q.err
	}
	n, _ = q.buf.Read(p)
	q.read += int64(n)
	if q.read-q.told < int64(q.size)/4 {
		return n, 0, nil
	}
	q.told = q.read
	return n, q.told, nil
}
