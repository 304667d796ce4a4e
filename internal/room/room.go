// Package room bounds the memory that a server holds for its callers: bodies of
// requests, and output that is kept for a result until somebody has read it.
//
// Every request has a Tab, in its context. What the server holds for it is taken
// from the share of its owner and from the room of all, and is given back when
// the request is over: so who reads no answers holds up nobody else. Calls that
// come from no request have no Tab, and no bound here.
package room

import (
	"context"
	"sync"
)

// Room is what all callers may take together. Its zero value has none.
type Room struct {
	total, share int

	mu    sync.Mutex
	taken map[string]int // by owner; what is not there is 0
	sum   int
}

// New makes a room of so many bytes, of which one owner takes no more than share.
func New(total, share int) *Room {
	return &Room{total: total, share: share, taken: map[string]int{}}
}

// Tab is what one request has taken.
type Tab struct {
	room  *Room
	owner string
	taken int // guarded by room.mu
}

type tabKey struct{}

// Open begins the Tab of an owner's request. Its end gives all of it back.
func (r *Room) Open(ctx context.Context, owner string) (context.Context, func()) {
	if r == nil {
		return ctx, func() {}
	}
	t := &Tab{room: r, owner: owner}
	return context.WithValue(ctx, tabKey{}, t), t.close
}

// Again begins another Tab of the owner of ctx's request, for what outlives that
// request. Without a request there is none.
func Again(ctx context.Context) (context.Context, func()) {
	t := From(ctx)
	if t == nil {
		return ctx, func() {}
	}
	return t.room.Open(ctx, t.owner)
}

// From is the Tab of the request that a context is of; nil, which takes as much
// as it likes, when there is none.
func From(ctx context.Context) *Tab {
	t, _ := ctx.Value(tabKey{}).(*Tab)
	return t
}

// Take reports whether n bytes more may be held, and notes that they are.
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
