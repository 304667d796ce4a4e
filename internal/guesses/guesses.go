// Package guesses counts wrong credentials by the address that sends them. After many in a minute, that address gets no
// answer until the minute is over, even to a right credential.
package guesses

import (
	"cmp"
	"crypto/sha256"
	"net/netip"
	"sync"
	"time"
)

const (
	// Most is how many different wrong credentials an address can send in a minute, by default.
	Most = 30
	// maxGuesses bounds the memory. At least maxGuesses / Most addresses are counted separately; further addresses share
	// one count.
	maxGuesses = 10_000 * Most
)

// Counter counts guesses; the zero value works. Sending the same wrong credential again, as an open page does, is not
// another guess.
type Counter struct {
	Most int // 0 for the default

	mu    sync.Mutex
	until time.Time
	by    map[netip.Addr]map[[sha256.Size]byte]struct{}
}

// Over reports whether an address has sent too many wrong credentials to get an answer.
func (c *Counter) Over(addr netip.Addr) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Now().Before(c.until) && len(c.by[c.countedLocked(addr)]) >= c.most()
}

// Wrong counts a wrong credential, and reports whether it differs from those already counted in this minute.
func (c *Counter) Wrong(addr netip.Addr, guess string) (another bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if now := time.Now(); !now.Before(c.until) {
		c.until, c.by = now.Add(time.Minute), map[netip.Addr]map[[sha256.Size]byte]struct{}{}
	}
	addr = c.countedLocked(addr)
	if c.by[addr] == nil {
		c.by[addr] = map[[sha256.Size]byte]struct{}{}
	}
	before := len(c.by[addr])
	if before < c.most() {
		c.by[addr][sha256.Sum256([]byte(guess))] = struct{}{}
	}
	return len(c.by[addr]) > before
}

func (c *Counter) most() int { return cmp.Or(c.Most, Most) }

func (c *Counter) countedLocked(addr netip.Addr) netip.Addr {
	if network, err := addr.WithZone("").Prefix(64); addr.Is6() && err == nil {
		addr = network.Addr() // a provider gives each customer a network of at least this size
	}
	if c.by[addr] == nil && len(c.by) >= maxGuesses/c.most() {
		return netip.Addr{}
	}
	return addr
}
