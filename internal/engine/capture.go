package engine

import "hutch"

// capture keeps the first and the last half of each stream's bytes.
type capture struct {
	out, err ends
}

func newCapture(limit int) *capture {
	if limit == 0 {
		limit = defaultOutput
	}
	return &capture{out: ends{limit: limit}, err: ends{limit: limit}}
}

func (c *capture) add(o hutch.Output) {
	if o.Stream == hutch.Stderr {
		c.err.add(o.Data)
	} else {
		c.out.add(o.Data)
	}
}

func (c *capture) result() (stdout, stderr []byte, truncated bool) {
	return c.out.bytes(), c.err.bytes(), c.out.cut() || c.err.cut()
}

// ends keeps limit bytes of what is added: the first half and the newest.
type ends struct {
	limit int
	head  []byte
	tail  []byte // a ring once it is full
	next  int    // where the ring goes on
	total int64
}

func (e *ends) add(b []byte) {
	e.total += int64(len(b))
	if room := (e.limit+1)/2 - len(e.head); room > 0 {
		n := min(room, len(b))
		e.head = append(e.head, b[:n]...)
		b = b[n:]
	}
	size := e.limit / 2
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

func (e *ends) cut() bool { return e.total > int64(len(e.head)+len(e.tail)) }

func (e *ends) bytes() []byte {
	all := append(e.head, e.tail[e.next:]...)
	return append(all, e.tail[:e.next]...)
}
