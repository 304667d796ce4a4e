package engine_test

import (
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"hutch"
)

// The number of connections to the servers of a sandbox is bounded. A connection that is closed, or that failed, no
// longer counts.
func TestConnectionsAreBounded(t *testing.T) {
	const most = 512
	b := start(t, nil)
	sb := b.create(t, hutch.CreateRequest{})
	server, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	go func() {
		for c, err := server.Accept(); err == nil; c, err = server.Accept() {
			go func() { io.Copy(io.Discard, c); c.Close() }()
		}
	}()
	port := server.Addr().(*net.TCPAddr).Port
	var open []net.Conn
	defer func() {
		for _, c := range open {
			if c != nil {
				c.Close()
			}
		}
	}()
	for range most {
		if _, err := b.DialPort(t.Context(), sb.ID, 1); !errors.Is(err, hutch.Unavailable) {
			t.Fatalf("a port without a server: %v", err)
		}
	}
	for range most {
		c, err := b.DialPort(t.Context(), sb.ID, port)
		if err != nil {
			t.Fatalf("connection %d: %v", len(open)+1, err)
		}
		open = append(open, c)
	}
	if _, err := b.DialPort(t.Context(), sb.ID, port); !errors.Is(err, hutch.Exhausted) {
		t.Errorf("one too many: %v", err)
	}
	open[0].Close()
	// The agent has a limit, too, and notices later that the connection is closed.
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(time.Millisecond) {
		if open[0], err = b.DialPort(t.Context(), sb.ID, port); err == nil {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("one was closed, but no other can be opened: %v", err)
		}
	}
}
