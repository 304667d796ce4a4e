// Package excerpt keeps a bounded part of a program's output: the first and the last half, because the middle is
// missed least. If memory is short, it keeps less, and says so.
package excerpt

import "hutch"

// Default is how much of each stream is kept by default.
const Default = 1 << 20

// Output keeps both ends of each stream.
type Output struct {
	out, err Ends
}

// New returns an Output that keeps limit bytes of each stream; 0 means Default. For more than a little, it calls
// take, which decides whether the bytes can be kept.
func New(limit int, take func(bytes int) bool) *Output {
	if limit == 0 {
		limit = Default
	}
	return &Output{out: Ends{Limit: limit, Take: take}, err: Ends{Limit: limit, Take: take}}
}

// Add takes the next piece.
func (k *Output) Add(o hutch.Output) {
	if o.Stream == hutch.Stderr {
		k.err.Add(o.Data)
	} else {
		k.out.Add(o.Data)
	}
}

// Result returns what was kept, and whether something is missing.
func (k *Output) Result() (stdout, stderr []byte, truncated bool) {
	return k.out.Bytes(), k.err.Bytes(), k.out.cut() || k.err.cut()
}

// Cuts returns where in stdout and stderr of the Result the middle is missing; it is meaningless if nothing is
// missing.
func (k *Output) Cuts() [2]int { return [2]int{len(k.out.head), len(k.err.head)} }

// little is what each half keeps without asking.
const little = 16 << 10

// Ends keeps Limit bytes of its input: the first half and the newest.
type Ends struct {
	Limit int
	// Take decides whether that many more bytes can be kept; nil allows all.
	Take  func(bytes int) bool
	head  []byte
	tail  []byte // a ring once it is full
	next  int    // where the ring continues
	short bool   // Take has refused
	total int64
}

// Add takes the next bytes.
func (e *Ends) Add(b []byte) {
	e.total += int64(len(b))
	if e.tail == nil { // the head is not full yet
		n := e.room(len(e.head), (e.Limit+1)/2, len(b))
		e.head = append(e.head, b[:n]...)
		b = b[n:]
	}
	n := e.room(len(e.tail), e.Limit/2, len(b))
	e.tail = append(e.tail, b[:n]...)
	b = b[n:]
	b = b[max(len(b)-len(e.tail), 0):]
	for len(b) > 0 {
		n := copy(e.tail[e.next:], b)
		b = b[n:]
		e.next = (e.next + n) % len(e.tail)
	}
}

// room returns how many of n bytes a half can keep that has some of its most.
func (e *Ends) room(has, most, n int) int {
	n = max(min(n, most-has), 0)
	if free := min(n, max(little-has, 0)); free < n {
		e.short = e.short || e.Take != nil && !e.Take(n-free)
		if e.short {
			return free
		}
	}
	return n
}

func (e *Ends) cut() bool { return e.total > int64(len(e.head)+len(e.tail)) }

// Bytes returns what was kept. Add must not be called after it.
func (e *Ends) Bytes() []byte {
	all := append(e.head, e.tail[e.next:]...)
	return append(all, e.tail[:e.next]...)
}
