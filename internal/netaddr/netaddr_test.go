package netaddr

import (
	"net/netip"
	"testing"
)

func TestAllowed(t *testing.T) {
	for text, want := range map[string][2]bool{ // without and with privateToo
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

func TestIsLoopback(t *testing.T) {
	for host, want := range map[string]bool{
		"localhost": true, "LocalHost": true, "127.0.0.1": true, "127.9.9.9": true, "::1": true, "::ffff:127.0.0.1": true,
		"": false, "a.localhost": false, "localhost.example.com": false, "127.0.0.1.example.com": false, "127.1": false, "0.0.0.0": false,
		"::": false, "10.0.0.1": false, "::ffff:10.0.0.1": false, "[::1]": false, "127.0.0.1:80": false,
	} {
		if got := IsLoopback(host); got != want {
			t.Errorf("%q: %v", host, got)
		}
	}
}

func TestSplitHost(t *testing.T) {
	for text, want := range map[string][2]string{
		"example.com":    {"example.com", ""},
		"example.com:80": {"example.com", "80"},
		"[::1]:80":       {"::1", "80"},
		"[::1]":          {"::1", ""},
		"::1":            {"::1", ""},
		"":               {"", ""},
	} {
		if host, port := SplitHost(text); [2]string{host, port} != want {
			t.Errorf("%q: %q, %q", text, host, port)
		}
	}
}
