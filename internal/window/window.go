// Package window is the receiving end of bytes that come no faster than they
// are taken: the sender has at most a window full of them under way that it was
// not told are taken. So who reads the connection never waits for who needs the
// bytes, and what is kept for the latter is bounded.
package window

import (
	"bytes"
	"io"
	"sync"
)

// Queue is what has come and was not yet taken. Add and End are for who reads
// the connection, Read for who needs the bytes.
type Queue struct {
	size  int
	taken func(int64)

	mu     sync.Mutex
	change sync.Cond
	buf    bytes.Buffer
	read   int64 // bytes
	told   int64 // bytes that the sender knows to be read
	err    error // behind buf; nil until the end
}

// NewQueue returns a queue for a window of size bytes. It calls taken, from
// Read, to tell the sender how many bytes were taken in all.
func NewQueue(size int, taken func(int64)) *Queue {
	q := &Queue{size: size, taken: taken}
	q.change.L = &q.mu
	return q
}

// Add queues a copy of b. It reports false when b is over the window or behind
// the end.
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

// End says what comes behind the queue: io.EOF, or the error that broke it off,
// which comes at once. What broke off after its end has ended.
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

// pop takes bytes, and says what to tell the sender, if anything.
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
