package engine_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"

	"hutch"
	"hutch/internal/caller"
	"hutch/internal/engine"
	"hutch/internal/netstack"
)

// exits are the gateways that an engine has made. Engines make gateways in parallel.
type exits struct {
	mu   sync.Mutex
	made map[string]engine.Exit
}

func (x *exits) make(e engine.Exit) (engine.Gateway, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.made == nil {
		x.made = map[string]engine.Exit{}
	}
	x.made[e.Sandbox] = e
	return &way{sent: e.Traffic.Sent + 1000}, nil
}

// of returns the arguments of a sandbox's gateway.
func (x *exits) of(id string) engine.Exit {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.made[id]
}

// forget forgets all gateways, for a server that starts again.
func (x *exits) forget() {
	x.mu.Lock()
	defer x.mu.Unlock()
	clear(x.made)
}

// way is a gateway that leads nowhere. Each gateway has sent a little more than the gateways before it.
type way struct {
	netstack.Handler
	sent int64
}

func (*way) Set(hutch.Network) error  { return nil }
func (w *way) Traffic() hutch.Traffic { return hutch.Traffic{Open: 1, Sent: w.sent} }
func (*way) Close()                   {}
func (*way) Connections(context.Context, hutch.ConnectionQuery) hutch.ConnectionLog {
	return hutch.ConnectionLog{}
}

// TestSecretsASandboxAskedFor: the gateway knows the secrets that its sandbox requested, also after a restart.
func TestSecretsASandboxAskedFor(t *testing.T) {
	var made exits
	b := start(t, func(o *engine.Options) {
		o.Gateway = made.make
		o.Secret = func(_, name string) (string, error) {
			if name == "NONE" {
				return "", hutch.Errorf(hutch.NotFound, "there is none")
			}
			return "value of " + name, nil
		}
	})
	expect := func(want ...string) {
		t.Helper()
		if _, err := b.Network(t.Context(), "box"); err != nil {
			t.Fatal(err)
		}
		if got := made.of("box").Secrets(); !slices.Equal(slices.Sorted(slices.Values(got)), want) {
			t.Errorf("it has %q, not %q", got, want)
		}
	}
	b.create(t, hutch.CreateRequest{ID: "box", Secrets: []string{"X=MADE"}})
	expect("MADE")
	for range 2 {
		if _, err := b.Exec(t.Context(), "box", hutch.ExecRequest{Command: "true", Secrets: []string{"ASKED"}}, nil); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := b.Exec(t.Context(), "box", hutch.ExecRequest{Command: "true", Secrets: []string{"NONE"}}, nil); !errors.Is(err, hutch.NotFound) {
		t.Error(err)
	}
	expect("ASKED", "MADE")
	b.end(t)
	made.forget()
	b.boot(t)
	expect("ASKED", "MADE")
}

// TestLinksAreToWhatTheOwnerHas: a sandbox can have links to sandboxes of its owner, but not to those of another owner.
func TestLinksAreToWhatTheOwnerHas(t *testing.T) {
	b := start(t, nil)
	ann, bob := caller.WithOwner(t.Context(), caller.Owner{ID: "ann"}), caller.WithOwner(t.Context(), caller.Owner{ID: "bob"})
	create := func(ctx context.Context, id string, links ...string) error {
		_, err := b.Create(ctx, hutch.CreateRequest{ID: id, Network: hutch.Network{Links: hutch.Links(links...)}})
		return err
	}
	if err := errors.Join(create(bob, "db"), create(bob, "web", "db"), create(ann, "box")); err != nil {
		t.Fatal(err)
	}
	if err := create(ann, "other", "db"); !errors.Is(err, hutch.NotFound) {
		t.Errorf("another's sandbox is linked: %v", err)
	}
	if _, err := b.SetNetwork(ann, "box", hutch.Network{Links: hutch.Links("db")}); !errors.Is(err, hutch.NotFound) {
		t.Errorf("another's sandbox is linked: %v", err)
	}
	if _, err := b.Destroy(bob, "db", true); err != nil {
		t.Fatal(err)
	}
	state, err := b.SetNetwork(bob, "web", hutch.Network{Mode: hutch.NetworkOpen, Links: hutch.Links("db")})
	if err != nil || len(state.Network.Links) != 1 {
		t.Errorf("a link that was there before: %+v, %v", state, err)
	}
	if _, err := b.SetNetwork(bob, "web", hutch.Network{Links: hutch.Links("db", "none")}); !errors.Is(err, hutch.NotFound) {
		t.Errorf("a link to nothing: %v", err)
	}
}

// A copy has the network of its original, but no more than the ceiling of its owner allows now.
func TestNetworkCeilingOfCopies(t *testing.T) {
	b := start(t, nil)
	ann := func(most *hutch.Network) context.Context {
		return caller.WithOwner(t.Context(), caller.Owner{ID: "ann", Network: most})
	}
	wide, narrow := ann(nil), ann(&hutch.Network{Mode: hutch.NetworkAllowList, Allow: hutch.Rules("pypi.org")})
	if _, err := b.Create(wide, hutch.CreateRequest{ID: "box", Network: hutch.Network{Mode: hutch.NetworkOpen}}); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Snapshot(wide, "box", hutch.SnapshotRequest{Name: "kept", FilesOnly: true}); err != nil {
		t.Fatal(err)
	}
	from := hutch.CreateRequest{Snapshot: "kept", FilesOnly: true}
	if _, err := b.Create(narrow, from); !errors.Is(err, hutch.Denied) {
		t.Errorf("as a snapshot that reaches everything: %v", err)
	}
	if _, err := b.Fork(narrow, "box", hutch.ForkRequest{}); !errors.Is(err, hutch.Denied) {
		t.Errorf("a fork of what reaches everything: %v", err)
	}
	from.Network.Allow = hutch.Rules("pypi.org")
	sb, err := b.Create(narrow, from)
	if err != nil || sb.Network.Mode != hutch.NetworkAllowList || len(sb.Network.Allow) != 1 {
		t.Errorf("with a network of its own: %+v, %v", sb.Network, err)
	}
}

// The next server continues to count the network traffic.
func TestTrafficIsKept(t *testing.T) {
	b := start(t, func(o *engine.Options) { o.Gateway = new(exits).make })
	b.create(t, hutch.CreateRequest{ID: "box"})
	for want := int64(1000); want <= 3000; want += 1000 {
		state, err := b.Network(t.Context(), "box")
		if err != nil || state.Traffic.Sent != want {
			t.Errorf("%+v, %v; want %d bytes", state.Traffic, err, want)
		}
		b.end(t)
		b.boot(t)
	}
}
