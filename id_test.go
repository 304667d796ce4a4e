package hutch_test

import (
	"errors"
	"testing"

	"hutch"
)

func TestNamesOfHostsAreNoNewIDs(t *testing.T) {
	for _, id := range []string{"localhost", "ip6-localhost", "broadcasthost", "0", "00", "0x0", "2130706433", "0x7f000001", "017700000001", "Localhost"} {
		if err := hutch.CheckNewID(id); !errors.Is(err, hutch.Invalid) {
			t.Errorf("%q: %v", id, err)
		}
	}
	for _, id := range []string{"1", "42", "user-0", "localhost-1", "0x", "0b1", "4294967296", "08", "host"} {
		if err := hutch.CheckNewID(id); err != nil {
			t.Errorf("%q: %v", id, err)
		}
	}
}
