// Package room limits the memory that a server holds for its callers: bodies of requests, and output that is kept for a
// result until the client has read it.
//
// Every request has a Tab, which its caller carries (package caller). Memory for the request is charged to its owner's
// share and to the total, and is given back when the request ends. So a client that does not read its answers blocks no
// other client. Calls without a request have no Tab, and are not limited here.
package room

import (
	"io"
	"sync"

	"hutch/internal/jsoncount"
)

// Room is the memory that all callers can take together. The zero value has none.
type Room struct {
	total, share int

	mu    sync.Mutex
	taken map[string]int // by owner; a missing entry is 0
	sum   int
}

// New returns a Room of total bytes. One owner can take at most share of them.
func New(total, share int) *Room {
	return &Room{total: total, share: share, taken: map[string]int{}}
}

// Tab records the memory that one request has taken.
type Tab struct {
	room  *Room
	owner string

	// Guarded by room.mu.
	taken   int
	holders int // the memory is given back when no holder is left
}

// Open begins the Tab of an owner's request. The returned function, called once, gives everything back. Without a Room
// the Tab is nil, which allows everything.
func (r *Room) Open(owner string) (*Tab, func()) {
	if r == nil {
		return nil, func() {}
	}
	t := &Tab{room: r, owner: owner, holders: 1}
	return t, t.release
}

// Hold keeps the Tab's memory until the returned function is also called, for a call that can outlive its request.
func (t *Tab) Hold() func() {
	if t == nil {
		return func() {}
	}
	t.room.mu.Lock()
	defer t.room.mu.Unlock()
	t.holders++
	return t.release
}

// Again begins another Tab for the same owner, for work that outlives the request.
func (t *Tab) Again() (*Tab, func()) {
	if t == nil {
		return nil, func() {}
	}
	return t.room.Open(t.owner)
}

// Take reports whether n more bytes can be held, and charges them if so. Nothing more can be held when
// everything has been given back.
func (t *Tab) Take(n int) bool {
	if t == nil {
		return true
	}
	r := t.room
	r.mu.Lock()
	defer r.mu.Unlock()
	if t.holders == 0 || n > r.total-r.sum || n > r.share-r.taken[t.owner] {
		return false
	}
	t.noteLocked(n)
	return true
}

// TakeSpare is Take for memory that its holder can do without. It leaves half of the owner's share, and half of the
// total, to what others need.
func (t *Tab) TakeSpare(n int) bool {
	if t == nil {
		return true
	}
	r := t.room
	r.mu.Lock()
	defer r.mu.Unlock()
	if t.holders == 0 || n > r.total/2-r.sum || n > r.share/2-r.taken[t.owner] {
		return false
	}
	t.noteLocked(n)
	return true
}

// Reader returns r, whose bytes are charged as they are read; without memory for more, Read returns full. It is for a
// part of a body that is kept, where the body itself is only passed on and does not count.
func (t *Tab) Reader(r io.Reader, full error) io.Reader { return charged{r, t, full} }

type charged struct {
	io.Reader
	tab  *Tab
	full error
}

func (c charged) Read(b []byte) (int, error) {
	n, err := c.Reader.Read(b)
	if n > 0 && !c.tab.Take(n) {
		return 0, c.full
	}
	return n, err
}

// aValue estimates the decoded size of a value in a JSON list or object, without its text, in bytes.
const aValue = 200

// TakeJSON is Take for the decoded form of a JSON text. A short text can become much larger: [{},{},{}] are three
// structs with all their fields.
func (t *Tab) TakeJSON(text []byte) bool {
	if t == nil {
		return true
	}
	return t.Take(jsoncount.Values(text) * aValue)
}

func (t *Tab) release() {
	t.room.mu.Lock()
	defer t.room.mu.Unlock()
	if t.holders--; t.holders == 0 {
		t.noteLocked(-t.taken)
	}
}

func (t *Tab) noteLocked(n int) {
	r := t.room
	t.taken += n
	r.sum += n
	r.taken[t.owner] += n
	if r.taken[t.owner] == 0 {
		delete(r.taken, t.owner)
	}
}
