package policy_test

import (
	"context"
	"errors"
	"testing"

	"hutch"
	"hutch/internal/hutchtest/fakeengine"
	"hutch/internal/policy"
)

// A caller that can run code cannot give a sandbox more network access than the server's setting allows.
func TestNetworkCeiling(t *testing.T) {
	t.Parallel()
	ceiling := hutch.Network{Mode: hutch.NetworkAllowList, Allow: hutch.Rules("*.example.com", "10.0.0.0/8:5432"), Limits: hutch.NetworkLimits{Connections: 10}}
	for _, c := range []struct {
		ceiling hutch.Network
		n       hutch.Network
		want    error
	}{
		{ceiling, hutch.Network{}, nil},
		{ceiling, hutch.Network{Mode: hutch.NetworkNone}, nil},
		{ceiling, hutch.Network{Allow: hutch.Rules("api.example.com:443", "10.1.2.3:5432")}, nil},
		{ceiling, hutch.Network{Allow: hutch.Rules("api.example.com"), Limits: hutch.NetworkLimits{Connections: 5}}, nil},
		{ceiling, hutch.Network{Mode: hutch.NetworkOpen}, hutch.Denied},
		{ceiling, hutch.Network{Allow: hutch.Rules("evil.example.net")}, hutch.Denied},
		{ceiling, hutch.Network{Allow: hutch.Rules("api.example.com:22")}, hutch.Denied},
		{ceiling, hutch.Network{Allow: hutch.Rules("10.1.2.3")}, hutch.Denied},
		{ceiling, hutch.Network{Mode: hutch.NetworkNone, Limits: hutch.NetworkLimits{Connections: 11}}, hutch.Denied},
		{ceiling, hutch.Network{Allow: hutch.Rules("*")}, hutch.Invalid},
		{hutch.Network{}, hutch.Network{Allow: hutch.Rules("example.com")}, hutch.Denied},
		{hutch.Network{Mode: hutch.NetworkOpen}, hutch.Network{Mode: hutch.NetworkOpen, Allow: hutch.Rules("example.com:*")}, nil},
		{hutch.Network{Mode: hutch.NetworkOpen}, hutch.Network{Mode: hutch.NetworkOpen, Allow: hutch.Rules("192.168.0.0/16")}, hutch.Denied},
	} {
		w := newWorld(t, fakeengine.Start(t), policy.Options{Network: c.ceiling})
		agent := w.as(t, hutch.TokenRequest{Name: "agent", Scopes: []hutch.Scope{hutch.ScopeExec}})
		admin := w.as(t, hutch.TokenRequest{Name: "admin", Scopes: []hutch.Scope{hutch.ScopeExec, hutch.ScopeAdmin}})
		_, err := w.Create(agent, hutch.CreateRequest{ID: "made", Network: c.n})
		if c.want == nil && err != nil || c.want != nil && !errors.Is(err, c.want) {
			t.Errorf("create with %+v below %+v: %v", c.n, c.ceiling, err)
		}
		for _, ctx := range []context.Context{agent, admin} {
			if _, err := w.Create(ctx, hutch.CreateRequest{ID: "box"}); err != nil {
				t.Fatal(err)
			}
		}
		_, err = w.SetNetwork(agent, "box", c.n)
		if c.want == nil && err != nil || c.want != nil && !errors.Is(err, c.want) {
			t.Errorf("set %+v below %+v: %v", c.n, c.ceiling, err)
		}
		if _, err := w.SetNetwork(admin, "box", c.n); err != nil && c.want != hutch.Invalid {
			t.Errorf("an admin sets %+v: %v", c.n, err)
		}
	}
}

// A secret brokered for a host makes the host reachable, so the same ceiling applies.
func TestBrokeringCeiling(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nowhere{}, policy.Options{Network: hutch.Network{Allow: hutch.Rules("api.example.com")}})
	agent := w.as(t, hutch.TokenRequest{Name: "agent", Scopes: []hutch.Scope{hutch.ScopeExec}})
	admin := w.as(t, hutch.TokenRequest{Name: "admin", Scopes: []hutch.Scope{hutch.ScopeExec, hutch.ScopeAdmin}})
	for _, c := range []struct {
		ctx   context.Context
		hosts []string
		want  error
	}{
		{agent, []string{"api.example.com"}, hutch.Unsupported}, // from the vault, which stores no secrets in this test
		{admin, []string{"evil.example.net:8443"}, hutch.Unsupported},
		{agent, []string{"evil.example.net"}, hutch.Denied},
		{agent, []string{"api.example.com", "api.example.com:8443"}, hutch.Denied},
		{agent, []string{"sub.api.example.com"}, hutch.Denied},
		{agent, nil, hutch.Invalid},
	} {
		_, err := w.SetSecret(c.ctx, "KEY", hutch.SecretRequest{Value: "a-value", Brokered: &hutch.Brokering{Hosts: c.hosts}})
		if !errors.Is(err, c.want) {
			t.Errorf("%q: %v", c.hosts, err)
		}
	}
}
