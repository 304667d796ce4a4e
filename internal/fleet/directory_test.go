package fleet

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	neturl "net/url"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"hutch"
	"hutch/internal/hutchtest/pgtest"
)

// register makes nodes with memory for the given number of sandboxes of 512 MiB each, and a lease.
func register(t testing.TB, nodes int, each int64) *Directory {
	t.Helper()
	d, err := OpenDirectory(t.Context(), pgtest.New(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.Close)
	for i := range nodes {
		id := fmt.Sprintf("n%d", i)
		if err := d.add(t.Context(), id, ""); err != nil {
			t.Fatal(err)
		}
		if _, err := d.begin(t.Context(), NodeInfo{Node: hutch.Node{ID: id, Room: hutch.NodeRoom{Memory: 512 * each, CPU: 1 << 20, Sandboxes: 1 << 20}}}); err != nil {
			t.Fatal(err, hutch.AsError(err).Cause)
		}
	}
	return d
}

// add adds a node that was never started.
func (d *Directory) add(ctx context.Context, id, print string) error {
	_, err := d.db.Exec(ctx, "INSERT INTO fleet_nodes (id, certificate) VALUES ($1, $2)", id, print)
	return err
}

func at(id string) placement {
	return placement{Name: Name{ID: id}, Memory: 512, CPU: 1}
}

// TestOfLabel: sandboxes of other owners with the same id do not hide one that only the bucket has.
func TestOfLabel(t *testing.T) {
	t.Parallel()
	d := register(t, 1, 2*mostOfLabel)
	for i := range mostOfLabel + 1 {
		p := at("my-box")
		p.Owner = fmt.Sprintf("owner-%d", i)
		if _, _, err := d.place(t.Context(), p); err != nil {
			t.Fatal(err)
		}
	}
	last := fmt.Sprintf("owner-%d", mostOfLabel)
	if _, err := d.db.Exec(t.Context(), "UPDATE fleet_holders SET here = false WHERE owner = $1", last); err != nil {
		t.Fatal(err)
	}
	list, err := d.ofLabel(t.Context(), hutch.Port{SandboxID: "my-box", Port: 8000, Token: "page"}.Label())
	if err != nil || len(list) != 1 || list[0].Owner != last {
		t.Errorf("found %+v, %v", list, err)
	}
}

// TestBurst: however many creates come at once, no node gets more than its capacity, and no create is refused while
// there is capacity.
func TestBurst(t *testing.T) {
	t.Parallel()
	d := register(t, 10, 98)
	var wg sync.WaitGroup
	var mu sync.Mutex
	made, refused := 0, 0
	for i := range 1000 {
		wg.Go(func() {
			_, _, err := d.place(t.Context(), at(fmt.Sprintf("sb-%d", i)))
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err == nil:
				made++
			case hutch.KindOf(err) == hutch.Exhausted:
				refused++
			default:
				t.Error(err, hutch.AsError(err).Cause)
			}
		})
	}
	wg.Wait()
	if made != 980 || refused != 20 {
		t.Errorf("%d made, %d refused, of 1,000 with room for 980", made, refused)
	}
	list, err := d.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range list {
		if n.Held != 98 || n.Promised.Memory != n.Room.Memory || n.Promised.Sandboxes != 98 {
			t.Errorf("%+v", n)
		}
	}
}

// TestOneID: creates that race for one id get the same node, and one of them makes the sandbox.
func TestOneID(t *testing.T) {
	t.Parallel()
	d := register(t, 5, 30)
	var wg sync.WaitGroup
	var mu sync.Mutex
	nodes, made := map[string]bool{}, 0
	for range 50 {
		wg.Go(func() {
			node, mine, err := d.place(t.Context(), at("one"))
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				t.Error(err, hutch.AsError(err).Cause)
			}
			nodes[node] = true
			if mine {
				made++
			}
		})
	}
	wg.Wait()
	if len(nodes) != 1 || made != 1 {
		t.Errorf("on %v, made %d times", nodes, made)
	}
}

// TestPlacedWhileFreed: a create that comes while an earlier sandbox of its id is being removed gets a placement of its
// own.
func TestPlacedWhileFreed(t *testing.T) {
	t.Parallel()
	d := register(t, 1, 30)
	if _, _, err := d.place(t.Context(), at("one")); err != nil {
		t.Fatal(err)
	}
	tx, err := d.db.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(context.Background())
	if _, err := tx.Exec(t.Context(), "DELETE FROM fleet_holders WHERE id = 'one'"); err != nil {
		t.Fatal(err)
	}
	placed := make(chan bool)
	go func() {
		_, made, err := d.place(t.Context(), at("one"))
		if err != nil {
			t.Error(err, hutch.AsError(err).Cause)
		}
		placed <- made
	}()
	select {
	case made := <-placed:
		t.Fatalf("it was placed before the other is removed; made: %t", made)
	case <-time.After(200 * time.Millisecond):
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if made := <-placed; !made {
		t.Error("it has the place of the sandbox that was removed")
	}
}

// TestLimitOfAnOwner: the limit applies to the sum over all nodes, whichever node is called, and another owner's
// sandboxes do not count.
func TestLimitOfAnOwner(t *testing.T) {
	t.Parallel()
	d := register(t, 3, 30)
	var wg sync.WaitGroup
	var mu sync.Mutex
	made := map[string]int{}
	for i := range 40 {
		owner := []string{"ann", "bob"}[i%2]
		wg.Go(func() {
			p := at(fmt.Sprintf("sb-%d", i))
			p.Owner, p.Most = owner, 7
			_, _, err := d.place(t.Context(), p)
			if err != nil && hutch.KindOf(err) != hutch.Exhausted {
				t.Error(err, hutch.AsError(err).Cause)
			}
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				made[owner]++
			}
		})
	}
	wg.Wait()
	if made["ann"] != 7 || made["bob"] != 7 {
		t.Errorf("%v", made)
	}
}

// TestRoomComesBack: a sandbox that is destroyed or asleep reserves nothing.
func TestRoomComesBack(t *testing.T) {
	t.Parallel()
	d := register(t, 1, 1)
	if _, _, err := d.place(t.Context(), at("a")); err != nil {
		t.Fatal(err, hutch.AsError(err).Cause)
	}
	if _, _, err := d.place(t.Context(), at("b")); hutch.KindOf(err) != hutch.Exhausted {
		t.Fatalf("over the room: %v", err)
	}
	if err := d.noteAwake(t.Context(), "n0", []entry{{Name: Name{ID: "a"}}}); err != nil {
		t.Fatal(err, hutch.AsError(err).Cause)
	}
	if _, _, err := d.place(t.Context(), at("b")); err != nil {
		t.Fatalf("while another sleeps: %v", err)
	}
	if err := d.free(t.Context(), "n0", Name{ID: "a"}, Name{ID: "b"}); err != nil {
		t.Fatal(err)
	}
	if _, mine, err := d.place(t.Context(), at("a")); err != nil || !mine {
		t.Fatalf("an id that is free: %v %v", mine, err)
	}
}

// TestStates: a node that is cordoned, or whose lease is over, gets no new sandboxes.
func TestStates(t *testing.T) {
	t.Parallel()
	d := register(t, 3, 30)
	if err := d.SetState(t.Context(), "n0", hutch.NodeCordoned); err != nil {
		t.Fatal(err)
	}
	if err := d.leave(t.Context(), NodeInfo{Node: hutch.Node{ID: "n1", Epoch: 1}}); err != nil {
		t.Fatal(err)
	}
	for i := range 10 {
		if node, _, err := d.place(t.Context(), at(fmt.Sprintf("sb-%d", i))); err != nil || node != "n2" {
			t.Errorf("%s, %v", node, err)
		}
	}
	if err := d.SetState(t.Context(), "n9", hutch.NodeCordoned); hutch.KindOf(err) != hutch.NotFound {
		t.Errorf("a node that is not there: %v", err)
	}
	if _, err := d.RemoveNode(t.Context(), "n2", false); hutch.KindOf(err) != hutch.Conflict {
		t.Errorf("a node that is alive and holds sandboxes is removed: %v", err)
	}
	if freed, err := d.RemoveNode(t.Context(), "n2", true); err != nil || freed.Freed != 10 {
		t.Errorf("by force: %d, %v", freed.Freed, err)
	}
	if _, _, err := d.renew(t.Context(), NodeInfo{Node: hutch.Node{ID: "n2", Epoch: 1}}, 0); err != errRemoved {
		t.Errorf("a node that was removed renews its lease: %v", err)
	}
	if _, err := d.begin(t.Context(), NodeInfo{Node: hutch.Node{ID: "n2"}}); err != errRemoved {
		t.Errorf("a node that was removed begins: %v", err)
	}
}

// TestFence: a node stops serving before the database considers it dead. If a copy of its machine starts as the same
// node, the original stops for good.
func TestFence(t *testing.T) {
	t.Parallel()
	store := pgtest.New(t)
	d, err := OpenDirectory(t.Context(), store)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.Close)
	if err := d.add(t.Context(), "a", ""); err != nil {
		t.Fatal(err)
	}
	link := pgtest.NewLink(t, store)
	far, err := OpenDirectory(t.Context(), link.URL)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(far.Close)
	n, err := beginNode(t.Context(), far, NodeInfo{Node: hutch.Node{ID: "a"}}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { n.run(ctx, func(context.Context) {}); close(done) }()
	t.Cleanup(func() { cancel(); <-done })
	link.Hold() // the network is cut without a sign
	for limit := time.Now().Add(2 * time.Minute); ; time.Sleep(20 * time.Millisecond) {
		list, err := d.List(t.Context()) // listed before serving is checked: a node that is dead here must not serve after that, however slow the machine is
		if err != nil {
			t.Fatal(err)
		}
		serving := n.serving() == nil
		if !list[0].Alive && serving {
			t.Fatal("the database took it for dead before it stopped")
		}
		if !serving {
			break
		}
		if time.Now().After(limit) {
			t.Fatal("it serves without a lease")
		}
	}
	link.Heal()
	for limit := time.Now().Add(2 * time.Minute); n.serving() != nil; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(limit) {
			t.Fatal("it does not serve again")
		}
	}
	if _, err := d.begin(t.Context(), NodeInfo{Node: hutch.Node{ID: "a"}}); err != nil { // as a copy of the machine would
		t.Fatal(err)
	}
	for limit := time.Now().Add(2 * time.Minute); n.serving() != errCopy; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(limit) {
			t.Fatalf("two processes are one node: %v", n.serving())
		}
	}
}

// TestRestoredDatabase: a node that runs while the database is restored from a backup stops serving. After a restart it
// serves again.
func TestRestoredDatabase(t *testing.T) {
	t.Parallel()
	store := pgtest.New(t)
	d, err := OpenDirectory(t.Context(), store)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.Close)
	if err := d.add(t.Context(), "a", ""); err != nil {
		t.Fatal(err)
	}
	n, err := beginNode(t.Context(), d, NodeInfo{Node: hutch.Node{ID: "a"}}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	run := func(name string, input []byte, args ...string) []byte {
		cmd := exec.Command(name, args...)
		var errs bytes.Buffer
		cmd.Stdin, cmd.Stderr = bytes.NewReader(input), &errs
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("%s: %v: %s", name, err, errs.Bytes())
		}
		return out
	}
	backup := run("pg_dump", nil, "--clean", "--if-exists", store)
	if err := n.renew(t.Context()); err != nil { // a renewal that the backup does not contain
		t.Fatal(err)
	}
	run("psql", backup, "--quiet", "--set=ON_ERROR_STOP=1", store)
	if err := n.renew(t.Context()); err != errOlder || n.serving() != errOlder {
		t.Errorf("it renews its lease with a database that is older: %v, %v", err, n.serving())
	}
	if list, err := d.List(t.Context()); err != nil || len(list) != 1 {
		t.Errorf("the backup has %+v, %v", list, err)
	}
	again, err := beginNode(t.Context(), d, NodeInfo{Node: hutch.Node{ID: "a"}}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	if err := again.renew(t.Context()); err != nil || again.serving() != nil {
		t.Errorf("after a start: %v, %v", err, again.serving())
	}
}

// TestNameOfARemovedNode: the process of a removed node, whose name another machine has now, is neither the old nor the
// new node.
func TestNameOfARemovedNode(t *testing.T) {
	t.Parallel()
	d := register(t, 1, 1)
	if _, err := d.RemoveNode(t.Context(), "n0", true); err != nil {
		t.Fatal(err)
	}
	if err := d.add(t.Context(), "n0", "another certificate"); err != nil {
		t.Fatal(err)
	}
	fresh := NodeInfo{Node: hutch.Node{ID: "n0"}, print: "another certificate"}
	var err error
	if fresh.Epoch, err = d.begin(t.Context(), fresh); err != nil || fresh.Epoch != 1 {
		t.Fatal(fresh.Epoch, err)
	}
	old := NodeInfo{Node: hutch.Node{ID: "n0", Epoch: 1}}
	if _, _, err := d.renew(t.Context(), old, 0); err != errRemoved {
		t.Errorf("it renews the lease of the other: %v", err)
	}
	if _, err := d.begin(t.Context(), old); err != errRemoved {
		t.Errorf("it begins as the other: %v", err)
	}
	d.leave(t.Context(), old)
	if list, _, err := d.renew(t.Context(), fresh, 0); err != nil || !list[0].Alive {
		t.Errorf("it ended the lease of the other: %+v %v", list, err)
	}
}

// TestLeaseOfABusyNode: a lease is renewed even while calls use all other connections and the node writes a long report
// of its sandboxes to the directory.
func TestLeaseOfABusyNode(t *testing.T) {
	t.Parallel()
	d := register(t, 1, 1)
	for range d.db.Config().MaxConns {
		c, err := d.db.Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(c.Release)
	}
	n, err := beginNode(t.Context(), d, NodeInfo{Node: hutch.Node{ID: "n0"}}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	until := func() time.Duration {
		n.mu.RLock()
		defer n.mu.RUnlock()
		return n.until
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	telling := make(chan struct{})
	go func() {
		defer close(done)
		n.run(ctx, func(ctx context.Context) {
			close(telling) // closing it twice would panic, so this checks that there is one report at a time
			<-ctx.Done()
		})
	}()
	t.Cleanup(func() { cancel(); <-done })
	<-telling
	before := until()
	for limit := time.Now().Add(2 * time.Minute); until() == before; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(limit) {
			t.Fatal("the lease was not renewed")
		}
	}
}

// TestAbandonedTransaction: a node that hangs in the middle of a transaction does not make another node's lease end.
func TestAbandonedTransaction(t *testing.T) {
	t.Parallel()
	d := register(t, 1, 1)
	tx, err := d.db.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(t.Context())
	if _, err := tx.Exec(t.Context(), "SELECT 1 FROM fleet_nodes WHERE id = 'n0' FOR UPDATE"); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	if _, _, err := d.renew(ctx, NodeInfo{Node: hutch.Node{ID: "n0", Epoch: 1}}, 0); err != nil {
		t.Error(err, hutch.AsError(err).Cause)
	}
}

// BenchmarkPlace places sandboxes that are created at once, on 100 nodes.
func BenchmarkPlace(b *testing.B) {
	d := register(b, 100, 1<<20)
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	go func() { // so that no lease runs out
		for i := 0; ctx.Err() == nil; i = (i + 1) % 100 {
			d.renew(ctx, NodeInfo{Node: hutch.Node{ID: fmt.Sprintf("n%d", i), Epoch: 1}}, 0)
			time.Sleep(renewEvery / 100)
		}
	}()
	var count atomic.Int64
	b.SetParallelism(16)
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if _, _, err := d.place(b.Context(), at(fmt.Sprintf("sb-%d", count.Add(1)))); err != nil {
				b.Error(err, hutch.AsError(err).Cause)
			}
		}
	})
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "placements/s")
}

// TestLeasesOfARestoredDatabase: the leases of a restored database have ended, and a process that ran as a node before
// the restore is not that node any more.
func TestLeasesOfARestoredDatabase(t *testing.T) {
	t.Parallel()
	d := register(t, 2, 1)
	n, err := beginNode(t.Context(), d, NodeInfo{Node: hutch.Node{ID: "n0"}}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	if err := d.add(t.Context(), "new", ""); err != nil {
		t.Fatal(err)
	}
	if err := pgx.BeginFunc(t.Context(), d.db, func(tx pgx.Tx) error { return fence(t.Context(), tx) }); err != nil {
		t.Fatal(err)
	}
	list, err := d.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, info := range list {
		if info.Alive || (info.SeenUntil == nil) != (info.ID == "new") {
			t.Errorf("%+v", info)
		}
	}
	if err := n.renew(t.Context()); err != errCopy || n.serving() != errCopy {
		t.Errorf("a process from before the restore: %v, %v", err, n.serving())
	}
	again, err := beginNode(t.Context(), d, NodeInfo{Node: hutch.Node{ID: "n0"}}, slog.New(slog.DiscardHandler))
	if err != nil || again.serving() != nil {
		t.Errorf("after a start: %v", err)
	}
}

// TestPlantedSchema: tables that another user of the database has planted in the search path are not used. New fleets
// keep their tables in a schema of their own. Tables of older versions are found where they are.
func TestPlantedSchema(t *testing.T) {
	t.Parallel()
	owner := pgtest.New(t)
	admin, err := pgxpool.New(t.Context(), owner)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(admin.Close)
	run := func(statements string) {
		t.Helper()
		if _, err := admin.Exec(t.Context(), statements); err != nil {
			t.Fatal(err)
		}
	}
	user := "fleet_" + strings.ToLower(rand.Text()[:8])
	other := "other_" + user
	run("CREATE ROLE " + user + " LOGIN; CREATE ROLE " + other + "; GRANT " + other + " TO current_user; DO $$ BEGIN EXECUTE 'GRANT CREATE ON DATABASE ' || current_database() || ' TO " + user + "'; END $$")
	t.Cleanup(func() {
		for _, role := range []string{user, other} {
			admin.Exec(context.Background(), "DROP OWNED BY "+role+"; DROP ROLE "+role)
		}
	})
	// The tables that another user has planted come first in the search path, and the fleet's user has all rights to
	// it.
	run("CREATE SCHEMA " + user + " AUTHORIZATION " + other + "; GRANT ALL ON SCHEMA " + user + " TO " + user)
	run("CREATE TABLE " + user + ".fleet_nodes (id text); ALTER TABLE " + user + ".fleet_nodes OWNER TO " + other + "; GRANT ALL ON " + user + ".fleet_nodes TO " + user)
	url, err := neturl.Parse(owner)
	if err != nil {
		t.Fatal(err)
	}
	url.User = neturl.User(user)
	schemaOf := func() (schema string) {
		t.Helper()
		d, err := OpenDirectory(t.Context(), url.String())
		if err != nil {
			t.Fatal(err, hutch.AsError(err).Cause)
		}
		defer d.Close()
		for _, pool := range []*pgxpool.Pool{d.db, d.lease} {
			var is string
			if err := pool.QueryRow(t.Context(), "SELECT relnamespace::regnamespace::text FROM pg_class WHERE oid = 'fleet_nodes'::regclass").Scan(&is); err != nil || schema != "" && is != schema {
				t.Fatal(schema, is, err)
			}
			schema = is
		}
		return schema
	}
	for range 2 {
		if got := schemaOf(); got != "hutch" {
			t.Errorf("the tables of a new fleet are in %q", got)
		}
	}
	run("ALTER SCHEMA hutch RENAME TO elsewhere")
	if got := schemaOf(); got != "elsewhere" {
		t.Errorf("the tables of an older fleet are in elsewhere, and %q is used", got)
	}
}
