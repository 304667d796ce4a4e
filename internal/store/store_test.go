package store_test

import (
	"encoding/json"
	"errors"
	"path/filepath"
	"reflect"
	"testing"
	"time"

	"hutch"
	"hutch/internal/driver"
	"hutch/internal/store"
)

func record(id string, created time.Time) store.Record {
	return store.Record{
		Place:   id,
		Sandbox: hutch.Sandbox{ID: id, Status: hutch.Running, Runtime: "native", CreatedAt: created, Processes: []hutch.Process{}},
		Env:     map[string]string{"A": "b\nc"},
		Token:   "secret",
		Handle:  json.RawMessage(`{"pid":1}`),
	}
}

func TestRecordsSurviveReopening(t *testing.T) {
	ctx, path := t.Context(), filepath.Join(t.TempDir(), "hutch.db")
	now := time.Now().UTC().Truncate(time.Millisecond)
	s, err := store.Open(ctx, path)
	if err != nil {
		t.Fatal(err)
	}
	older, newer := record("older", now.Add(-time.Hour)), record("newer", now)
	for _, r := range []store.Record{newer, older, record("gone", now), newer} {
		if err := s.Put(ctx, r); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 { // the second time it is gone already
		if err := s.Retire(ctx, "gone", "tk", hutch.Usage{Executions: 2, CPUSeconds: 0.5}); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if s, err = store.Open(ctx, path); err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	got, err := s.All(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if names, err := s.Runtimes(ctx); err != nil || !reflect.DeepEqual(names, []string{older.Sandbox.Runtime}) {
		t.Errorf("the runtimes are %q, %v", names, err)
	}
	used, err := s.Retired(ctx)
	if want := map[string]hutch.Usage{"tk": {Executions: 2, CPUSeconds: 0.5}}; err != nil || !reflect.DeepEqual(used, want) {
		t.Errorf("used %+v, want %+v, %v", used, want, err)
	}
	if want := []store.Record{older, newer}; !reflect.DeepEqual(got, want) {
		t.Fatalf("got %+v, want %+v", got, want)
	}
}

func TestMemoryStoresAreApart(t *testing.T) {
	ctx := t.Context()
	a, err := store.Open(ctx, store.Memory)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	b, err := store.Open(ctx, store.Memory)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	if err := a.Put(ctx, record("x", time.Now())); err != nil {
		t.Fatal(err)
	}
	if all, err := b.All(ctx); err != nil || len(all) != 0 {
		t.Fatalf("the other store has %v, %v", all, err)
	}
}

func TestShelves(t *testing.T) {
	ctx, path := t.Context(), filepath.Join(t.TempDir(), "hutch.db")
	s, err := store.Open(ctx, path)
	if err != nil {
		t.Fatal(err)
	}
	a := s.Shelf("a")
	for key, doc := range map[string]string{"x": "old", "y": "gone"} {
		if err := a.Put(ctx, key, []byte(doc)); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(a.Put(ctx, "x", []byte("new")), a.Delete(ctx, "y"), a.Delete(ctx, "never"), s.Shelf("b").Put(ctx, "x", []byte("other")), s.Close()); err != nil {
		t.Fatal(err)
	}
	if s, err = store.Open(ctx, path); err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	got, err := s.Shelf("a").All(ctx)
	if want := map[string][]byte{"x": []byte("new")}; err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%q, %v", got, err)
	}
}

func TestUsed(t *testing.T) {
	t.Parallel()
	var u store.Used
	at := time.Unix(1000, 0)
	u.Begin(at)
	u.Note(at.Add(10*time.Second), driver.Usage{CPUSeconds: 3, Memory: 1 << 30, MemoryPeak: 2 << 30})
	u.Note(at.Add(20*time.Second), driver.Usage{CPUSeconds: 4, Memory: 1 << 30})
	u.End() // it sleeps, and wakes in another place
	u.Begin(at.Add(time.Hour))
	u.Note(at.Add(time.Hour+10*time.Second), driver.Usage{CPUSeconds: 1})
	want := hutch.Usage{CPUSeconds: 5, MemorySeconds: 15, MemoryPeak: 2048, WallTime: 30}
	if u.Usage != want {
		t.Errorf("%+v, want %+v", u.Usage, want)
	}
	if cost := (hutch.Prices{CPUSecond: 1, MemoryGBSecond: 0.1, WallSecond: 0.01}).Of(u.Usage); cost != 6.8 {
		t.Errorf("cost %v", cost)

	}
}
