package engine_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"hutch"
	"hutch/internal/caller"
	"hutch/internal/engine"
	"hutch/internal/store"
)

const hiddenValue = "Bearer a-hidden-value"

func headersFor(host string, value hutch.HiddenValue) hutch.Network {
	return hutch.Network{Mode: hutch.NetworkOpen, Headers: hutch.HeaderRules{{Host: host, Headers: map[string]hutch.HiddenValue{"Authorization": value}}}}
}

// withExits starts an engine whose gateways record their arguments.
func withExits(t *testing.T) (*bench, *exits) {
	made := &exits{}
	return start(t, func(o *engine.Options) { o.Gateway = made.make }), made
}

// gateway returns the value that the gateway of a sandbox has for a host.
func (x *exits) gateway(t *testing.T, b *bench, id, host string) hutch.HiddenValue {
	t.Helper()
	b.end(t)
	x.forget()
	b.boot(t)
	if _, err := b.Network(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	if r := x.of(id).Network.Headers.For(host, 443); r != nil {
		return r.Headers["Authorization"]
	}
	return ""
}

// The values of header rules are only in the record, encrypted, and in the gateway.
func TestHeaderValuesAreHidden(t *testing.T) {
	b, made := withExits(t)
	sb := b.create(t, hutch.CreateRequest{ID: "box", Network: headersFor("API.example.com", hiddenValue)})
	state, err := b.Network(t.Context(), "box")
	list, lerr := b.Sandboxes(t.Context(), hutch.Filter{})
	if err := errors.Join(err, lerr); err != nil {
		t.Fatal(err)
	}
	for what, shown := range map[string]any{"the create": sb, "the network": state, "the list": list} {
		text, _ := json.Marshal(shown)
		if bytes.Contains(text, []byte("a-hidden-value")) || !bytes.Contains(text, []byte(`"headers":[{"host":"api.example.com","headers":{"Authorization":""}}]`)) {
			t.Errorf("%s is %s", what, text)
		}
	}
	all, err := b.store.All(t.Context())
	if err != nil || len(all) != 1 {
		t.Fatal(all, err)
	}
	text, _ := json.Marshal(all[0])
	if len(all[0].HiddenNetwork) == 0 || bytes.Contains(text, []byte("a-hidden-value")) {
		t.Errorf("the record is %s", text)
	}
	if got := made.gateway(t, b, "box", "api.example.com"); got != hiddenValue {
		t.Errorf("after a restart the gateway has %q", string(got))
	}
}

// The values in a record are of no use in another record, or with another key.
func TestHeaderValuesOfAnotherRecord(t *testing.T) {
	b, _ := withExits(t)
	b.create(t, hutch.CreateRequest{ID: "box", Network: headersFor("api.example.com", hiddenValue)})
	b.create(t, hutch.CreateRequest{ID: "other", Network: headersFor("evil.example.net", "another value")})
	all, err := b.store.All(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	b.end(t)
	forged := all[1]
	forged.HiddenNetwork = all[0].HiddenNetwork
	if err := b.store.Put(t.Context(), forged); err != nil {
		t.Fatal(err)
	}
	b.boot(t)
	if _, err := b.Network(t.Context(), forged.Sandbox.ID); !errors.Is(err, hutch.Denied) {
		t.Errorf("values of another record: %v", err)
	}
	if _, err := b.Network(t.Context(), all[0].Sandbox.ID); err != nil {
		t.Error(err)
	}
	b.end(t)
	key := make([]byte, store.KeySize)
	key[0] = 1
	b.opt.Sealer, _ = store.NewSealer(key)
	b.boot(t)
	if _, err := b.Network(t.Context(), all[0].Sandbox.ID); !errors.Is(err, hutch.Denied) || !strings.Contains(err.Error(), "--secret-key") {
		t.Errorf("with another key: %v", err)
	}
}

// A network that was read can be changed and sent back: its empty values keep the present ones.
func TestHeaderValuesAreKeptInAChange(t *testing.T) {
	b, made := withExits(t)
	b.create(t, hutch.CreateRequest{ID: "box", Network: headersFor("api.example.com", hiddenValue)})
	state, err := b.Network(t.Context(), "box")
	if err != nil {
		t.Fatal(err)
	}
	n := state.Network
	n.Allow = hutch.Rules("example.com")
	if _, err := b.SetNetwork(t.Context(), "box", n); err != nil {
		t.Fatal(err)
	}
	if got := made.gateway(t, b, "box", "api.example.com"); got != hiddenValue {
		t.Errorf("after a change of the rules, %q", string(got))
	}
	for _, to := range []hutch.Network{headersFor("*.example.com", ""), headersFor("evil.example.net", "")} {
		if _, err := b.SetNetwork(t.Context(), "box", to); !errors.Is(err, hutch.Invalid) {
			t.Errorf("the value goes to another host: %v", err)
		}
	}
	if _, err := b.SetNetwork(t.Context(), "box", headersFor("api.example.com", "another value")); err != nil {
		t.Fatal(err)
	}
	if got := made.gateway(t, b, "box", "api.example.com"); got != "another value" {
		t.Errorf("after another value, %q", string(got))
	}
	if _, err := b.SetNetwork(t.Context(), "box", hutch.Network{}); err != nil {
		t.Fatal(err)
	}
	if all, err := b.store.All(t.Context()); err != nil || len(all[0].HiddenNetwork) > 0 {
		t.Errorf("the record has %q, %v", all[0].HiddenNetwork, err)
	}
	if _, err := b.Create(t.Context(), hutch.CreateRequest{ID: "new", Network: headersFor("api.example.com", "")}); !errors.Is(err, hutch.Invalid) {
		t.Errorf("a new sandbox without a value: %v", err)
	}
}

// A fork has the header rules of its owner's sandbox. Snapshots, and copies for others, have no header rules.
func TestHeaderRulesOfCopies(t *testing.T) {
	b, made := withExits(t)
	ann := caller.WithOwner(t.Context(), caller.Owner{ID: "ann"})
	if _, err := b.Create(ann, hutch.CreateRequest{ID: "box", Network: headersFor("api.example.com", hiddenValue)}); err != nil {
		t.Fatal(err)
	}
	forks, err := b.Fork(ann, "box", hutch.ForkRequest{})
	if err != nil {
		t.Fatal(err)
	}
	fork := forks[0]
	if len(fork.Network.Headers) != 1 || fork.Network.Mode != hutch.NetworkOpen {
		t.Errorf("the fork reaches %+v", fork.Network)
	}
	if _, err := b.Network(ann, fork.ID); err != nil || made.of(fork.ID).Network.Headers[0].Headers["Authorization"] != hiddenValue {
		t.Errorf("the fork's gateway has %q, %v", made.of(fork.ID).Network.Headers, err)
	}
	if _, err := b.Snapshot(ann, "box", hutch.SnapshotRequest{Name: "kept", FilesOnly: true, Shared: true}); err != nil {
		t.Fatal(err)
	}
	noTrace(t, b.opt.Dir, "a-hidden-value", `"hiddenNetwork"`)
	for _, ctx := range []context.Context{ann, caller.WithOwner(t.Context(), caller.Owner{ID: "bob"})} {
		sb, err := b.Create(ctx, hutch.CreateRequest{Snapshot: "kept", FilesOnly: true})
		if err != nil || len(sb.Network.Headers) > 0 {
			t.Errorf("of a snapshot: %+v, %v", sb.Network, err)
		}
	}
	sb, err := b.Create(ann, hutch.CreateRequest{Snapshot: "kept", FilesOnly: true, Network: hutch.Network{Headers: headersFor("b.example.com", "other").Headers}})
	if err != nil || len(sb.Network.Headers) != 1 || sb.Network.Mode != hutch.NetworkOpen {
		t.Errorf("of a snapshot, with rules of its own: %+v, %v", sb.Network, err)
	}
}

// noTrace fails if a file below a folder contains one of the texts.
func noTrace(t *testing.T, dir string, texts ...string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		b, err := os.ReadFile(path)
		for _, text := range texts {
			if bytes.Contains(b, []byte(text)) {
				t.Errorf("%s has %s", path, text)
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// A sleeping sandbox keeps its rules, and a destroyed one leaves nothing.
func TestHeaderRulesOverSleep(t *testing.T) {
	b, made := withExits(t)
	b.create(t, hutch.CreateRequest{ID: "box", Network: headersFor("api.example.com", hiddenValue)})
	if _, err := b.Hibernate(t.Context(), "box", hutch.HibernateRequest{FilesOnly: true}); err != nil {
		t.Fatal(err)
	}
	if got := made.gateway(t, b, "box", "api.example.com"); got != hiddenValue {
		t.Errorf("while it sleeps, %q", string(got))
	}
	b.run(t, "box", "true")
	if state, err := b.Network(t.Context(), "box"); err != nil || !reflect.DeepEqual(state.Network.Headers, headersFor("api.example.com", "").Headers) {
		t.Errorf("awake: %+v, %v", state, err)
	}
	if _, err := b.Destroy(t.Context(), "box", true); err != nil {
		t.Fatal(err)
	}
	if all, err := b.store.All(t.Context()); err != nil || len(all) > 0 {
		t.Errorf("left is %+v, %v", all, err)
	}
}

// If no hidden values can be kept, rules are refused and nothing is made.
func TestHeaderRulesWithoutAKey(t *testing.T) {
	b := start(t, func(o *engine.Options) { o.Sealer = nil })
	b.create(t, hutch.CreateRequest{ID: "box"})
	_, create := b.Create(t.Context(), hutch.CreateRequest{ID: "new", Network: headersFor("api.example.com", hiddenValue)})
	_, set := b.SetNetwork(t.Context(), "box", headersFor("api.example.com", hiddenValue))
	for _, err := range []error{create, set} {
		if !errors.Is(err, hutch.Unsupported) || strings.Contains(err.Error(), "hidden") {
			t.Error(err)
		}
	}
	if _, err := b.Sandbox(t.Context(), "new"); !errors.Is(err, hutch.NotFound) {
		t.Error(err)
	}
}

// A sandbox that starts in an instance of the pool gets the key of that instance; its hidden values can still be
// decrypted.
func TestHeaderRulesOfThePool(t *testing.T) {
	made := &exits{}
	b := start(t, func(o *engine.Options) { o.Gateway, o.Pool = made.make, engine.Pool{Max: 1, Min: 1} })
	b.ready(t, 1)
	b.create(t, hutch.CreateRequest{ID: "box", Network: headersFor("api.example.com", hiddenValue)})
	if s := b.PoolState(); s.Hits != 1 {
		t.Fatalf("%+v", s)
	}
	b.run(t, "box", "true")
	if got := made.gateway(t, b, "box", "api.example.com"); got != hiddenValue {
		t.Errorf("the gateway has %q", string(got))
	}
}

// The password of a proxy is only in the record, encrypted, and in the gateway. A fork has it; a sandbox that starts
// from a snapshot has the proxy without the password, so that its connections fail instead of bypassing the proxy.
func TestProxyOfASandbox(t *testing.T) {
	b, made := withExits(t)
	ann := caller.WithOwner(t.Context(), caller.Owner{ID: "ann"})
	whole := hutch.NetworkProxy{Address: "proxy.example.com:1080", Username: "ann", Password: "a-hidden-value"}
	shown := hutch.NetworkProxy{Address: whole.Address, Username: "ann"}
	sb, err := b.Create(ann, hutch.CreateRequest{ID: "box", Network: hutch.Network{Mode: hutch.NetworkOpen, Proxy: &whole}})
	if err != nil || sb.Network.Proxy == nil || *sb.Network.Proxy != shown {
		t.Fatalf("made with %+v, %v", sb.Network.Proxy, err)
	}
	has := func(id string, want hutch.NetworkProxy) {
		t.Helper()
		state, err := b.Network(ann, id)
		if err != nil || state.Network.Proxy == nil || *state.Network.Proxy != shown {
			t.Fatalf("%s is shown with %+v, %v", id, state.Network.Proxy, err)
		}
		if p := made.of(id).Network.Proxy; p == nil || *p != want {
			t.Errorf("the gateway of %s has %+v", id, p)
		}
	}
	has("box", whole)
	b.end(t)
	made.forget()
	b.boot(t)
	has("box", whole)
	forks, err := b.Fork(ann, "box", hutch.ForkRequest{})
	if err != nil {
		t.Fatal(err)
	}
	has(forks[0].ID, whole)
	if _, err := b.Snapshot(ann, "box", hutch.SnapshotRequest{Name: "kept", FilesOnly: true, Shared: true}); err != nil {
		t.Fatal(err)
	}
	noTrace(t, b.opt.Dir, "a-hidden-value", `"hiddenNetwork"`)
	sb, err = b.Create(ann, hutch.CreateRequest{Snapshot: "kept", FilesOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	has(sb.ID, shown)
	if sb, err = b.Create(ann, hutch.CreateRequest{Snapshot: "kept", FilesOnly: true, Network: hutch.Network{Mode: hutch.NetworkOpen}}); err != nil || sb.Network.Proxy != nil {
		t.Errorf("of a snapshot, with a network of its own: %+v, %v", sb.Network.Proxy, err)
	}
	bob := caller.WithOwner(t.Context(), caller.Owner{ID: "bob"})
	if sb, err = b.Create(bob, hutch.CreateRequest{Snapshot: "kept", FilesOnly: true}); err != nil || sb.Network.Proxy != nil {
		t.Errorf("another owner's, of the snapshot: %+v, %v", sb.Network.Proxy, err)
	}
}
