package fleet_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	"filippo.io/age"

	"hutch"
	"hutch/internal/fleet"
	"hutch/internal/hutchtest/pgtest"
)

func (b *bed) enter(t *testing.T, name string, replace bool) (*fleet.Identity, error) {
	t.Helper()
	return fleet.Enter(t.Context(), b.dir, fleet.Entry{Node: name, Store: b.store, SecretsKey: b.key, Replace: replace})
}

// TestEnter: a machine that has the database and the key of the secrets becomes a node like any other, without a token.
func TestEnter(t *testing.T) {
	t.Parallel()
	b := newBed(t, 1)
	id, err := b.enter(t, "pod-1", false)
	if err != nil {
		t.Fatal(err)
	}
	entered := b.begin(t, id, func(*fleet.Options) {})
	eventually(t, "the nodes know each other", func() bool { return len(b.nodes[0].Nodes()) == 2 && len(entered.Nodes()) == 2 })
	if status, answer, err := ask(t, b.nodes[0], id, server); err != nil || status != 200 {
		t.Errorf("the node is refused: %d %s %v", status, answer, err)
	}
	if _, err := b.enter(t, "pod-1", false); hutch.KindOf(err) != hutch.Conflict || !strings.Contains(fmt.Sprint(err), "--fleet-replace") {
		t.Errorf("a second node of the same name: %v", err)
	}
}

// TestEnterStrangers: a machine cannot become a node with the database but without the key, or with an invalid name.
func TestEnterStrangers(t *testing.T) {
	t.Parallel()
	b := newBed(t, 1)
	other, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{other.String(), "", "AGE-SECRET-KEY-1"} {
		if _, err := fleet.Enter(t.Context(), b.dir, fleet.Entry{Node: "pod-1", Store: b.store, SecretsKey: key, Replace: true}); hutch.KindOf(err) != hutch.Invalid {
			t.Errorf("with the key %.5q: %v", key, err)
		}
	}
	for _, name := range []string{"", "../x", "Ä", strings.Repeat("x", 200), "'; DROP TABLE fleet_nodes; --"} {
		if _, err := b.enter(t, name, true); hutch.KindOf(err) != hutch.Invalid {
			t.Errorf("as %.20q: %v", name, err)
		}
	}
	list, err := b.dir.List(t.Context())
	if err != nil || len(list) != 1 {
		t.Errorf("the nodes are %v, %v", list, err)
	}
	empty := openDirectory(t, pgtest.New(t))
	if _, err := fleet.Enter(t.Context(), empty, fleet.Entry{Node: "pod-1", SecretsKey: b.key}); hutch.KindOf(err) != hutch.NotFound {
		t.Errorf("without a fleet: %v", err)
	}
}

// TestEnterUnfinished: a machine that ended before it had written its identity can enter again.
func TestEnterUnfinished(t *testing.T) {
	t.Parallel()
	b := newBed(t, 1)
	for range 2 {
		if _, err := b.enter(t, "pod-1", false); err != nil {
			t.Fatal(err)
		}
	}
}

// TestEnterReplace: a node replaces a node of its name that is away. The certificate of the old node is then invalid,
// and its sandboxes are lost. A node that is alive is not replaced.
func TestEnterReplace(t *testing.T) {
	t.Parallel()
	b := newBed(t, 1)
	old, err := b.enter(t, "pod-1", false)
	if err != nil {
		t.Fatal(err)
	}
	first := b.begin(t, old, func(*fleet.Options) {})
	if _, err := first.Create(t.Context(), hutch.CreateRequest{ID: "lost"}); err != nil {
		t.Fatal(err)
	}
	if err := b.dir.SetState(t.Context(), "node-a", hutch.NodeCordoned); err != nil { // so that pod-1 gets the next sandbox
		t.Fatal(err)
	}
	if _, err := first.Create(t.Context(), hutch.CreateRequest{ID: "lost-too"}); err != nil {
		t.Fatal(err)
	}
	held, err := b.dir.Held(t.Context(), "pod-1")
	if err != nil || len(held) == 0 {
		t.Fatalf("pod-1 holds %v, %v", held, err)
	}
	if _, err := b.enter(t, "pod-1", true); hutch.KindOf(err) != hutch.Conflict {
		t.Fatalf("a node that is alive was replaced: %v", err)
	}
	if err := first.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	if err := b.dir.SetState(t.Context(), "pod-1", hutch.NodeCordoned); err != nil {
		t.Fatal(err)
	}
	fresh, err := b.enter(t, "pod-1", true)
	if err != nil {
		t.Fatal(err)
	}
	if held, err := b.dir.Held(t.Context(), "pod-1"); err != nil || len(held) != 0 {
		t.Errorf("the new node holds %v, %v", held, err)
	}
	b.begin(t, fresh, func(*fleet.Options) {})
	eventually(t, "the old certificate is refused, and the new one is not", func() bool {
		refused, _, err1 := ask(t, b.nodes[0], old, server)
		taken, _, err2 := ask(t, b.nodes[0], fresh, server)
		return err1 == nil && err2 == nil && refused == 403 && taken == 200
	})
	list, err := b.dir.List(t.Context())
	if err != nil || len(list) != 2 || list[1].State != hutch.NodeCordoned || list[1].Promised.Sandboxes != 0 {
		t.Errorf("the nodes are %+v, %v", list, err)
	}
}

// TestEnterTogether: when several machines enter at once with the same name, only one of their certificates is valid at
// a time.
func TestEnterTogether(t *testing.T) {
	t.Parallel()
	b := newBed(t, 1)
	var all sync.WaitGroup
	for i := range 20 {
		all.Go(func() {
			if _, err := fleet.Enter(t.Context(), b.dir, fleet.Entry{Node: fmt.Sprintf("pod-%d", i%10), Store: b.store, SecretsKey: b.key}); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if list, err := b.dir.List(t.Context()); err != nil || len(list) != 11 {
		t.Errorf("%d nodes, %v", len(list), err)
	}
}
