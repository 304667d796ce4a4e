package egress

import (
	"errors"
	"io"
	"net"
	"strings"
	"syscall"
	"testing"

	"hutch"
)

// A block overrides the mode, and rules for names and wider nets. A rule for the same net or a narrower one overrides
// the block.
func TestBlock(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, addr := range []string{"8.8.8.8:25", "8.8.8.8:53", "8.8.4.4:53", "[64:ff9b::808:808]:53"} {
		w.serve(addr, func(c net.Conn) { io.WriteString(c, "here") })
	}
	for _, c := range []struct {
		allow, block, addr string
		want               bool
	}{
		{"", "8.8.8.8", "8.8.8.8:53", false},
		{"", "8.8.8.8", "8.8.4.4:53", true},
		{"", "8.8.8.8", "[64:ff9b::808:808]:53", false},
		{"", "8.8.4.4", "[64:ff9b::808:808]:53", true},
		{"", "0.0.0.0/0:25", "8.8.8.8:25", false},
		{"", "0.0.0.0/0:25", "8.8.8.8:53", true},
		{"8.8.0.0/16", "8.8.8.8", "8.8.8.8:53", false},
		{"8.8.8.8", "8.8.0.0/16", "8.8.8.8:53", true},
		{"8.8.8.8", "8.8.8.8", "8.8.8.8:53", true},
		{"8.8.8.8", "8.8.0.0/16", "8.8.4.4:53", false},
		{"8.8.0.0/16", "8.0.0.0/8 8.8.8.0/24", "8.8.8.8:53", false},
	} {
		in := w.inside(hutch.NetworkOpen)
		n := hutch.Network{Mode: hutch.NetworkOpen, Allow: hutch.Rules(strings.Fields(c.allow)...), Block: hutch.Rules(strings.Fields(c.block)...)}
		if err := in.g.Set(n); err != nil {
			t.Fatal(err)
		}
		conn, err := in.dial(t.Context(), "tcp", c.addr)
		if err == nil {
			conn.Close()
		}
		if (err == nil) != c.want || err != nil && !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("allow %q, block %q: %s: %v", c.allow, c.block, c.addr, err)
		}
		if last := in.last(); !c.want && !strings.Contains(last.Reason, "is blocked: hutch network sb --unblock ") {
			t.Errorf("block %q: %s: the reason is %q", c.block, c.addr, last.Reason)
		}
	}
}

// An allowed name gives no access to a blocked address, even if its address was looked up before the block. A new
// block cuts connections.
func TestBlockedName(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	in := w.inside("", allowedName)
	if _, err := in.get("http://" + allowedName + "/"); err != nil {
		t.Fatal(err)
	}
	open, err := in.dial(t.Context(), "tcp", shared+":80")
	if err != nil {
		t.Fatal(err)
	}
	defer open.Close()
	if err := in.g.Set(hutch.Network{Allow: hutch.Rules(allowedName), Block: hutch.Rules(shared)}); err != nil {
		t.Fatal(err)
	}
	if _, err := open.Read(make([]byte, 1)); err == nil {
		t.Error("an open connection was not cut")
	}
	if _, err := in.dial(t.Context(), "tcp", shared+":80"); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("by its address: %v", err)
	}
	if _, err := in.get("http://" + allowedName + "/"); err == nil {
		t.Error("by its name: it was reached")
	}
}
