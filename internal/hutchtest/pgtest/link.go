package pgtest

import (
	"net"
	"net/url"
	"sync"
	"testing"
	"time"
)

// Link is a relay to a database, which a test can cut, hold and slow down.
type Link struct {
	URL string // URL of the database through the link

	mu      sync.Mutex
	changed *sync.Cond
	open    map[net.Conn]bool
	cut     bool
	held    bool
	slow    time.Duration
}

// NewLink returns a link to a database, which ends with the test.
func NewLink(t testing.TB, database string) *Link {
	t.Helper()
	u, err := url.Parse(database)
	if err != nil {
		t.Fatal(err)
	}
	to := u.Host
	accept, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	u.Host = accept.Addr().String()
	l := &Link{URL: u.String(), open: map[net.Conn]bool{}}
	l.changed = sync.NewCond(&l.mu)
	var running sync.WaitGroup
	running.Go(func() {
		for {
			client, err := accept.Accept()
			if err != nil {
				return
			}
			running.Go(func() { l.join(client, to) })
		}
	})
	t.Cleanup(func() {
		accept.Close()
		l.set(func() { l.cut = true })
		running.Wait()
	})
	return l
}

// Cut ends all connections, including new ones, as if the server were down.
func (l *Link) Cut() { l.set(func() { l.cut = true }) }

// Hold blocks all data without ending connections, as if the network were cut without a sign.
func (l *Link) Hold() { l.set(func() { l.held = true }) }

// Slow delays each piece of data in each direction by some time.
func (l *Link) Slow(by time.Duration) { l.set(func() { l.slow = by }) }

// Heal ends the effects of Cut, Hold and Slow.
func (l *Link) Heal() { l.set(func() { l.cut, l.held, l.slow = false, false, 0 }) }

func (l *Link) set(do func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	do()
	if l.cut {
		for c := range l.open {
			c.Close()
		}
	}
	l.changed.Broadcast()
}

// join relays between a client and the server until either ends.
func (l *Link) join(client net.Conn, to string) {
	defer client.Close()
	if !l.add(client) {
		return
	}
	defer l.remove(client)
	upstream, err := net.Dial("tcp", to)
	if err != nil {
		return
	}
	defer upstream.Close()
	if !l.add(upstream) {
		return
	}
	defer l.remove(upstream)
	var both sync.WaitGroup
	both.Go(func() { l.copy(upstream, client) })
	l.copy(client, upstream)
	both.Wait()
}

func (l *Link) add(c net.Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.cut {
		return false
	}
	l.open[c] = true
	return true
}

func (l *Link) remove(c net.Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.open, c)
}

// copy copies from one end to the other, and closes both.
func (l *Link) copy(to, from net.Conn) {
	defer to.Close()
	defer from.Close()
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		if !l.pass() || err != nil { // the end of a connection is delayed too
			return
		}
		if _, err := to.Write(buf[:n]); err != nil {
			return
		}
	}
}

// pass waits for as long as data is held or delayed. It returns false when the link is cut.
func (l *Link) pass() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if slow := l.slow; slow > 0 {
		l.mu.Unlock()
		time.Sleep(slow)
		l.mu.Lock()
	}
	for l.held && !l.cut {
		l.changed.Wait()
	}
	return !l.cut
}
