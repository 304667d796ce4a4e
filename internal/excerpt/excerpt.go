// Package excerpt keeps a bounded part of what a program prints: its first and
// its last half, as the middle is what people miss least.
package excerpt

import "hutch"

// Default is how much of each stream is kept when nobody says otherwise.
const Default = 1 << 20

// Output keeps both ends of each stream.
type Output struct {
	out, err Ends
}

// New returns an Output that keeps limit bytes of each stream; 0 is Default.
func New(limit int) *Output {
	if limit == 0 {
		limit = Default
	}
	return &Output{out: Ends{Limit: limit}, err: Ends{Limit: limit}}
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

// Ends keeps Limit bytes of what is added: the first half and the newest.
type Ends struct {
	Limit int
	head  []byte
	tail  []byte // a ring once it is full
	next  int    // where the ring goes on
	total int64
}

// Add takes the next bytes.
func (e *Ends) Add(b []byte) {
	e.total += int64(len(b))
	if room := (e.Limit+1)/2 - len(e.head); room > 0 {
		n := min(room, len(b))
		e.head = append(e.head, b[:n]...)
		b = b[n:]
	}
	size := e.Limit / 2
	if len(b) > size {
		b = b[len(b)-size:]
	}
	if n := min(size-len(e.tail), len(b)); n > 0 {
		e.tail = append(e.tail, b[:n]...)
		b = b[n:]
	}
	for len(b) > 0 {
		n := copy(e.tail[e.next:], b)
		b = b[n:]
		e.next = (e.next + n) % size
	}
}

func (e *Ends) cut() bool { return e.total > int64(len(e.head)+len(e.tail)) }

// Bytes is what was kept. Nothing may be added after it.
func (e *Ends) Bytes() []byte {
	all := append(e.head, e.tail[e.next:]...)
	return append(all, e.tail[:e.next]...)
}
