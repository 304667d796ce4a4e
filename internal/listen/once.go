package broker

import (
	"net"
	"sync"
)

// once is a listener to which one connection comes. It ends with that.
type once struct {
	conn *watched
	next chan net.Conn
}

func newOnce(conn net.Conn) *once {
	l := &once{conn: &watched{Conn: conn, closed: make(chan struct{})}, next: make(chan net.Conn, 1)}
	l.next <- l.conn
	return l
}

// Accept implements net.Listener.
func (l *once) Accept() (net.Conn, error) {
	select {
	case conn := <-l.next:
		return conn, nil
	case <-l.conn.closed:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (l *once) Close() error { return nil }

// Addr implements net.Listener.
func (l *once) Addr() net.Addr { return l.conn.LocalAddr() }

// watched is a connection that tells when it was closed.
type watched struct {
	net.Conn
	once   sync.Once
	closed chan struct{}
}

// Close implements net.Conn.
func (w *watched) Close() error {
	w.once.Do(func() { close(w.closed) })
	return w.Conn.Close()
}
