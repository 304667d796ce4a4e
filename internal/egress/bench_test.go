package egress

import (
	"io"
	"net"
	"net/netip"
	"testing"

	"hutch"
)

// BenchmarkCarry sends bytes over loopback to a server that reads them: directly, and through a gateway, which adds a
// connection.
func BenchmarkCarry(b *testing.B) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	defer l.Close()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go io.Copy(io.Discard, onlyReader{c})
		}
	}()
	w := &world{servers: map[string]string{shared + ":9": l.Addr().String()}}
	through := func(b *testing.B, c net.Conn) {
		defer c.Close()
		buf := make([]byte, chunk)
		b.SetBytes(chunk)
		for b.Loop() {
			if _, err := c.Write(buf); err != nil {
				b.Fatal(err)
			}
		}
	}
	b.Run("direct", func(b *testing.B) {
		c, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			b.Fatal(err)
		}
		through(b, c)
	})
	g, err := New(hutch.Network{Allow: hutch.Rules(shared)}, Options{Dial: w.dial})
	if err != nil {
		b.Fatal(err)
	}
	defer g.Close()
	b.Run("gateway", func(b *testing.B) {
		f := &flow{dst: netip.MustParseAddrPort(shared + ":9"), network: "tcp", got: make(chan net.Conn, 1)}
		go g.TCP(b.Context(), f)
		through(b, <-f.got)
	})
}

type onlyReader struct{ io.Reader }
