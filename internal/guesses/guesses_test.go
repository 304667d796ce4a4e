package guesses

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"
)

func TestCounter(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var c Counter
		one, other := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2")
		for i := range 10 * Most {
			if another := c.Wrong(one, "the same"); another != (i == 0) {
				t.Fatalf("try %d of one guess: another %v", i, another)
			}
		}
		if c.Over(one) {
			t.Error("one guess, sent often, counts as many")
		}
		for i := range Most {
			c.Wrong(one, fmt.Sprint(i))
		}
		if !c.Over(one) || c.Over(other) {
			t.Errorf("over: %v, another: %v", c.Over(one), c.Over(other))
		}
		if c.Wrong(one, "one more") {
			t.Error("more guesses count than there can be")
		}
		time.Sleep(time.Minute)
		if c.Over(one) {
			t.Error("the next minute has not begun")
		}
		if !c.Wrong(one, "the same") {
			t.Error("a guess of the minute before does not count in the next one")
		}
	})
}

// TestNetworks: IPv6 addresses are counted by network, because a guesser has all addresses of its network.
func TestNetworks(t *testing.T) {
	t.Parallel()
	var c Counter
	for i := range Most {
		c.Wrong(netip.MustParseAddr(fmt.Sprintf("2001:db8::%x", i+1)), fmt.Sprint(i))
	}
	if !c.Over(netip.MustParseAddr("2001:db8::ffff")) || c.Over(netip.MustParseAddr("2001:db8:0:1::1")) {
		t.Error("the network does not count as one")
	}
}

// TestMemory: guesses from any number of addresses take bounded memory.
func TestMemory(t *testing.T) {
	t.Parallel()
	var c Counter
	for i := range 2 * maxGuesses / Most {
		var a [4]byte
		binary.BigEndian.PutUint32(a[:], uint32(i))
		c.Wrong(netip.AddrFrom4(a), fmt.Sprint(i))
	}
	if len(c.by) > maxGuesses/Most+1 {
		t.Errorf("%d addresses", len(c.by))
	}
}
