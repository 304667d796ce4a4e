package drivertest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"testing"
	"time"

	"hutch"
	"hutch/internal/driver"
	"hutch/internal/wire"
)

// A connection to a server in an instance reaches that server, and no server of this machine at the same address. The
// connection ends when the server does.
func connects(t *testing.T, s *suite) {
	p := s.create(t, "served")
	instance, ok := p.Instance.(driver.Connector)
	if !ok {
		return
	}
	outside, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer outside.Close()
	port := outside.Addr().(*net.TCPAddr).Port
	c, err := instance.Connect(t.Context(), port)
	if errors.Is(err, hutch.Unsupported) {
		t.Skip(err)
	}
	if err == nil {
		c.Close()
		t.Fatal("a connection leads out of the instance")
	}
	serve := fmt.Sprintf(`exec python3 -c '
import socket
s = socket.create_server(("127.0.0.1", %d))
while True:
    c, _ = s.accept()
    c.sendall(c.makefile().readline().encode())
    c.recv(1)'`, port)
	if _, err := p.agent.Start(t.Context(), wire.Start{ID: "server", Command: serve}); err != nil {
		t.Fatal(err)
	}
	c = p.connect(t, instance, port)
	defer c.Close()
	fmt.Fprintln(c, "hello")
	said := make([]byte, 6)
	if _, err := io.ReadFull(c, said); err != nil || string(said) != "hello\n" {
		t.Errorf("the server says %q, %v", said, err)
	}
	if err := p.Destroy(t.Context()); err != nil {
		t.Fatalf("destroy: %s", explain(err))
	}
	c.SetReadDeadline(time.Now().Add(20 * time.Second))
	if _, err := c.Read(said); err == nil || errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the connection outlives the instance: %v", err)
	}
	if c, err := instance.Connect(t.Context(), port); err == nil {
		c.Close()
		t.Error("a connection with an instance that is gone")
	}
}

// connect connects to a port as soon as a server listens there.
func (p *instance) connect(t *testing.T, to driver.Connector, port int) net.Conn {
	t.Helper()
	if met, err := p.agent.Wait(t.Context(), wire.Wait{Process: "server", Port: port}); err != nil || !met {
		t.Fatalf("the server does not come: %v, %v", met, err)
	}
	c, err := to.Connect(t.Context(), port)
	if err != nil {
		t.Fatal(err)
	}
	return c
}
