// Package room bounds the memory that a server holds for its callers: bodies of
// requests, and output that is kept for a result until the client has read it.
//
// Every request has a Tab in its context. Memory for the request is charged to its
// owner's share and to the total, and is given back when the request ends. So a client
// that does not read its answers blocks nobody else. Calls that come from no request
// have no Tab, and are not bounded here.
package room

import (
	"context"
	"sync"
)

// Room is the memory that all callers can take together. The zero value has none.
type Room struct {
	total, share int

	mu    sync.Mutex
	taken map[string]int // by owner; a missing entry is 0
	sum   int
}

// New returns a Room of total bytes, of which one owner can take at most share.
func New(total, share int) *Room {
	return &Room{total: total, share: share, taken: map[string]int{}}
}

// Tab records what one request has taken.
type Tab struct {
	room  *Room
	owner string
	taken int // guarded by room.mu
}

type tabKey struct{}

// Open begins the Tab of an owner's request. The returned function gives everything back.
func (r *Room) Open(ctx context.Context, owner string) (context.Context, func()) {
	if r == nil {
		return ctx, func() {}
	}
	t := &Tab{room: r, owner: owner}
	return context.WithValue(ctx, tabKey{}, t), t.close
}

// Again begins another Tab for the owner of ctx's request, for work that outlives the request. Without a request
// there is none.
func Again(ctx context.Context) (context.Context, func()) {
	t := From(ctx)
	if t == nil {
		return ctx, func() {}
	}
	return t.room.Open(ctx, t.owner)
}

// From returns the Tab of a context's request, or nil, which allows everything.
func From(ctx context.Context) *Tab {
	t, _ := ctx.Value(tabKey{}).(*Tab)
	return t
}

// Take reports whether n more bytes can be held, and charges them if so.
func (t *Tab) Take(n int) bool {
	if t == nil {
		return true
	}
	r := t.room
	r.mu.Lock()
	defer r.mu.Unlock()
	if n > r.total-r.sum || n > r.share-r.taken[t.owner] {
		return false
	}
	t.noteLocked(n)
	return true
}

func (t *Tab) close() {
	t.room.mu.Lock()
	defer t.room.mu.Unlock()
	t.noteLocked(-t.taken)
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
