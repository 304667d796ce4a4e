package netaddr

import (
	"net/netip"
	"testing"
)

func TestAllowed(t *testing.T) {
	for text, want := range map[string][2]bool{ // a stranger's, and one that the administrator allows
		"93.184.216.34":          {true, true},
		"2606:4700::1":           {true, true},
		"127.0.0.1":              {false, true},
		"10.1.2.3":               {false, true},
		"::1":                    {false, true},
		"::ffff:10.0.0.1":        {false, true},
		"64:ff9b::a00:1":         {false, true},
		"169.254.169.254":        {false, false},
		"::ffff:169.254.169.254": {false, false},
		"fe80::1%eth0":           {false, false},
		"fd00:ec2::254":          {false, false},
		"100.100.100.200":        {false, false},
		"0.0.0.0":                {false, false},
	} {
		a := netip.MustParseAddr(text)
		if got := [2]bool{Allowed(a, false), Allowed(a, true)}; got != want {
			t.Errorf("%s: %v, want %v", text, got, want)
		}
	}
}
