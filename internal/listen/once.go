package listen

import (
	"net"
	"sync"
)

// Once returns a listener that returns one connection, and ends with it.
func Once(conn net.Conn) net.Listener {
	l := &once{addr: conn.LocalAddr(), next: make(chan net.Conn, 1), ended: make(chan struct{})}
	l.next <- &watched{conn, sync.OnceFunc(func() { close(l.ended) })}
	return l
}

type once struct {
	addr  net.Addr
	next  chan net.Conn
	ended chan struct{}
}

// Accept implements net.Listener.
func (l *once) Accept() (net.Conn, error) {
	select {
	case conn := <-l.next:
		return conn, nil
	case <-l.ended:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener. The connection outlives it.
func (l *once) Close() error { return nil }

// Addr implements net.Listener.
func (l *once) Addr() net.Addr { return l.addr }

// watched is a connection that reports when it is closed.
type watched struct {
	net.Conn
	closed func()
}

// Close implements net.Conn.
func (w *watched) Close() error {
	defer w.closed()
	return w.Conn.Close()
}

// CloseWrite ends the data for the other side. net/http calls it before it closes a connection, because data can still
// be in transit.
func (w *watched) CloseWrite() error {
	if half, ok := w.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return w.Close()
}
