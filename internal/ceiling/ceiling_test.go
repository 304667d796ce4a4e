package ceiling

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"testing"

	"hutch"
)

func TestGive(t *testing.T) {
	t.Parallel()
	pypi := &hutch.Network{Mode: hutch.NetworkAllowList, Allow: hutch.Rules("pypi.org"), Limits: hutch.NetworkLimits{Connections: 10}}
	open := hutch.Network{Mode: hutch.NetworkOpen}
	by := func(proxy string) hutch.Network { return hutch.Network{Proxy: &hutch.NetworkProxy{Address: proxy}} }
	for _, c := range []struct {
		name           string
		ceiling        *hutch.Network
		asks, fallback hutch.Network
		want           string // mode, rules, concurrent connections; empty when the request is refused
	}{
		{"no ceiling", nil, hutch.Network{}, open, "open [] 0"},
		{"no ceiling, its own", nil, hutch.Network{Allow: hutch.Rules("a.example")}, open, "allow-list [a.example] 0"},
		{"nothing asked", pypi, hutch.Network{}, hutch.Network{}, "allow-list [] 10"},
		{"a server that allows more", pypi, hutch.Network{}, open, "allow-list [pypi.org] 10"},
		{"all of it", pypi, hutch.Network{Allow: hutch.Rules("pypi.org:443")}, hutch.Network{}, "allow-list [pypi.org:443] 10"},
		{"fewer connections", pypi, hutch.Network{Limits: hutch.NetworkLimits{Connections: 2}}, open, "allow-list [pypi.org] 2"},
		{"another name", pypi, hutch.Network{Allow: hutch.Rules("evil.example")}, open, ""},
		{"open", pypi, open, open, ""},
		{"more connections", pypi, hutch.Network{Limits: hutch.NetworkLimits{Connections: 11}}, hutch.Network{}, ""},
		{"nothing at all", &hutch.Network{Mode: hutch.NetworkNone}, hutch.Network{}, open, "none [] 0"},
		{"more than nothing", &hutch.Network{Mode: hutch.NetworkNone}, hutch.Network{Allow: hutch.Rules("pypi.org")}, open, ""},
		{"blocked, of the default", pypi, hutch.Network{Block: hutch.Rules("203.0.113.7")}, hutch.Network{}, "allow-list [] 10"},
		{"a proxy that is allowed", &hutch.Network{Mode: hutch.NetworkAllowList, Allow: hutch.Rules("pypi.org", "proxy.example.com:1080")}, by("proxy.example.com:1080"), open, "allow-list [pypi.org proxy.example.com:1080] 0"},
		{"a proxy at another port", &hutch.Network{Mode: hutch.NetworkAllowList, Allow: hutch.Rules("proxy.example.com")}, by("proxy.example.com:1080"), open, ""},
		{"a proxy beyond", pypi, by("proxy.example.com:1080"), open, ""},
		{"a public proxy", &open, by("proxy.example.com:1080"), open, "open [] 0"},
		{"a proxy in a private net", &open, by("10.1.2.3:1080"), open, ""},
		{"beyond the server", &open, open, hutch.Network{}, "open [] 0"},
	} {
		got, err := Give(c.ceiling, c.asks, c.fallback)
		if text := fmt.Sprintf("%s [%s] %d", got.Mode, got.Allow, got.Limits.Connections); c.want != "" && (err != nil || text != c.want) {
			t.Errorf("%s: %s, %v; want %s", c.name, text, err, c.want)
		}
		if c.want == "" && !errors.Is(err, hutch.Denied) {
			t.Errorf("%s: %v, %v", c.name, got, err)
		}
	}
}

// The index of rules gives the same answer as checking each rule.
func TestWithinIsTheRules(t *testing.T) {
	texts := []string{
		"example.com", "*.example.com", "a.example.com:8443", "*.b.example.com:*", "com", "*.com:443", "example.org:*",
		"10.0.0.0/8", "10.1.0.0/16:5432", "10.1.2.3", "203.0.113.7:80", "2001:db8::/32", "[2001:db8::1]:443", "0.0.0.0/0:443",
	}
	rules := make([]hutch.NetworkRule, len(texts))
	for i, text := range texts {
		rules[i], _ = hutch.ParseNetworkRule(text)
	}
	for subset := range 1 << len(texts) {
		if subset%7 != 0 { // enough of them
			continue
		}
		var ceiling hutch.Network
		for i := range texts {
			if subset>>i&1 == 1 {
				ceiling.Allow = append(ceiling.Allow, rules[i])
			}
		}
		for i, text := range texts {
			want := false
			for j := range texts {
				want = want || subset>>j&1 == 1 && rules[j].Covers(rules[i])
			}
			if got := within(hutch.Network{Allow: rules[i : i+1]}, ceiling) == nil; got != want {
				t.Fatalf("%s within %q: %t, want %t", text, ceiling.Allow, got, want)
			}
		}
	}
}

// BenchmarkWithin parses a thousand rules, and compares them with a ceiling of a thousand rules.
func BenchmarkWithin(b *testing.B) {
	for what, text := range map[string]func(i int) string{
		"names":    func(i int) string { return fmt.Sprintf("host-%d.example.com:443", i) },
		"networks": func(i int) string { return fmt.Sprintf("10.%d.%d.0/24", i/256, i%256) },
	} {
		b.Run(what, func(b *testing.B) {
			var n hutch.Network
			for i := range hutch.MaxNetworkRules {
				n.Allow = append(n.Allow, hutch.Rules(text(i))...)
			}
			request, err := json.Marshal(n)
			if err != nil {
				b.Fatal(err)
			}
			for b.Loop() {
				var asked hutch.Network
				err := json.Unmarshal(request, &asked)
				asked, bad := asked.Canonical()
				if err := cmp.Or(err, bad); err != nil || within(asked, n) != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// A text that is not a rule is above every ceiling.
func TestUnreadRule(t *testing.T) {
	t.Parallel()
	bad := hutch.Network{Allow: hutch.Rules("https://x/")}
	for _, ceiling := range []hutch.Network{{Mode: hutch.NetworkOpen}, bad, {Allow: hutch.Rules("x", "0.0.0.0/0")}} {
		if within(bad, ceiling) == nil {
			t.Errorf("allowed below %v", ceiling)
		}
	}
}
