package store_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"hutch"
	"hutch/internal/hutchtest/pgtest"
	"hutch/internal/store"
)

// refused opens a store that must be refused, and returns the error.
func refused(t *testing.T, opt store.Options) *hutch.Error {
	t.Helper()
	s, err := store.Connect(t.Context(), opt)
	if err == nil {
		s.Close()
		t.Fatal("the store opens")
	}
	return hutch.AsError(err)
}

func TestNodesHearOfEachOther(t *testing.T) {
	t.Parallel()
	ctx, url := t.Context(), pgtest.New(t)
	a, b := node(t, url, "a"), node(t, url, "b")
	atA, seenByA := mirror(t, a.Collection("x"))
	atB, seenByB := mirror(t, b.Collection("x"))
	if err := errors.Join(atA.Change(ctx, set("1", "a")), atB.Change(ctx, set("2", "b"))); err != nil {
		t.Fatal(err)
	}
	seenByA.becomes(t, "map[1:a 2:b]")
	seenByB.becomes(t, "map[1:a 2:b]")
	if err := atA.Change(ctx, set("2", "")); err != nil {
		t.Fatal(err)
	}
	seenByB.becomes(t, "map[1:a]")
	// A change takes the changes of other nodes into account, whether their notifications have arrived or not.
	var wg sync.WaitGroup
	var made atomic.Int32
	for _, m := range []struct {
		*store.Mirror
		*image
	}{{atA, seenByA}, {atB, seenByB}} {
		wg.Go(func() {
			for i := range 20 {
				taken := errors.New("taken")
				err := m.Change(ctx, func(d *store.Draft) error {
					if strings.Contains(m.String(), fmt.Sprintf("name%02d", i)) {
						return taken
					}
					d.Put(fmt.Sprintf("name%02d", i), []byte("x"))
					return nil
				})
				switch {
				case err == nil:
					made.Add(1)
				case err != taken:
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if n := made.Load(); n != 20 {
		t.Errorf("%d of 20 names were made, so some twice or not at all", n)
	}
}

func TestNodesHaveTheirOwnSandboxes(t *testing.T) {
	t.Parallel()
	ctx, url := t.Context(), pgtest.New(t)
	a, b := node(t, url, "a"), node(t, url, "b")
	if err := errors.Join(a.Put(ctx, record("x", time.Now())), b.Put(ctx, record("y", time.Now()))); err != nil {
		t.Fatal(err)
	}
	for want, s := range map[string]*store.Store{"x": a, "y": b} {
		if all, err := s.All(ctx); err != nil || len(all) != 1 || all[0].Key != want {
			t.Errorf("%v, %v, want %s alone", all, err, want)
		}
	}
	if err := b.Put(ctx, record("x", time.Now())); hutch.KindOf(err) != hutch.Conflict {
		t.Errorf("an id of another node is taken: %v", err)
	}
	if err := b.Retire(ctx, "x", "", hutch.Usage{Executions: 1}); err != nil {
		t.Fatal(err)
	}
	if all, err := a.All(ctx); err != nil || len(all) != 1 {
		t.Errorf("another node removed a record: %v, %v", all, err)
	}
	if used, err := b.Retired(ctx); err != nil || len(used) != 0 {
		t.Errorf("another node's sandbox was counted: %v, %v", used, err)
	}
}

func TestLimitsHoldOverNodes(t *testing.T) {
	t.Parallel()
	ctx, url := t.Context(), pgtest.New(t)
	nodes := []*store.Store{node(t, url, "a"), node(t, url, "b"), node(t, url, "c")}
	var wg sync.WaitGroup
	var made atomic.Int32
	for i := range 30 {
		wg.Go(func() {
			r := record(fmt.Sprintf("box-%d", i), time.Now())
			r.Sandbox.Owner, r.Most = "tk", 7
			switch err := nodes[i%3].Put(ctx, r); {
			case err == nil:
				made.Add(1)
			case hutch.KindOf(err) != hutch.Exhausted:
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if n := made.Load(); n != 7 {
		t.Errorf("there are %d sandboxes, and the limit is 7", n)
	}
}

// A dump of the database reveals no secret. Documents that others wrote into the database are refused.
func TestSealed(t *testing.T) {
	t.Parallel()
	ctx, url := t.Context(), pgtest.New(t)
	s := node(t, url, "a")
	r := record("x", time.Now())
	r.Env["PASSWORD"] = "very-secret"
	if err := errors.Join(s.Put(ctx, r), s.Collection("a").Put(ctx, "one", []byte("very-secret-1")), s.Collection("a").Put(ctx, "two", []byte("very-secret-2"))); err != nil {
		t.Fatal(err)
	}
	var docs [][]byte
	rows, err := pgtest.Connect(t, url).Query(ctx, `select record from hutch.sandboxes union all select doc from hutch.shelves`)
	if err == nil {
		docs, err = pgx.CollectRows(rows, pgx.RowTo[[]byte])
	}
	if err != nil || len(docs) != 3 {
		t.Fatalf("%d documents, %v", len(docs), err)
	}
	if bytes.Contains(bytes.Join(docs, nil), []byte("secret")) {
		t.Error("the database shows what is secret")
	}
	pgtest.Exec(t, url, `update hutch.shelves set doc = (select doc from hutch.shelves where key = 'two') where key = 'one'`)
	if all, err := s.Collection("a").All(ctx); hutch.KindOf(err) != hutch.Denied {
		t.Errorf("a document is read instead of another: %q, %v", all, err)
	}
	pgtest.Exec(t, url, `update hutch.sandboxes set record = record || '\x00'`)
	if all, err := s.All(ctx); hutch.KindOf(err) != hutch.Denied {
		t.Errorf("a changed record is read: %v, %v", all, err)
	}
}

func TestOthersAreRefused(t *testing.T) {
	t.Parallel()
	url := pgtest.New(t)
	s := node(t, url, "a")
	wrong := bytes.Repeat([]byte("w"), store.KeySize)
	if err := refused(t, store.Options{URL: url, Node: "b", Key: wrong}); err.Kind != hutch.Denied || !strings.Contains(err.Message, "--secret-key") {
		t.Errorf("another installation hears %v", err)
	}
	if err := refused(t, store.Options{URL: url, Node: "b", Key: key, Installation: "in-other"}); err.Kind != hutch.Conflict {
		t.Errorf("a folder of another installation hears %v", err)
	}
	if err := refused(t, store.Options{URL: pgtest.New(t), Node: "a", Key: key, Installation: s.Installation()}); err.Kind != hutch.Conflict {
		t.Errorf("an empty database instead of ours is %v", err)
	}
	if err := refused(t, store.Options{URL: url, Node: "a", Key: key}); err.Kind != hutch.Conflict || !strings.Contains(err.Message, "node a") {
		t.Errorf("a copy of a node hears %v", err)
	}
	s.Close()
	node(t, url, "a") // the name of the node is free
}

func TestVersions(t *testing.T) {
	t.Parallel()
	url := pgtest.New(t)
	node(t, url, "a")
	pgtest.Exec(t, url, `insert into hutch.migrations (number, needs) values (1000, 1)`) // a newer version, which only adds
	node(t, url, "b")
	pgtest.Exec(t, url, `insert into hutch.migrations (number, needs) values (1001, 1001)`)
	if err := refused(t, store.Options{URL: url, Node: "c", Key: key}); err.Kind != hutch.Unsupported || !strings.Contains(err.Message, "newer") {
		t.Errorf("a version that is too old hears %v", err)
	}
}

// Many nodes open an empty database at once: one of them makes the tables and the installation.
func TestManyBegin(t *testing.T) {
	t.Parallel()
	url := pgtest.New(t)
	ids := make([]string, 6)
	var wg sync.WaitGroup
	for i := range ids {
		wg.Go(func() {
			s, err := store.Connect(t.Context(), store.Options{URL: url, Node: fmt.Sprint(i), Key: key})
			if err != nil {
				t.Error(err)
				return
			}
			defer s.Close()
			ids[i] = s.Installation()
		})
	}
	wg.Wait()
	for _, id := range ids {
		if id == "" || id != ids[0] {
			t.Errorf("the installations are %q", ids)
		}
	}
}

func TestDatabaseGoesAndComes(t *testing.T) {
	t.Parallel()
	ctx, url := t.Context(), pgtest.New(t)
	link := pgtest.NewLink(t, url)
	far, near := connect(t, store.Options{URL: link.URL, Node: "far", Key: key, OperationTimeout: 2 * time.Second}), node(t, url, "near")
	atFar, seenByFar := mirror(t, far.Collection("x"))
	atNear, _ := mirror(t, near.Collection("x"))
	for round, cut := range []func(){link.Cut, link.Hold} {
		cut()
		short, cancel := context.WithTimeout(ctx, 20*time.Second)
		err := far.Put(short, record(fmt.Sprint("lost", round), time.Now()))
		if e := hutch.AsError(err); e == nil || e.Kind != hutch.Unavailable || !strings.Contains(e.Message, "try again") {
			t.Errorf("without a database, a record is %v", err)
		}
		if err := atFar.Change(short, set("lost", "1")); hutch.KindOf(err) != hutch.Unavailable {
			t.Errorf("without a database, a change is %v", err)
		}
		cancel()
		if err := atNear.Change(ctx, set("meanwhile", fmt.Sprint(round))); err != nil {
			t.Fatal(err)
		}
		link.Heal()
		seenByFar.becomes(t, fmt.Sprintf("map[meanwhile:%d]", round))
		for end := time.Now().Add(2 * time.Minute); far.Ready(ctx) != nil; time.Sleep(10 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("it does not come back: %v", far.Ready(ctx))
			}
		}
		if err := far.Put(ctx, record(fmt.Sprint("later", round), time.Now())); err != nil {
			t.Error(err)
		}
	}
	// The store has the acknowledged records, and no records that the engine gave up.
	for end := time.Now().Add(2 * time.Minute); ; time.Sleep(10 * time.Millisecond) {
		all, err := far.All(ctx)
		if err == nil && len(all) == 2 && all[0].Key == "later0" && all[1].Key == "later1" {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("there are %v, %v", all, err)
		}
	}
}

// Changes that were made while the database was unreachable are not missed, even if other work keeps the memory busy
// afterwards.
func TestNewsAfterAnOutage(t *testing.T) {
	t.Parallel()
	const patience = time.Second
	ctx, url := t.Context(), pgtest.New(t)
	link := pgtest.NewLink(t, url)
	far, near := connect(t, store.Options{URL: link.URL, Node: "far", Key: key, OperationTimeout: patience}), node(t, url, "near")
	atFar, seenByFar := mirror(t, far.Collection("x"))
	if err := near.Collection("x").Put(ctx, "before", []byte("1")); err != nil {
		t.Fatal(err)
	}
	seenByFar.becomes(t, "map[before:1]")
	deciding, decide, done := make(chan struct{}), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		atFar.Change(ctx, func(*store.Draft) error {
			close(deciding)
			<-decide
			return nil
		})
	}()
	<-deciding
	link.Cut()
	for end := time.Now().Add(2 * time.Minute); far.Ready(ctx) == nil; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("it does not see that the database is away")
		}
	}
	if err := near.Collection("x").Put(ctx, "meanwhile", []byte("1")); err != nil {
		t.Fatal(err)
	}
	link.Heal()
	// The store is ready when memory has caught up, which the change in progress prevents. This time is long enough to
	// give up once.
	for end := time.Now().Add(5 * patience); far.Ready(ctx) != nil && time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
	}
	close(decide)
	<-done
	seenByFar.becomes(t, "map[before:1 meanwhile:1]")
}

// A node that is cut off in the middle of a change does not block the other nodes for as long as it takes to find its
// connection dead.
func TestCutOffInAChange(t *testing.T) {
	t.Parallel()
	ctx, url := t.Context(), pgtest.New(t)
	link := pgtest.NewLink(t, url)
	far := connect(t, store.Options{URL: link.URL, Node: "far", Key: key, OperationTimeout: time.Second})
	near := connect(t, store.Options{URL: url, Node: "near", Key: key, OperationTimeout: time.Minute})
	err := far.Collection("x").Change(ctx, func(d *store.Draft) error {
		link.Hold()
		if err := near.Collection("x").Put(ctx, "one", []byte("near")); err != nil {
			t.Errorf("another node: %v", err)
		}
		link.Heal()
		d.Put("one", []byte("far"))
		return nil
	})
	if hutch.KindOf(err) != hutch.Unavailable {
		t.Errorf("the node that was cut off: %v", err)
	}
	if all, err := near.Collection("x").All(ctx); err != nil || string(all["one"]) != "near" {
		t.Errorf("there is %q, %v", all, err)
	}
}

// If the database refuses the logins of a running server, that is not reported as the callers' fault.
func TestShutOut(t *testing.T) {
	t.Parallel()
	ctx, url := t.Context(), pgtest.New(t)
	role := "outsider_" + url[strings.LastIndex(url, "_")+1:strings.Index(url, "?")]
	pgtest.Exec(t, url, "create role "+role+" login superuser")
	t.Cleanup(func() { // another database has the tables
		c, err := pgx.Connect(context.Background(), url)
		if err == nil {
			defer c.Close(context.Background())
			_, err = c.Exec(context.Background(), "drop owned by "+role+" cascade; drop role "+role)
		}
		if err != nil {
			t.Error(err)
		}
	})
	s := connect(t, store.Options{URL: strings.Replace(url, "hutch@", role+"@", 1), Node: "a", Key: key})
	pgtest.Exec(t, url, "alter role "+role+" nologin")
	pgtest.Exec(t, url, "select pg_terminate_backend(pid) from pg_stat_activity where usename = '"+role+"'")
	for range 20 { // connections that were open report that they were ended
		if err := s.Put(ctx, record("x", time.Now())); hutch.KindOf(err) != hutch.Unavailable {
			t.Fatalf("a record is %v", err)
		}
	}
}

func TestDatabaseIsLate(t *testing.T) {
	t.Parallel()
	link := pgtest.NewLink(t, pgtest.New(t))
	link.Cut()
	if err := refused(t, store.Options{URL: link.URL, Node: "a", Key: key, Wait: time.Millisecond}); err.Kind != hutch.Unavailable {
		t.Errorf("a database that is down is %v", err)
	}
	time.AfterFunc(time.Second, link.Heal)
	node(t, link.URL, "a")
	link.Slow(50 * time.Millisecond)
	if err := node(t, link.URL, "b").Put(t.Context(), record("x", time.Now())); err != nil {
		t.Error(err)
	}
}

// No error and no log contains the password, whatever is wrong with the URL.
func TestPasswords(t *testing.T) {
	t.Parallel()
	url := pgtest.New(t)
	const password = "pass-word-1"
	link := pgtest.NewLink(t, url)
	link.Cut()
	with := func(url string) string { return strings.Replace(url, "hutch@", "hutch:"+password+"@", 1) }
	for _, bad := range []string{
		with(link.URL), with(url) + "_gone", with(strings.Replace(url, "postgres://", "postgres:/", 1)), with(url) + "&sslmode=wrong", with(url) + "%zz",
		"postgres://hutch:" + password + "@[::1/x", "postgres://hutch:" + password + "/x@host:1/db", "postgres://hutch:" + password + "@host:port/db",
		"host=localhost password=" + password + " dbname=x", strings.Replace(with(url), "hutch:", "stranger:", 1), "postgres://hutch:" + password + "@127.0.0.1:1", url + "&password=" + password, "postgres://hutch:@" + password + "@127.0.0.1/db",
	} {
		var log bytes.Buffer
		s, err := store.Connect(t.Context(), store.Options{URL: bad, Node: "a", Key: key, Wait: time.Millisecond, Log: slog.New(slog.NewTextHandler(&log, nil))})
		if err == nil {
			s.Close()
			t.Errorf("%s opens", bad)
			continue
		}
		for e := err; e != nil; e = errors.Unwrap(e) {
			if strings.Contains(fmt.Sprintf("%v %+v", e, e), password) {
				t.Errorf("%s: the error says %v", bad, e)
			}
		}
		if cause := hutch.AsError(err).Cause; cause != nil && strings.Contains(fmt.Sprint(cause), password) || strings.Contains(log.String(), password) || strings.Contains(store.Where(bad), password) {
			t.Errorf("%s: the log says %s, the cause %v", bad, log.String(), cause)
		}
	}
}
