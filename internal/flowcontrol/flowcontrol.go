// Package flowcontrol receives data under flow control: the sender sends at most one window of bytes more than were
// confirmed. So the goroutine that reads the connection never waits for the consumer of the bytes, and the buffer for
// the consumer is bounded.
package flowcontrol

import (
	"bytes"
	"io"
	"sync"
)

// Queue holds bytes that have arrived and were not consumed yet. The reader of the connection calls Add and End; the
// consumer calls Read.
type Queue struct {
	size  int
	taken func(int64)

	mu     sync.Mutex
	change sync.Cond
	buf    bytes.Buffer
	read   int64 // bytes
	told   int64 // bytes that were reported to the sender as consumed
	err    error // after buf; nil until the end
}

// NewQueue returns a queue for a window of size bytes. Read calls taken to report to the sender how many bytes were
// consumed in total.
func NewQueue(size int, taken func(int64)) *Queue {
	q := &Queue{size: size, taken: taken}
	q.change.L = &q.mu
	return q
}

// Add queues a copy of b. It returns false if b does not fit into the window or comes after the end.
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

// End sets what follows the queued bytes: io.EOF, or another error, which Read returns at once. A second End has no
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

// pop removes bytes from the queue. tell is the total to report to the sender; 0 for no report.
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
