package fleet

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"filippo.io/age"
	"github.com/jackc/pgx/v5"

	"hutch"
	"hutch/internal/hutchtest/pgtest"
	"hutch/internal/objects"
)

// claimant is a node of a fleet that uses a bucket, with the clock of a synctest bubble.
func claimant(t *testing.T, bucket objects.Store, node, database string, of ...string) *claimed {
	return &claimed{
		Store: bucket, key: "f/" + claimName, node: node, mine: of, times: usualClaimTimes, now: func() time.Duration { return time.Since(time.Time{}.AddDate(1998, 0, 0)) }, log: slog.New(slog.NewTextHandler(t.Output(), nil)),
		find: func(context.Context) string { return database },
	}
}

// runs makes a node claim the bucket, and keep the claim until end is called.
func (b *claimed) runs(t *testing.T) (end func()) {
	t.Helper()
	if err := b.begin(t.Context()); err != nil {
		t.Fatalf("%s: %v", b.node, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		b.run(ctx)
	}()
	end = func() { cancel(); <-ended }
	t.Cleanup(end)
	return end
}

// refuses checks that a node does nothing in the bucket.
func (b *claimed) refuses(t *testing.T, object, why string) {
	t.Helper()
	_, got := b.Get(t.Context(), object)
	for what, err := range map[string]error{"put": b.Put(t.Context(), object, strings.NewReader("changed")), "get": got, "delete": b.Delete(t.Context(), object)} {
		if hutch.KindOf(err) != hutch.Conflict || !strings.Contains(err.Error(), why) {
			t.Errorf("%s on %s: %v", what, b.node, err)
		}
	}
	body, err := b.Store.Get(t.Context(), object)
	if err != nil {
		t.Fatal(err)
	}
	defer body.Close()
	if text, err := io.ReadAll(body); err != nil || string(text) != "image" {
		t.Errorf("the object has %q, %v", text, err)
	}
}

// TestBucketOfARestoredFleet: a fleet that was restored from a backup cannot use the bucket while its original runs,
// and takes it over when the original has ended. Then no node of the original can use it: not one that was only cut
// off, nor one that starts again.
func TestBucketOfARestoredFleet(t *testing.T) {
	t.Parallel()
	synctest.Test(t, bucketOfARestoredFleet)
}

func bucketOfARestoredFleet(t *testing.T) {
	bucket := objects.Folder(t.TempDir())
	a, b := claimant(t, bucket, "a", "db", "A"), claimant(t, bucket, "b", "db", "A")
	endA, endB := a.runs(t), b.runs(t)
	if err := a.Put(t.Context(), "f/1", strings.NewReader("image")); err != nil {
		t.Fatal(err)
	}
	restored := claimant(t, bucket, "a", "db2", "A", "R")
	if err := restored.begin(t.Context()); hutch.KindOf(err) != hutch.Conflict || !strings.Contains(err.Error(), "runs") {
		t.Fatalf("restored beside its original: %v", err)
	}
	restored.refuses(t, "f/1", "runs")
	endA()
	if err := claimant(t, bucket, "a", "db2", "A", "R").begin(t.Context()); hutch.KindOf(err) != hutch.Conflict {
		t.Fatalf("one node of the original still runs: %v", err)
	}
	endB()
	again, other := claimant(t, bucket, "a", "db2", "A", "R"), claimant(t, bucket, "b", "db2", "A", "R")
	both := make(chan error, 1)
	go func() { both <- other.begin(t.Context()) }()
	began := time.Now()
	again.runs(t)
	if err := <-both; err != nil {
		t.Errorf("two nodes of the restored fleet: %v", err)
	}
	if took := time.Since(began); took < usualClaimTimes.quiet+usualClaimTimes.settle {
		t.Errorf("taken over after %v", took)
	}
	const belongs = "restored from a backup of this one"
	b.refuses(t, "f/1", belongs)
	if err := claimant(t, bucket, "c", "db", "A").begin(t.Context()); hutch.KindOf(err) != hutch.Conflict || !strings.Contains(err.Error(), belongs) || !strings.Contains(err.Error(), "f/claim") {
		t.Errorf("the original starts again: %v", err)
	}
	if err := again.Delete(t.Context(), "f/1"); err != nil {
		t.Errorf("the restored fleet: %v", err)
	}
}

// TestOthersInTheBucket: which fleets can share a bucket with a running fleet, and which take the bucket over when that
// fleet has ended.
func TestOthersInTheBucket(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, database string
		of             []string
		beside, after  bool // whether the other fleet can use the bucket
	}{
		{"another node", "db", []string{"A", "R"}, true, true},
		{"a database that does not say which it is", "", []string{"A", "R"}, true, true},
		{"a copy of the database", "copy", []string{"A", "R"}, false, true},
		{"another restore of the same backup", "db2", []string{"A", "S"}, false, true},
		{"a restore of it", "db2", []string{"A", "R", "S"}, false, true},
		{"its original", "db0", []string{"A"}, false, false},
		{"a fleet with the same key", "db2", []string{"B"}, false, false},
	} {
		test := func(t *testing.T) {
			bucket := objects.Folder(t.TempDir())
			end := claimant(t, bucket, "a", "db", "A", "R").runs(t)
			if err := claimant(t, bucket, "x", c.database, c.of...).begin(t.Context()); c.beside != (err == nil) || err != nil && hutch.KindOf(err) != hutch.Conflict {
				t.Errorf("beside it: %v", err)
			}
			end()
			if err := claimant(t, bucket, "x", c.database, c.of...).begin(t.Context()); c.after != (err == nil) || err != nil && hutch.KindOf(err) != hutch.Conflict {
				t.Errorf("after it: %v", err)
			}
		}
		t.Run(c.name, func(t *testing.T) { synctest.Test(t, test) })
	}
}

// TestBadClaims: an object that is not a valid claim is replaced, and a lost claim is written again.
func TestBadClaims(t *testing.T) {
	t.Parallel()
	synctest.Test(t, badClaims)
}

func badClaims(t *testing.T) {
	for _, text := range []string{"", "{", "{}", "[]", `{"lineage":[]}`, strings.Repeat("x", maxClaim+1)} {
		bucket := objects.Folder(t.TempDir())
		if err := bucket.Put(t.Context(), "f/claim", strings.NewReader(text)); err != nil {
			t.Fatal(err)
		}
		if err := claimant(t, bucket, "a", "db", "A").begin(t.Context()); err != nil {
			t.Errorf("%.10q: %v", text, err)
		}
	}
	bucket := objects.Folder(t.TempDir())
	a := claimant(t, bucket, "a", "db", "A")
	a.runs(t)
	if err := bucket.Delete(t.Context(), "f/claim"); err != nil {
		t.Fatal(err)
	}
	for limit := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		if body, err := bucket.Get(t.Context(), "f/claim"); err == nil {
			body.Close()
			break
		}
		if time.Now().After(limit) {
			t.Fatal("the claim is not written again")
		}
	}
	if err := a.Put(t.Context(), "f/1", strings.NewReader("image")); err != nil {
		t.Error(err)
	}
}

// slowBucket delays the writing of each claim until the test lets it continue.
type slowBucket struct {
	objects.Store
	writes, goOn chan struct{}
}

func (s slowBucket) Put(ctx context.Context, key string, r io.Reader) error {
	s.writes <- struct{}{}
	<-s.goOn
	return s.Store.Put(ctx, key, r)
}

// TestSlowClaim: a node of the original was only slow, and overwrites the claim of the restored fleet. The restored
// fleet then does not use the bucket.
func TestSlowClaim(t *testing.T) {
	t.Parallel()
	synctest.Test(t, slowClaim)
}

func slowClaim(t *testing.T) {
	bucket := objects.Folder(t.TempDir())
	if err := claimant(t, bucket, "a", "db", "A").begin(t.Context()); err != nil {
		t.Fatal(err)
	}
	slow := slowBucket{bucket, make(chan struct{}), make(chan struct{})}
	b := claimant(t, slow, "b", "db", "A")
	if err := b.look(t.Context()); err != nil { // it only notes the claim now, and writes its own at the second look
		t.Fatal(err)
	}
	looked := make(chan error, 1)
	go func() { looked <- b.look(t.Context()) }()
	<-slow.writes
	restored := claimant(t, bucket, "a", "db2", "A", "R")
	for limit := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		err := restored.look(t.Context())
		if !errors.Is(err, errClaiming) || time.Now().After(limit) {
			t.Fatal(err)
		}
		if text, err := restored.read(t.Context()); err != nil || !strings.Contains(text, `"R"`) {
			continue
		}
		if restored.may(t.Context()) == nil {
			t.Fatal("it uses the bucket with an unsettled claim")
		}
		break
	}
	slow.goOn <- struct{}{}
	if err := <-looked; err != nil {
		t.Fatal(err)
	}
	if err := restored.begin(t.Context()); hutch.KindOf(err) != hutch.Conflict {
		t.Errorf("restored beside a slow original: %v", err)
	}
}

// TestLineage: a restore from a backup changes the identity of the fleet, and nothing else does.
func TestLineage(t *testing.T) {
	t.Parallel()
	url := pgtest.New(t)
	d, err := OpenDirectory(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.Close)
	if _, err := d.lineage(t.Context()); hutch.KindOf(err) != hutch.NotFound {
		t.Errorf("without a fleet: %v", err)
	}
	key, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Found(t.Context(), d, "node-a", url, key.String()); err != nil {
		t.Fatal(err)
	}
	was, err := d.lineage(t.Context())
	if err != nil || len(was) != 1 || len(was[0]) != 64 {
		t.Fatalf("%v, %v", was, err)
	}
	for i := range 2 {
		if err := pgx.BeginFunc(t.Context(), d.db, func(tx pgx.Tx) error { return fence(t.Context(), tx) }); err != nil {
			t.Fatal(err)
		}
		if is, err := d.lineage(t.Context()); err != nil || len(is) != 2+i || is[0] != was[0] || (claim{Lineage: is}).compare(was, "") != successor {
			t.Errorf("%v, %v", is, err)
		}
	}
	other, err := OpenDirectory(t.Context(), pgtest.New(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(other.Close)
	if here, there := d.identifyDatabase(t.Context()), other.identifyDatabase(t.Context()); here == "" || here == there {
		t.Errorf("databases are %q and %q", here, there)
	}
}
