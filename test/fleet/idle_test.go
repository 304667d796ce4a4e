package fleet

import (
	"os"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"hutch/internal/hutchtest"
	"hutch/internal/hutchtest/pgtest"
)

// TestIdleNodes: a node without work asks the database for little.
func TestIdleNodes(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		hutchtest.Skip(t, "the runtime native needs root here")
	}
	store := pgtest.New(t)
	nodes := newFleetOn(t, store, nil)
	db, err := pgx.Connect(t.Context(), store)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close(t.Context())
	count := func() (n int64) {
		if err := db.QueryRow(t.Context(), "SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = current_database()").Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	time.Sleep(10 * time.Second) // the queries of a start are over, and are counted
	before, began := count(), time.Now()
	time.Sleep(20 * time.Second)
	each := float64(count()-before) / time.Since(began).Seconds() / float64(len(nodes))
	t.Logf("%.2f transactions a second for each node", each)
	if each > 1 {
		t.Errorf("an idle node makes %.2f transactions a second, and may make 1", each)
	}
}
