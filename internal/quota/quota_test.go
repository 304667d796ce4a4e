package quota_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"hutch"
	"hutch/internal/hutchtest/pgtest"
	"hutch/internal/quota"
	"hutch/internal/store"
)

func options(collection *store.Collection) quota.Options {
	return quota.Options{Collection: collection, Window: time.Minute, What: "requests a minute", Limit: "requestsPerMinute"}
}

func open(t testing.TB, collection *store.Collection) *quota.Meter {
	t.Helper()
	m, err := quota.Open(t.Context(), options(collection))
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func disk(t testing.TB) *store.Collection {
	t.Helper()
	s, err := store.Open(t.Context(), filepath.Join(t.TempDir(), "hutch.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s.Collection("requests")
}

// take makes n calls and returns how many were allowed.
func take(t testing.TB, m *quota.Meter, key string, limit, n int) (allowed int) {
	t.Helper()
	for range n {
		switch _, err := m.Take(context.Background(), key, limit); {
		case err == nil:
			allowed++
		case !errors.Is(err, hutch.Exhausted):
			t.Fatal(err)
		}
	}
	return allowed
}

func TestLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := open(t, nil)
		began := time.Now()
		for i := range 3 {
			s, err := m.Take(t.Context(), "a", 3)
			if want := (quota.Standing{Limit: 3, Remaining: 2 - i, Reset: began.Add(time.Minute)}); err != nil || s.Limit != want.Limit || s.Remaining != want.Remaining || !s.Reset.Equal(want.Reset) {
				t.Errorf("call %d: %+v, %v; want %+v", i, s, err, want)
			}
			time.Sleep(10 * time.Second)
		}
		s, err := m.Take(t.Context(), "a", 3)
		e := hutch.AsError(err)
		if e.Kind != hutch.Exhausted || e.Data["retryAfter"] != 30 || e.Data["limit"] != "requestsPerMinute" || s.Remaining != 0 {
			t.Errorf("over the limit: %+v, %v %v", s, err, e.Data)
		}
		if n := take(t, m, "b", 3, 5); n != 3 {
			t.Errorf("another token had %d", n)
		}
		time.Sleep(30 * time.Second)
		if n := take(t, m, "a", 3, 5); n != 3 {
			t.Errorf("the next window allowed %d", n)
		}
	})
}

func TestUnlimitedIsNotCounted(t *testing.T) {
	m := open(t, nil)
	for range 3 {
		if s, err := m.Take(t.Context(), "a", hutch.Unlimited); err != nil || s.Limit != math.MaxInt32 || s.Remaining != math.MaxInt32 {
			t.Errorf("%+v, %v", s, err)
		}
	}
}

// Calls that are never refused are still counted.
func TestNote(t *testing.T) {
	m := open(t, nil)
	for range 5 {
		if err := m.Note(t.Context(), "a", 3); err != nil {
			t.Fatal(err)
		}
	}
	if n := take(t, m, "a", 3, 1); n != 0 {
		t.Error("it was not counted")
	}
	if err := m.Note(t.Context(), "b", 3); err != nil {
		t.Fatal(err)
	}
	if n := take(t, m, "b", 3, 5); n != 2 {
		t.Errorf("%d were left", n)
	}
}

// 64 concurrent callers, over several kill -9s, never get more than the limit together.
func TestNeverMoreThanTheLimit(t *testing.T) {
	const limit = 1000
	collection := disk(t)
	var allowed atomic.Int64
	for range 4 {
		m := open(t, collection) // without Close, as after kill -9
		var wg sync.WaitGroup
		for range 64 {
			wg.Go(func() {
				for range 4 {
					if _, err := m.Take(context.Background(), "a", limit); err == nil {
						allowed.Add(1)
					}
				}
			})
		}
		wg.Wait()
	}
	got := int(allowed.Load())
	if got > limit {
		t.Errorf("%d were allowed, of %d", got, limit)
	}
	// Each kill costs less than a block, which is a tenth of the limit.
	if got < limit-4*limit/10 {
		t.Errorf("only %d were allowed, of %d", got, limit)
	}
}

func TestCloseLosesNothing(t *testing.T) {
	collection := disk(t)
	total := 0
	for range 12 {
		m := open(t, collection)
		total += take(t, m, "a", 100, 7)
		if err := m.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if n := take(t, open(t, collection), "a", 100, 100); n != 100-total {
		t.Errorf("after %d, %d were left of 100", total, n)
	}
}

// After a clock was put back, a new window begins. A window that begins in the future does not refuse calls for ever.
func TestWindowFromTheFuture(t *testing.T) {
	collection := disk(t)
	if err := collection.Put(t.Context(), "a", []byte(`{"start":"2999-01-01T00:00:00Z","count":10}`)); err != nil {
		t.Fatal(err)
	}
	if n := take(t, open(t, collection), "a", 10, 1); n != 1 {
		t.Error("the token is shut out")
	}
}

func BenchmarkTake(b *testing.B) {
	m := open(b, disk(b))
	for b.Loop() {
		if _, err := m.Take(b.Context(), "a", 1<<30); err != nil {
			b.Fatal(err)
		}
	}
}

// While calls cannot be counted, no call is allowed.
func TestNothingIsAllowedUncounted(t *testing.T) {
	path := filepath.Join(t.TempDir(), "hutch.db")
	s, err := store.Open(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	m := open(t, s.Collection("requests"))
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.ExecContext(t.Context(), `create trigger broken before insert on shelves begin select raise(abort, 'the disk is full'); end`); err != nil {
		t.Fatal(err)
	}
	for i := range 30 {
		if _, err := m.Take(t.Context(), "a", 100); err == nil {
			t.Fatalf("call %d is allowed", i)
		}
	}
	if _, err := db.ExecContext(t.Context(), `drop trigger broken`); err != nil {
		t.Fatal(err)
	}
	if n := take(t, m, "a", 100, 110); n != 100 {
		t.Errorf("%d calls are allowed, and the limit is 100", n)
	}
}

// While the store does not answer, calls that wait for each other are refused together, and closing the meter does not
// wait for the store once for each token.
func TestStoreDoesNotAnswer(t *testing.T) {
	link := pgtest.NewLink(t, pgtest.New(t))
	s, err := store.Connect(t.Context(), store.Options{URL: link.URL, Node: "a", Key: make([]byte, store.KeySize), OperationTimeout: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	opt := options(s.Collection("requests"))
	opt.Window = time.Hour
	m, err := quota.Open(t.Context(), opt)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 5 {
		take(t, m, fmt.Sprint("other", i), 100, 1)
	}
	link.Hold()
	const calls = 30
	errs := make(chan error, calls)
	for range calls {
		go func() {
			_, err := m.Take(t.Context(), "a", 100)
			errs <- err
		}()
	}
	different := map[error]bool{}
	for range calls {
		err := <-errs
		if hutch.KindOf(err) != hutch.Unavailable {
			t.Errorf("it says %v", err)
		}
		different[err] = true
	}
	if len(different) > calls/2 {
		t.Errorf("the store was asked %d times for %d calls", len(different), calls)
	}
	if err := m.Close(t.Context()); err == nil || strings.Count(err.Error(), "does not answer") != 1 {
		t.Errorf("the end of the server says %v", err)
	}
}

// Callers of three servers together never get more than the limit, but get nearly all of it.
func TestServersShareTheLimit(t *testing.T) {
	const limit = 200
	url := pgtest.New(t)
	var allowed atomic.Int64
	var wg sync.WaitGroup
	for _, node := range []string{"a", "b", "c"} {
		s, err := store.Connect(t.Context(), store.Options{URL: url, Node: node, Key: make([]byte, store.KeySize)})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Close() })
		opt := options(s.Collection("requests"))
		opt.Window = time.Hour
		m, err := quota.Open(t.Context(), opt)
		if err != nil {
			t.Fatal(err)
		}
		for range 4 {
			wg.Go(func() { allowed.Add(int64(take(t, m, "tk", limit, limit))) })
		}
	}
	wg.Wait()
	if n := allowed.Load(); n != limit {
		t.Errorf("%d calls were allowed, and the limit is %d", n, limit)
	}
}
