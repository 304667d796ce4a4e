// Package membudget limits the memory that a server holds for its callers: bodies of requests, and output that is kept
// for a result until the client has read it.
//
// Every request has an Account, which is part of its caller.Caller. Memory for the request is charged to its owner's
// share and to the total, until the request ends. So a client that does not read its answers does not block other
// clients. Calls without a request have no Account, and are not limited here.
package membudget

import (
	"io"
	"sync"

	"hutch/internal/jsoncount"
)

// Budget is the memory that all callers can take together. The zero value has none.
type Budget struct {
	total, share int

	mu    sync.Mutex
	taken map[string]int // by owner; a missing entry is 0
	sum   int
}

// New returns a Budget of total bytes. One owner can take at most share of them.
func New(total, share int) *Budget {
	return &Budget{total: total, share: share, taken: map[string]int{}}
}

// Account counts the memory that is charged to one request.
type Account struct {
	budget *Budget
	owner  string

	// Guarded by budget.mu.
	taken   int
	holders int // the memory is released when no holder is left
}

// Open returns an Account for an owner's request. The returned function releases all its memory, and must be called once.
// If b is nil, the Account is nil, which allows everything.
func (b *Budget) Open(owner string) (*Account, func()) {
	if b == nil {
		return nil, func() {}
	}
	a := &Account{budget: b, owner: owner, holders: 1}
	return a, a.release
}

// Hold keeps the Account's memory charged until the returned function is called, even if the request ends before that.
func (a *Account) Hold() func() {
	if a == nil {
		return func() {}
	}
	a.budget.mu.Lock()
	defer a.budget.mu.Unlock()
	a.holders++
	return a.release
}

// Again begins another Account for the same owner, for work that outlives the request.
func (a *Account) Again() (*Account, func()) {
	if a == nil {
		return nil, func() {}
	}
	return a.budget.Open(a.owner)
}

// Take reports whether n more bytes can be held, and charges them if so. After the memory was released, it returns false.
func (a *Account) Take(n int) bool {
	if a == nil {
		return true
	}
	b := a.budget
	b.mu.Lock()
	defer b.mu.Unlock()
	if a.holders == 0 || n > b.total-b.sum || n > b.share-b.taken[a.owner] {
		return false
	}
	a.noteLocked(n)
	return true
}

// TakeSpare does the same as Take, for memory that its holder can do without. It leaves half of the owner's share and half
// of the total free for Take.
func (a *Account) TakeSpare(n int) bool {
	if a == nil {
		return true
	}
	b := a.budget
	b.mu.Lock()
	defer b.mu.Unlock()
	if a.holders == 0 || n > b.total/2-b.sum || n > b.share/2-b.taken[a.owner] {
		return false
	}
	a.noteLocked(n)
	return true
}

// Reader returns a reader that reads r and charges the bytes. If they cannot be charged, Read returns the error full. It
// is for the part of a body that is kept in memory, where the rest of the body is only passed on.
func (a *Account) Reader(r io.Reader, full error) io.Reader { return charged{r, a, full} }

type charged struct {
	io.Reader
	account *Account
	full    error
}

func (c charged) Read(b []byte) (int, error) {
	n, err := c.Reader.Read(b)
	if n > 0 && !c.account.Take(n) {
		return 0, c.full
	}
	return n, err
}

// aValue is an estimate of the memory, in bytes, for a decoded value of a JSON list or object, without its text.
const aValue = 200

// TakeJSON does the same as Take, for the decoded form of a JSON text. A short text can become much larger: [{},{},{}]
// are three structs with all their fields.
func (a *Account) TakeJSON(text []byte) bool {
	if a == nil {
		return true
	}
	return a.Take(jsoncount.Values(text) * aValue)
}

func (a *Account) release() {
	a.budget.mu.Lock()
	defer a.budget.mu.Unlock()
	if a.holders--; a.holders == 0 {
		a.noteLocked(-a.taken)
	}
}

func (a *Account) noteLocked(n int) {
	b := a.budget
	a.taken += n
	b.sum += n
	b.taken[a.owner] += n
	if b.taken[a.owner] == 0 {
		delete(b.taken, a.owner)
	}
}
