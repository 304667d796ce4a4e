// Package excerpt keeps a bounded part of what a program prints: its first and
// its last half, as the middle is what people miss least. Where the memory for
// that is short, it keeps less, and says that it did.
package excerpt

import "hutch"

// Default is how much of each stream is kept when nobody says otherwise.
const Default = 1 << 20

// Output keeps both ends of each stream.
type Output struct {
	out, err Ends
}

// New returns an Output that keeps limit bytes of each stream; 0 is Default. What
// is more than a little it asks take for, which says whether it may be kept.
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

// Result is what was kept, and whether there was more.
func (k *Output) Result() (stdout, stderr []byte, truncated bool) {
	return k.out.Bytes(), k.err.Bytes(), k.out.cut() || k.err.cut()
}

// Cuts is where in stdout and stderr of the Result the missing part was; it means
// nothing where there was no more.
func (k *Output) Cuts() [2]int { return [2]int{len(k.out.head), len(k.err.head)} }

// little is what each half keeps without asking.
const little = 16 << 10

// Ends keeps Limit bytes of what is added: the first half and the newest.
type Ends struct {
	Limit int
	// Take says whether so many bytes more may be kept; nil allows all.
	Take  func(bytes int) bool
	head  []byte
	tail  []byte // a ring once it is full
	next  int    // where the ring goes on
	short bool   // Take has refused
	total int64
}

// Add takes the next bytes.
func (e *Ends) Add(b []byte) {
	e.total += int64(len(b))
	if e.tail == nil { // the head is not over
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

// room is how many of n bytes more a half may keep, which has some of its most.
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

// Bytes is what was kept. Nothing may be added after it.
func (e *Ends) Bytes() []byte {
	all := append(e.head, e.tail[e.next:]...)
	return append(all, e.tail[:e.next]...)
}
