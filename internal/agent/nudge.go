package agent

import (
	"net"
	"sync"
	"time"

	"hutch/internal/wire"
)

// nudges are the pauses after which a connection that has become quiet is
// nudged.
var nudges = [...]time.Duration{10 * time.Millisecond, 100 * time.Millisecond, time.Second}

// nudger is a connection over gVisor's port forwarding, which looks for data
// first and asks to be told of more after: what comes in between stays where
// it is until something follows. So when the connection has become quiet, a
// frame follows that says nothing.
type nudger struct {
	net.Conn

	mu    sync.Mutex // a frame is one Write
	next  int        // in nudges
	timer *time.Timer
}

func newNudger(nc net.Conn) *nudger {
	n := &nudger{Conn: nc}
	n.timer = time.AfterFunc(time.Hour, n.nudge)
	n.timer.Stop()
	return n
}

func (n *nudger) Write(b []byte) (int, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.next = 0
	n.timer.Reset(nudges[0])
	return n.Conn.Write(b)
}

func (n *nudger) nudge() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.next == len(nudges) {
		return
	}
	if _, err := n.Conn.Write([]byte{byte(wire.TypeNudge), 0, 0, 0, 0}); err != nil {
		return
	}
	if n.next++; n.next < len(nudges) {
		n.timer.Reset(nudges[n.next])
	}
}

func (n *nudger) Close() error {
	n.timer.Stop()
	return n.Conn.Close()
}
