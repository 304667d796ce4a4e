// Package socks is a SOCKS5 server for tests, which records requests.
package socks

import (
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"net"
	"net/netip"
	"strings"
	"sync"
)

// Server is a proxy (RFC 1928) that accepts only IP addresses and no names.
type Server struct {
	// Clients must log in with User and Password (RFC 1929); empty for no authentication.
	User, Password string
	// Dial connects to the address that a client asked for.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)

	mu    sync.Mutex
	asked []string
}

// Asked returns the addresses that clients asked for, separated by spaces.
func (s *Server) Asked() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Join(s.asked, " ")
}

// Serve answers the connections of l until l is closed.
func (s *Server) Serve(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer c.Close()
			s.Answer(c)
		}()
	}
}

// Answer serves one connection.
func (s *Server) Answer(c net.Conn) {
	read := func(n byte) []byte { // returns zeros after the end
		b := make([]byte, n)
		io.ReadFull(c, b)
		return b
	}
	methods := read(read(2)[1])
	switch {
	case s.User == "":
		c.Write([]byte{5, 0})
	case bytes.IndexByte(methods, 2) < 0:
		c.Write([]byte{5, 0xff})
		return
	default:
		c.Write([]byte{5, 2})
		user := string(read(read(2)[1]))
		if password := string(read(read(1)[0])); user != s.User || password != s.Password {
			c.Write([]byte{1, 1})
			return
		}
		c.Write([]byte{1, 0})
	}
	size := byte(4)
	if read(4)[3] == 4 { // IPv6
		size = 16
	}
	to, _ := netip.AddrFromSlice(read(size))
	address := netip.AddrPortFrom(to, binary.BigEndian.Uint16(read(2))).String()
	s.mu.Lock()
	s.asked = append(s.asked, address)
	s.mu.Unlock()
	up, err := s.Dial(context.Background(), "tcp", address)
	if err != nil {
		c.Write([]byte{5, 5, 0, 1, 0, 0, 0, 0, 0, 0})
		return
	}
	defer up.Close()
	c.Write([]byte{5, 0, 0, 1, 0, 0, 0, 0, 0, 0})
	var both sync.WaitGroup
	both.Go(func() { pipe(up, c) })
	both.Go(func() { pipe(c, up) })
	both.Wait()
}

// pipe copies data in one direction, and then passes the end of the data on.
func pipe(to, from net.Conn) {
	if _, err := io.Copy(to, from); err != nil {
		to.Close()
		from.Close()
	} else if half, ok := to.(interface{ CloseWrite() error }); ok {
		half.CloseWrite()
	}
}
