// Package membudget limits the memory that a server holds for its callers: bodies of requests, and output that is kept for a
// result until the client has read it.
//
// Every request has an Account, which its caller carries (package caller). Memory for the request is charged to its owner's
// share and to the total, and is given back when the request ends. So a client that does not read its answers blocks no
// other client. Calls without a request have no Account, and are not limited here.
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

// Account records the memory that one request has taken.
type Account struct {
	budget *Budget
	owner  string

	// Guarded by budget.mu.
	taken   int
	holders int // the memory is given back when no holder is left
}

// Open begins the Account of an owner's request. The returned function, called once, gives everything back. Without a Budget
// the Account is nil, which allows everything.
func (b *Budget) Open(owner string) (*Account, func()) {
	if b == nil {
		return nil, func() {}
	}
	a := &Account{budget: b, owner: owner, holders: 1}
	return a, a.release
}

// Hold keeps the Account's memory until the returned function is also called, for a call that can outlive its request.
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

// Take reports whether n more bytes can be held, and charges them if so. Nothing more can be held when
// everything has been given back.
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

// TakeSpare does the same as Take, for memory that its holder can do without. It leaves half of the owner's share, and
// half of the total, to what others need.
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

// Reader returns r, whose bytes are charged as they are read; without memory for more, Read returns full. It is for a
// part of a body that is kept, where the body itself is only passed on and does not count.
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

// aValue estimates the decoded size of a value in a JSON list or object, without its text, in bytes.
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
