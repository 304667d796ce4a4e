package store_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"hutch"
	"hutch/internal/hutchtest/pgtest"
	"hutch/internal/store"
)

func record(id string, created time.Time) store.Record {
	return store.Record{
		Key:     id,
		Sandbox: hutch.Sandbox{ID: id, Status: hutch.Running, Runtime: "native", CreatedAt: created, Processes: []hutch.Process{}},
		Env:     map[string]string{"A": "b\nc"},
		Token:   "secret",
		Handle:  json.RawMessage(`{"pid":1}`),
	}
}

// kinds are the databases that are tested. Each function makes a database, and returns a function that opens this
// database. That function can be called several times.
var kinds = map[string]func(t *testing.T) func() *store.Store{
	"sqlite": func(t *testing.T) func() *store.Store {
		path := filepath.Join(t.TempDir(), "hutch.db")
		return func() *store.Store {
			t.Helper()
			s, err := store.Open(t.Context(), path)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { s.Close() })
			return s
		}
	},
	"postgres": func(t *testing.T) func() *store.Store {
		url := pgtest.New(t)
		return func() *store.Store { t.Helper(); return node(t, url, "a") }
	},
}

var key = []byte(strings.Repeat("k", store.KeySize))

// node opens the store of a node.
func node(t *testing.T, url, name string) *store.Store {
	t.Helper()
	return connect(t, store.Options{URL: url, Node: name, Key: key})
}

func connect(t *testing.T, opt store.Options) *store.Store {
	t.Helper()
	s, err := store.Connect(t.Context(), opt)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// onEach runs a test on each kind of database.
func onEach(t *testing.T, do func(t *testing.T, open func() *store.Store)) {
	for name, kind := range kinds {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			do(t, kind(t))
		})
	}
}

func TestRecordsSurviveReopening(t *testing.T) {
	onEach(t, func(t *testing.T, open func() *store.Store) {
		ctx := t.Context()
		now := time.Now().UTC().Truncate(time.Millisecond)
		s := open()
		older, newer := record("older", now.Add(-time.Hour)), record("newer", now)
		for _, r := range []store.Record{newer, older, record("gone", now), newer} {
			if err := s.Put(ctx, r); err != nil {
				t.Fatal(err)
			}
		}
		newer.Sandbox.Status, newer.Token = hutch.Sandbox{}.Status, "another"
		if err := s.Keep(ctx, newer); err != nil {
			t.Fatal(err)
		}
		for range 2 { // the second time, the document is already gone
			if err := s.Retire(ctx, "gone", "tk", hutch.Usage{Executions: 2, CPUSeconds: 0.5}); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		s = open()
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
	})
}

func TestCollections(t *testing.T) {
	onEach(t, func(t *testing.T, open func() *store.Store) {
		ctx, s := t.Context(), open()
		a := s.Collection("a")
		for key, doc := range map[string]string{"x": "old", "y": "gone"} {
			if err := a.Put(ctx, key, []byte(doc)); err != nil {
				t.Fatal(err)
			}
		}
		if err := errors.Join(a.Put(ctx, "x", []byte("new")), a.Delete(ctx, "y"), a.Delete(ctx, "never"), s.Collection("b").Put(ctx, "x", []byte("other")), s.Close()); err != nil {
			t.Fatal(err)
		}
		s = open()
		got, err := s.Collection("a").All(ctx)
		if want := map[string][]byte{"x": []byte("new")}; err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%q, %v", got, err)
		}
	})
}

// A change is applied completely or not at all, and reads the current documents.
func TestChange(t *testing.T) {
	onEach(t, func(t *testing.T, open func() *store.Store) {
		ctx, collection := t.Context(), open().Collection("a")
		no := errors.New("no")
		err := collection.Change(ctx, func(d *store.Draft) error {
			d.Put("x", []byte("1"))
			return no
		})
		if err != no {
			t.Errorf("a refusal is %v", err)
		}
		if err := collection.Put(ctx, "y", []byte("1")); err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				for range 5 {
					if err := collection.Change(ctx, func(d *store.Draft) error {
						doc, err := d.Get("y")
						n, _ := strconv.Atoi(string(doc))
						d.Put("y", []byte(strconv.Itoa(n+1)))
						return err
					}); err != nil {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
		all, err := collection.All(ctx)
		if err != nil || len(all) != 1 || string(all["y"]) != "41" {
			t.Errorf("%q, %v", all, err)
		}
	})
}

func TestCount(t *testing.T) {
	onEach(t, func(t *testing.T, open func() *store.Store) {
		ctx, collection := t.Context(), open().Collection("count")
		for want := range 3 {
			err := collection.Count(ctx, "x", func(doc []byte, now time.Time) ([]byte, error) {
				if d := time.Since(now).Abs(); d > time.Hour {
					t.Errorf("the clock is %v away", d)
				}
				if len(doc) != want || (doc == nil) != (want == 0) {
					t.Errorf("the %d. time there is %q", want, doc)
				}
				return append(doc, 'x'), nil
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		if err := collection.Count(ctx, "x", func([]byte, time.Time) ([]byte, error) { return nil, nil }); err != nil {
			t.Fatal(err)
		}
		if all, err := collection.All(ctx); err != nil || len(all) != 0 {
			t.Errorf("%q, %v", all, err)
		}
	})
}

// image is the copy of the collection that a mirror has reported.
type image struct {
	mu   sync.Mutex
	docs map[string]string
}

func (i *image) apply(key string, doc []byte) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.docs == nil {
		i.docs = map[string]string{}
	}
	if doc == nil {
		delete(i.docs, key)
	} else {
		i.docs[key] = string(doc)
	}
	return nil
}

func (i *image) String() string {
	i.mu.Lock()
	defer i.mu.Unlock()
	return fmt.Sprint(i.docs)
}

// becomes waits until an image has the expected content.
func (i *image) becomes(t *testing.T, want string) {
	t.Helper()
	for end := time.Now().Add(2 * time.Minute); i.String() != want; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("the mirror has %v, want %v", i, want)
		}
	}
}

func mirror(t *testing.T, collection *store.Collection) (*store.Mirror, *image) {
	t.Helper()
	i := &image{}
	m, err := store.OpenMirror(t.Context(), collection, i.apply)
	if err != nil {
		t.Fatal(err)
	}
	return m, i
}

func set(key, doc string) func(*store.Draft) error {
	return func(d *store.Draft) error {
		if doc == "" {
			d.Delete(key)
		} else {
			d.Put(key, []byte(doc))
		}
		return nil
	}
}

func TestMirror(t *testing.T) {
	onEach(t, func(t *testing.T, open func() *store.Store) {
		ctx, s := t.Context(), open()
		if err := s.Collection("a").Put(ctx, "before", []byte("1")); err != nil {
			t.Fatal(err)
		}
		m, i := mirror(t, s.Collection("a"))
		if i.String() != "map[before:1]" {
			t.Errorf("it begins with %v", i)
		}
		if err := errors.Join(m.Change(ctx, set("x", "2")), m.Change(ctx, set("y", "3")), m.Change(ctx, set("before", ""))); err != nil {
			t.Fatal(err)
		}
		no := errors.New("no")
		if err := m.Change(ctx, func(d *store.Draft) error { d.Put("z", nil); return no }); err != no {
			t.Errorf("a refusal is %v", err)
		}
		if i.String() != "map[x:2 y:3]" {
			t.Errorf("there is %v", i)
		}
		s.Close()
		if err := m.Change(ctx, set("late", "1")); err == nil {
			t.Error("a change that was not stored is told of")
		}
		if _, again := mirror(t, open().Collection("a")); again.String() != i.String() {
			t.Errorf("after a restart there is %v", again)
		}
	})
}

func TestMirrorOfNothing(t *testing.T) {
	m, i := mirror(t, nil)
	if err := m.Change(t.Context(), set("x", "1")); err != nil || i.String() != "map[x:1]" {
		t.Errorf("%v, %v", i, err)
	}
}

// A store that can be written to is ready.
func TestReady(t *testing.T) {
	onEach(t, func(t *testing.T, open func() *store.Store) {
		s := open()
		for range 2 {
			if err := s.Ready(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	})
}
