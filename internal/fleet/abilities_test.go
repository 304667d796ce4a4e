package fleet_test

import (
	"context"
	"strings"
	"testing"

	"hutch"
	"hutch/internal/caller"
	"hutch/internal/fleet"
)

// older makes a node look to all others like a node of an older version, without abilities; again undoes that.
func (b *bed) older(t *testing.T, node string) (again func()) {
	t.Helper()
	set := func(older bool) {
		t.Helper()
		if err := b.dir.SetOlder(t.Context(), node, older); err != nil {
			t.Fatal(err)
		}
		for _, n := range b.nodes {
			eventually(t, "all nodes know the version of "+node, func() bool { return n.SeesOlder(node) == older })
		}
	}
	set(true)
	return func() { t.Helper(); set(false) }
}

// refused checks that a call was refused because a node has an older version, and that the error names the ignored
// fields and the next step.
func refused(t *testing.T, what string, err error, words ...string) {
	t.Helper()
	if hutch.KindOf(err) != hutch.Unavailable {
		t.Errorf("%s: %v", what, err)
		return
	}
	for _, want := range append(words, "older version of Hutch", "an administrator upgrades Hutch on the node node-b") {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%s: the error does not say %q: %v", what, want, err)
		}
	}
}

// TestOlderNode: nodes of two versions work together, and a request with fields that the older one would ignore is
// refused in plain words.
func TestOlderNode(t *testing.T) {
	t.Parallel()
	b := newBed(t, 2)
	a, old := b.nodes[0], b.nodes[1]
	limited := caller.With(t.Context(), caller.Caller{Owner: &caller.Owner{Registries: []string{"ghcr.io"}}})
	again := b.older(t, "node-b")
	if _, err := b.dir.CordonNode(t.Context(), "node-a"); err != nil {
		t.Fatal(err)
	}
	create := func(ctx context.Context, req hutch.CreateRequest) error {
		t.Helper()
		_, err := a.Create(ctx, req)
		return err
	}
	if err := create(t.Context(), hutch.CreateRequest{ID: "plain"}); err != nil {
		t.Errorf("what both versions know: %v", err)
	}
	if _, err := old.engine.Sandbox(t.Context(), "plain"); err != nil {
		t.Errorf("it is not on the older node: %v", err)
	}
	tolerant := hutch.CreateRequest{ID: "tolerant", Tolerations: map[string]string{"gpu": "yes"}}
	refused(t, "tolerations", create(t.Context(), tolerant), "would ignore nodeSelector and tolerations")
	refused(t, "tolerations for a sandbox there", create(t.Context(), hutch.CreateRequest{ID: "plain", Tolerations: tolerant.Tolerations}), "would ignore nodeSelector and tolerations")
	refused(t, "a token's registries", create(limited, hutch.CreateRequest{ID: "limited"}), "would ignore the registries of a token")
	if _, err := a.Exec(limited, "plain", hutch.ExecRequest{Command: "true"}, nil); err != nil {
		t.Errorf("a command that needs no registry: %v", err)
	}
	if list, err := a.Sandboxes(t.Context(), hutch.Filter{}); err != nil || len(list) != 1 {
		t.Errorf("the list: %+v %v", list, err)
	}

	again() // it is upgraded
	for _, err := range []error{create(t.Context(), tolerant), create(limited, hutch.CreateRequest{ID: "limited"})} {
		if err != nil {
			t.Errorf("after the upgrade: %v", err)
		}
	}
}

// TestOlderFront: a node with taints refuses a sandbox that an older node has placed there without regard to them.
func TestOlderFront(t *testing.T) {
	t.Parallel()
	b := newBed(t, 2, func(i int, o *fleet.Options) {
		if i == 0 {
			o.Taints = map[string]string{"gpu": "yes"}
		}
	})
	b.older(t, "node-b")
	if err := b.dir.HideTaints(t.Context(), "node-a"); err != nil { // so that this version ignores them too
		t.Fatal(err)
	}
	if _, err := b.dir.CordonNode(t.Context(), "node-b"); err != nil {
		t.Fatal(err)
	}
	_, err := b.nodes[1].Create(t.Context(), hutch.CreateRequest{ID: "sb"})
	refused(t, "a sandbox for a node with taints", err, "ignores taints", "call another node")
	if held, err := b.dir.Held(t.Context(), "node-a"); err != nil || len(held) != 0 {
		t.Errorf("its reservation: %+v %v", held, err)
	}
	if _, err := b.nodes[0].Create(t.Context(), hutch.CreateRequest{ID: "sb"}); err != nil {
		t.Errorf("through the node itself: %v", err)
	}
}
