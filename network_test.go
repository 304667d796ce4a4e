package hutch_test

import (
	"encoding/json"
	"net/netip"
	"strings"
	"testing"

	"hutch"
)

func TestNetworkRules(t *testing.T) {
	for text, want := range map[string]string{
		"example.com":           "example.com",
		"Example.COM.":          "example.com",
		"*.example.com":         "*.example.com",
		"example.com:443":       "example.com:443",
		"*.example.com:*":       "*.example.com:*",
		"localhost:80":          "localhost:80",
		"xn--bcher-kva.example": "xn--bcher-kva.example",
		"_sip.example.com":      "_sip.example.com",
		"203.0.113.7":           "203.0.113.7",
		"203.0.113.7:*":         "203.0.113.7",
		"203.0.113.7/32:443":    "203.0.113.7:443",
		"10.1.0.0/16:5432":      "10.1.0.0/16:5432",
		"0.0.0.0/0":             "0.0.0.0/0",
		"2001:db8::/32":         "2001:db8::/32",
		"[2001:db8::]/32":       "2001:db8::/32",
		"[2001:db8::]/32:53":    "[2001:db8::]/32:53",
		"[2001:DB8::1]:443":     "[2001:db8::1]:443",
		"2001:db8::1":           "2001:db8::1",
	} {
		rule, err := hutch.ParseNetworkRule(text)
		if err != nil || rule.String() != want {
			t.Errorf("%q is %q, %v; want %q", text, rule, err, want)
		}
	}
}

func TestNetworkRulesThatAreNone(t *testing.T) {
	for text, why := range map[string]string{
		"":                              "names nothing",
		"*":                             "the mode open",
		"*.*.example.com":               "only at the beginning",
		"api*.example.com":              "only at the beginning",
		"https://example.com/":          "it is a URL",
		"example.com/path":              "has no path",
		"example.com:":                  "no port after the colon",
		"example.com:0":                 "is not a port",
		"example.com:99999":             "is not a port",
		"example.com:http":              "is not a port",
		"exa mple.com":                  "cannot be in a name",
		"bücher.example":                "xn--",
		"a..b":                          "1 to 63",
		"-a.example":                    "no - at their ends",
		strings.Repeat("a", 64):         "1 to 63",
		strings.Repeat("abcdefg.", 40):  "253",
		"2130706433":                    "four numbers",
		"0x7f000001":                    "four numbers",
		"127.1":                         "four numbers",
		"0177.0.0.1":                    "four numbers",
		"1.2.3.4.5":                     "four numbers",
		"10.1.2.3/16":                   "write 10.1.0.0/16",
		"10.0.0.0/33":                   "it is not a net",
		"127.0.0.1":                     "never reachable",
		"169.254.169.254:80":            "never reachable",
		"[::1]:443":                     "never reachable",
		"fe80::1%eth0":                  "zone",
		"::ffff:10.0.0.1":               "IPv4",
		"[2001:db8::1":                  "no ]",
		"[example.com]:443":             "address of IPv6",
		"[2001:db8::1]443":              "address of IPv6",
		"example.com\nevil.example:443": "cannot be in a name",
	} {
		rule, err := hutch.ParseNetworkRule(text)
		if err == nil || !strings.Contains(err.Error(), why) || hutch.KindOf(err) != hutch.Invalid {
			t.Errorf("%.80q is %q, error %v; want one with %q", text, rule, err, why)
		}
	}
}

func TestNetworkRuleMatches(t *testing.T) {
	rule := func(text string) hutch.NetworkRule {
		r, err := hutch.ParseNetworkRule(text)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	for text, names := range map[string]map[string]bool{
		"example.com":   {"example.com": true, "a.example.com": false, "notexample.com": false, "example.com.evil.net": false},
		"*.example.com": {"example.com": false, "a.example.com": true, "a.b.example.com": true, "notexample.com": false, ".example.com": false},
		"10.0.0.0/8":    {"10.0.0.1": false, "": false},
	} {
		for name, want := range names {
			if got := rule(text).HasName(name); got != want {
				t.Errorf("%s has the name %q: %v", text, name, got)
			}
		}
	}
	for text, ports := range map[string]map[uint16]bool{
		"example.com": {80: true, 443: true, 22: false}, "example.com:22": {22: true, 443: false},
		"example.com:*": {22: true, 443: true}, "192.0.2.1": {22: true}, "192.0.2.1:443": {443: true, 80: false},
	} {
		for port, want := range ports {
			if got := rule(text).HasPort(port); got != want {
				t.Errorf("%s has the port %d: %v", text, port, got)
			}
		}
	}
	if r := rule("10.1.0.0/16"); !r.HasAddr(netip.MustParseAddr("10.1.2.3")) || r.HasAddr(netip.MustParseAddr("10.2.0.0")) || rule("a.example").HasAddr(netip.Addr{}) {
		t.Error("a net has not the addresses in it")
	}
	for pair, want := range map[[2]string]bool{
		{"*.example.com", "a.example.com:443"}:   true,
		{"*.example.com", "*.b.example.com"}:     true,
		{"*.example.com", "*.example.com"}:       true,
		{"*.example.com", "example.com"}:         false,
		{"*.b.example.com", "*.example.com"}:     false,
		{"example.com", "*.example.com"}:         false,
		{"example.com", "example.com:*"}:         false,
		{"example.com", "example.com:22"}:        false,
		{"example.com:*", "example.com"}:         true,
		{"example.com:443", "example.com"}:       false,
		{"10.0.0.0/8", "10.1.0.0/16:5432"}:       true,
		{"10.1.0.0/16", "10.0.0.0/8"}:            false,
		{"10.0.0.0/8:5432", "10.1.0.0/16"}:       false,
		{"::/0", "10.1.0.0/16"}:                  false,
		{"10.0.0.0/8", "example.com"}:            false,
		{"*.example.com:8080", "a.example.com"}:  false,
		{"example.com:8080", "example.com:8080"}: true,
	} {
		if got := rule(pair[0]).Covers(rule(pair[1])); got != want {
			t.Errorf("%s covers %s: %v", pair[0], pair[1], got)
		}
	}
}

func TestNetworkCanonical(t *testing.T) {
	n, err := hutch.Network{Allow: hutch.Rules("A.example", "a.example", "10.0.0.1/32")}.Canonical()
	if err != nil || n.Mode != hutch.NetworkAllowList || n.Allow.String() != "a.example 10.0.0.1" {
		t.Errorf("canonical is %+v, %v", n, err)
	}
	for _, bad := range []hutch.Network{{Mode: "closed"}, {Allow: hutch.Rules("*")}, {Limits: hutch.NetworkLimits{Rate: -1}}, {Allow: make(hutch.NetworkRules, hutch.MaxNetworkRules+1)}} {
		if _, err := bad.Canonical(); hutch.KindOf(err) != hutch.Invalid {
			t.Errorf("%.80v: %v", bad, err)
		}
	}
}

// Every valid rule has one canonical form. That form parses to the same rule, and allows no more than the rule
// itself.
func FuzzNetworkRule(f *testing.F) {
	for _, seed := range []string{"example.com", "*.example.com:443", "10.1.0.0/16:5432", "[2001:db8::]/32:53", "2001:db8::1", "[::]/0", "*", "a:*", "1.2.3"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		rule, err := hutch.ParseNetworkRule(text)
		if err != nil {
			if hutch.KindOf(err) != hutch.Invalid {
				t.Errorf("%q: %v", text, err)
			}
			return
		}
		again, err := hutch.ParseNetworkRule(rule.String())
		if err != nil || again != rule {
			t.Errorf("%q is %q, which is %+v, %v and not %+v", text, rule, again, err, rule)
		}
		if !rule.Covers(rule) || rule.Name != strings.ToLower(rule.Name) || (rule.Name == "") != rule.Net.IsValid() {
			t.Errorf("%q is %+v", text, rule)
		}
	})
}

// A list of texts reads as a list of rules. A text that is not a rule is kept unchanged, and its request is refused.
func TestRulesAsJSON(t *testing.T) {
	t.Parallel()
	var n hutch.Network
	if err := json.Unmarshal([]byte(`{"allow":["A.example.","https://x/",""]}`), &n); err != nil {
		t.Fatal(err)
	}
	if again, err := json.Marshal(n); err != nil || string(again) != `{"allow":["a.example","https://x/",""]}` {
		t.Errorf("%s, %v", again, err)
	}
	_, want := hutch.ParseNetworkRule("https://x/")
	if _, err := n.Canonical(); err == nil || err.Error() != want.Error() {
		t.Errorf("%v, want %v", err, want)
	}
	if n.Allows(n.Allow[1]) {
		t.Error("a text that is not a rule is allowed")
	}
	long := `{"allow":[` + strings.TrimSuffix(strings.Repeat(`"",`, 1<<17), ",") + `]}`
	if err := json.Unmarshal([]byte(long), &n); err != nil || len(n.Allow) != hutch.MaxNetworkRules+1 {
		t.Errorf("%d rules are kept, %v", len(n.Allow), err)
	}
	if err := json.Unmarshal([]byte(`{"allow":null}`), &n); err != nil || n.Allow != nil {
		t.Errorf("null is %v, %v", n.Allow, err)
	}
	if err := json.Unmarshal([]byte(`{"allow":[1]}`), &n); err == nil {
		t.Error("a number is read as a rule")
	}
}

// No rule allows addresses that are never reachable, or a sandbox without a link, so no rule is proposed for them.
func TestAllowable(t *testing.T) {
	t.Parallel()
	for reason, want := range map[string]bool{
		"no rule is about pypi.org: hutch network box --allow pypi.org":                                               true,
		"203.0.113.7 is blocked: hutch network box --unblock 203.0.113.0/24":                                          true,
		"the network of the sandbox is none: hutch network box --mode allow-list":                                     true,
		"169.254.169.254 is never reachable: it is the host's own, link-local, metadata or reserved":                  false,
		"only TCP goes through the proxy of the sandbox (network.proxy): use TCP, or hutch network box --unset-proxy": false,
		"example.com was asked of 203.0.113.7, which is not its address":                                              false,
		"no link has the name db: hutch network box --link db":                                                        false,
		"no rule allows *.com at port 443, and none can: it is not the name of a machine":                             false,
	} {
		if got := (hutch.Connection{Verdict: hutch.Refused, Reason: reason}).Allowable(); got != want {
			t.Errorf("%s: %v", reason, got)
		}
	}
}
