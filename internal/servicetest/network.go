package servicetest

import (
	"errors"
	"slices"
	"testing"
	"time"

	"hutch"
)

// networkTests are tests of the network rules in a sandbox's record.
type networkTests struct{ *suite }

func (s networkTests) all() map[string]func(*testing.T) {
	return map[string]func(*testing.T){
		"Default":   s.networkDefault,
		"Set":       s.networkSet,
		"AtCreate":  s.networkAtCreate,
		"Refused":   s.networkRefused,
		"Headers":   s.networkHeaders,
		"Proxy":     s.networkProxy,
		"Log":       s.networkLog,
		"NoSandbox": s.networkNoSandbox,
	}
}

func (s networkTests) networkDefault(t *testing.T) {
	state, err := s.svc.Network(bounded(t), s.open(t))
	if err != nil || state.Network.Mode != hutch.NetworkAllowList || len(state.Network.Allow) > 0 {
		t.Errorf("a new sandbox may reach %+v, %v; want nothing", state.Network, err)
	}
}

// networkSet: new rules replace the earlier ones and are kept in their canonical form.
func (s networkTests) networkSet(t *testing.T) {
	id := s.open(t)
	for _, n := range []hutch.Network{
		{Allow: hutch.Rules("Example.com", "example.com.", "10.1.0.0/16:5432"), Limits: hutch.NetworkLimits{Connections: 7}},
		{Mode: hutch.NetworkOpen, Block: hutch.Rules("203.0.113.7", "203.0.113.7/32", "0.0.0.0/0:25")},
		{Mode: hutch.NetworkNone, Allow: hutch.Rules("[2001:db8::]/32:443")},
	} {
		want, _ := n.Canonical()
		set, err := s.svc.SetNetwork(bounded(t), id, n)
		got, gerr := s.svc.Network(bounded(t), id)
		sb, serr := s.svc.Sandbox(bounded(t), id)
		if err := errors.Join(err, gerr, serr); err != nil {
			t.Fatal(err)
		}
		for _, have := range []hutch.Network{set.Network, got.Network, sb.Network} {
			if have.Mode != want.Mode || !slices.Equal(have.Allow, want.Allow) || !slices.Equal(have.Block, want.Block) || have.Limits != want.Limits || set.SandboxID != id {
				t.Errorf("set %+v, and it is %+v; want %+v", n, have, want)
			}
		}
	}
}

func (s networkTests) networkAtCreate(t *testing.T) {
	sb := s.make(t, hutch.CreateRequest{Network: hutch.Network{Allow: hutch.Rules("*.EXAMPLE.com:443")}})
	if n := sb.Network; n.Mode != hutch.NetworkAllowList || n.Allow.String() != "*.example.com:443" {
		t.Errorf("made with %+v", n)
	}
	if _, err := s.svc.Create(bounded(t), hutch.CreateRequest{Runtime: s.Runtime, Network: hutch.Network{Allow: hutch.Rules("*")}}); !errors.Is(err, hutch.Invalid) {
		t.Errorf("made with a rule that is none: %v", err)
	}
}

// sentBack reads the network of a new sandbox and sends it back unchanged. It returns the network in each answer.
func (s networkTests) sentBack(t *testing.T, sb hutch.Sandbox) map[string]hutch.Network {
	t.Helper()
	read, err := s.svc.Network(bounded(t), sb.ID)
	if err != nil {
		t.Fatal(err)
	}
	set, err := s.svc.SetNetwork(bounded(t), sb.ID, read.Network)
	if err != nil {
		t.Fatal(err)
	}
	return map[string]hutch.Network{"made": sb.Network, "read": read.Network, "set": set.Network}
}

// networkHeaders: header rules are shown without their values. When a network is read and sent back, the values are
// kept.
func (s networkTests) networkHeaders(t *testing.T) {
	rules := func(host string, value hutch.HiddenValue) hutch.HeaderRules {
		return hutch.HeaderRules{{Host: host, Headers: map[string]hutch.HiddenValue{"authorization": value}}}
	}
	sb := s.make(t, hutch.CreateRequest{Network: hutch.Network{Headers: rules("API.example.com", "Bearer hidden-value")}})
	for what, n := range s.sentBack(t, sb) {
		if h := n.Headers; len(h) != 1 || h[0].Host != "api.example.com" || len(h[0].Headers) != 1 || len(n.Allow) > 0 {
			t.Errorf("%s: %+v", what, n)
		} else if value, ok := h[0].Headers["Authorization"]; !ok || value != "" {
			t.Errorf("%s: the value is %q", what, string(value))
		}
	}
	for _, bad := range []hutch.HeaderRules{rules("*", "value"), rules("203.0.113.7", "value"), rules("a.example.com", "a\r\nb"), rules("a.example.com", ""), {{Host: "a.example.com"}},
		rules("a.example.com", "${secrets.}"), rules("a.example.com", "${secrets.A"), rules("a.example.com", "a ${secrets.A} ${secrets.a-b}")} {
		if _, err := s.svc.SetNetwork(bounded(t), sb.ID, hutch.Network{Headers: bad}); !errors.Is(err, hutch.Invalid) {
			t.Errorf("%+v: %v", bad, err)
		}
	}
	set, err := s.svc.SetNetwork(bounded(t), sb.ID, hutch.Network{})
	if err != nil || len(set.Network.Headers) > 0 {
		t.Errorf("without rules it has %+v, %v", set.Network, err)
	}
}

// networkProxy: a proxy is shown without its password. When a network is read and sent back, the password is kept.
func (s networkTests) networkProxy(t *testing.T) {
	proxied := func(p hutch.NetworkProxy) hutch.Network { return hutch.Network{Proxy: &p} }
	want := hutch.NetworkProxy{Address: "proxy.example.com:1080", Username: "ann"}
	sb := s.make(t, hutch.CreateRequest{Network: proxied(hutch.NetworkProxy{Address: "Proxy.example.com:1080", Username: "ann", Password: "hidden-value"})})
	for what, n := range s.sentBack(t, sb) {
		if n.Proxy == nil || *n.Proxy != want || len(n.Allow) > 0 {
			t.Errorf("%s: %+v", what, n)
		}
	}
	for _, bad := range []hutch.NetworkProxy{{}, {Address: "proxy.example.com"}, {Address: "127.0.0.1:1080"}, {Address: "a.example.com:1", Password: "x"}} {
		if _, err := s.svc.SetNetwork(bounded(t), sb.ID, proxied(bad)); !errors.Is(err, hutch.Invalid) {
			t.Errorf("%+v: %v", bad, err)
		}
	}
	set, err := s.svc.SetNetwork(bounded(t), sb.ID, hutch.Network{})
	if err != nil || set.Network.Proxy != nil {
		t.Errorf("without a proxy it has %+v, %v", set.Network.Proxy, err)
	}
}

func (s networkTests) networkRefused(t *testing.T) {
	id := s.open(t)
	for _, n := range []hutch.Network{{Mode: "closed"}, {Allow: hutch.Rules("https://example.com/")}, {Block: hutch.Rules("example.com")}, {Block: hutch.Rules("x/y")}, {Limits: hutch.NetworkLimits{Rate: -1}}} {
		if _, err := s.svc.SetNetwork(bounded(t), id, n); !errors.Is(err, hutch.Invalid) {
			t.Errorf("%+v: %v", n, err)
		}
	}
	for _, q := range []hutch.ConnectionQuery{{Limit: -1}, {Limit: hutch.MaxConnections + 1}, {Wait: 61}, {Verdict: "maybe"}, {After: -1}} {
		if _, err := s.svc.Connections(bounded(t), id, q); !errors.Is(err, hutch.Invalid) {
			t.Errorf("%+v: %v", q, err)
		}
	}
}

// networkLog: a query waits for a line of the log as long as it asks for, and no longer.
func (s networkTests) networkLog(t *testing.T) {
	id := s.open(t)
	log, err := s.svc.Connections(bounded(t), id, hutch.ConnectionQuery{})
	if err != nil || log.Connections == nil {
		t.Fatalf("%+v, %v", log, err)
	}
	start := time.Now()
	log, err = s.svc.Connections(bounded(t), id, hutch.ConnectionQuery{After: log.Next + 1, Wait: 0.05})
	if err != nil || len(log.Connections) > 0 || time.Since(start) > 20*time.Second {
		t.Errorf("after %v: %+v, %v", time.Since(start), log, err)
	}
}

func (s networkTests) networkNoSandbox(t *testing.T) {
	_, get := s.svc.Network(bounded(t), "never-was")
	_, set := s.svc.SetNetwork(bounded(t), "never-was", hutch.Network{})
	_, log := s.svc.Connections(bounded(t), "never-was", hutch.ConnectionQuery{})
	for _, err := range []error{get, set, log} {
		if !errors.Is(err, hutch.NotFound) {
			t.Errorf("no sandbox: %v", err)
		}
	}
}
