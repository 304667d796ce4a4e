package fleet_test

import (
	"context"
	"sync"
	"testing"

	"filippo.io/age"
	"github.com/jackc/pgx/v5"

	"hutch"
	"hutch/internal/fleet"
	"hutch/internal/hutchtest/pgtest"
)

// founding is a database without a fleet, and the settings of its first server.
type founding struct {
	*fleet.Directory
	store, key string
}

func newFounding(t *testing.T) founding {
	t.Helper()
	identity, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	store := pgtest.New(t)
	return founding{openDirectory(t, store), store, identity.String()}
}

func (f founding) found(ctx context.Context, node string) (*fleet.Identity, error) {
	return fleet.Found(ctx, f.Directory, node, f.store, f.key)
}

func (f founding) begin(t *testing.T, id *fleet.Identity) error {
	t.Helper()
	n, err := fleet.Begin(t.Context(), fleet.Options{Directory: f.Directory, Identity: id, Address: "127.0.0.1:1", Here: newEngine(t)})
	if err == nil {
		t.Cleanup(func() { n.Close(context.Background()) })
	}
	return err
}

func (f founding) exec(t *testing.T, statements ...string) {
	t.Helper()
	c, err := pgx.Connect(t.Context(), f.store)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(context.Background())
	for _, s := range statements {
		if _, err := c.Exec(t.Context(), s); err != nil {
			t.Fatal(err)
		}
	}
}

// TestFoundedOnce: of servers that start at the same time, one founds the fleet, and the others get an error that says
// how to join.
func TestFoundedOnce(t *testing.T) {
	t.Parallel()
	f := newFounding(t)
	var wg sync.WaitGroup
	var mu sync.Mutex
	var founders []*fleet.Identity
	for _, node := range []string{"a", "b", "c", "d", "e", "f"} {
		wg.Go(func() {
			id, err := f.found(t.Context(), node)
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				founders = append(founders, id)
			} else if hutch.KindOf(err) != hutch.Conflict {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if len(founders) != 1 {
		t.Fatalf("%d servers founded a fleet", len(founders))
	}
	if err := f.begin(t, founders[0]); err != nil {
		t.Error(err)
	}
	if _, err := f.found(t.Context(), founders[0].Node); hutch.KindOf(err) != hutch.Conflict {
		t.Errorf("a fleet whose node has begun is founded again: %v", err)
	}
}

// TestFoundingInterrupted: wherever a founding is interrupted, the next start completes it.
func TestFoundingInterrupted(t *testing.T) {
	t.Parallel()
	f := newFounding(t)

	// The database fails in the middle: no part of the fleet exists.
	f.exec(t, `CREATE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'it fails'; END $$`,
		`CREATE TRIGGER fail BEFORE INSERT ON fleet_nodes EXECUTE FUNCTION fail()`)
	if _, err := f.found(t.Context(), "a"); err == nil {
		t.Fatal("it did not fail")
	}
	f.exec(t, `DROP TRIGGER fail ON fleet_nodes`)

	// The server ends before it has written its identity.
	lost, err := f.found(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.found(t.Context(), "b"); hutch.KindOf(err) != hutch.Conflict {
		t.Errorf("another server founds it meanwhile: %v", err)
	}
	if _, err := fleet.Found(t.Context(), f.Directory, "a", f.store, newFounding(t).key); hutch.KindOf(err) != hutch.Invalid {
		t.Errorf("with another key of the secrets: %v", err)
	}
	id, err := f.found(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	if id.Authority != lost.Authority {
		t.Error("the fleet has a second authority")
	}
	if err := f.begin(t, lost); hutch.KindOf(err) != hutch.Denied {
		t.Errorf("the identity that was lost is a node: %v", err)
	}
	if err := f.begin(t, id); err != nil {
		t.Error(err)
	}
}

// TestFoundingOfAnEmptyFleet: a fleet whose nodes were all removed, or that an earlier version left without a node, can be
// founded again.
func TestFoundingOfAnEmptyFleet(t *testing.T) {
	t.Parallel()
	f := newFounding(t)
	first, err := f.found(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	if err := f.begin(t, first); err != nil {
		t.Fatal(err)
	}
	if _, err := f.RemoveNode(t.Context(), "a", true); err != nil {
		t.Fatal(err)
	}
	id, err := f.found(t.Context(), "b")
	if err != nil {
		t.Fatal(err)
	}
	if err := f.begin(t, id); err != nil {
		t.Error(err)
	}
	if err := f.begin(t, first); hutch.KindOf(err) != hutch.Denied {
		t.Errorf("the node that was removed begins: %v", err)
	}
}
