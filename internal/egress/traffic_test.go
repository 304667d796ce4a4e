package egress

import (
	"testing"

	"hutch"
)

// Counts continue from those of an earlier server.
func TestTrafficBefore(t *testing.T) {
	t.Parallel()
	before := hutch.Traffic{Allowed: 1, Denied: 2, Lookups: 3, Requests: 4, Sent: 5, Received: 6}
	g, err := New(hutch.Network{Mode: hutch.NetworkNone}, Options{Before: before})
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	if now := g.Traffic(); now != before {
		t.Errorf("it begins with %+v, not %+v", now, before)
	}
}
