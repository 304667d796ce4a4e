package engine_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"hutch"
	"hutch/internal/driver"
	"hutch/internal/driver/fake"
	"hutch/internal/engine"
	"hutch/internal/hutchtest/pgtest"
	"hutch/internal/store"
	"hutch/internal/travel"
)

// nodeOn starts an engine that shares the records in a database with other engines.
func nodeOn(t *testing.T, url, name string) *bench {
	t.Helper()
	st, err := store.Connect(t.Context(), store.Options{URL: url, Node: name, Key: make([]byte, store.KeySize)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { st.Close() })
	sealer, err := store.NewSealer(make([]byte, store.KeySize))
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{driver: fake.New(t.TempDir()), store: st}
	b.opt = engine.Options{Dir: t.TempDir(), Drivers: []driver.Driver{b.driver}, Image: noImage, Store: st, Sealer: sealer}
	b.boot(t)
	t.Cleanup(func() { b.end(t) })
	return b
}

// sentFrom makes a sandbox with a file, and returns what Asleep sends of it.
func (b *bench) sentFrom(t *testing.T, id string) []byte {
	t.Helper()
	b.create(t, hutch.CreateRequest{ID: id})
	b.run(t, id, "echo kept > file")
	if _, err := b.Hibernate(t.Context(), id, hutch.HibernateRequest{}); err != nil {
		t.Fatal(err)
	}
	var sent bytes.Buffer
	if err := b.Asleep(t.Context(), "", id, func(_ context.Context, _ travel.Image, send func(io.Writer) error) error { return send(&sent) }); err != nil {
		t.Fatal(err)
	}
	return sent.Bytes()
}

// onDisk counts the files and folders of sleeping sandboxes, and the notes of arrivals, that an engine has on disk.
func (b *bench) onDisk(t *testing.T) (count int) {
	t.Helper()
	for _, dir := range []string{"files", "memory", "arrivals"} {
		entries, err := os.ReadDir(filepath.Join(b.opt.Dir, dir))
		if err != nil {
			t.Fatal(err)
		}
		count += len(entries)
	}
	return count
}

// TestArrivalWithoutAnAnswer: while it is not known whether a sandbox has moved to another machine, its files stay on
// this one, also over a restart. After that, either the whole sandbox exists, or nothing of it.
func TestArrivalWithoutAnAnswer(t *testing.T) {
	t.Parallel()
	url := pgtest.New(t)
	a, b := nodeOn(t, url, "a"), nodeOn(t, url, "b")
	database := pgtest.Connect(t, url)
	assign := func(id, node string) error {
		_, err := database.Exec(context.Background(), "UPDATE hutch.sandboxes SET node = $2 WHERE sandbox = $1", id, node)
		return err
	}
	restart := func() {
		t.Helper()
		b.end(t)
		b.boot(t)
	}
	noAnswer := func(context.Context) error { return travel.ErrUndecided }
	moved := errors.New("another node has it")
	for id, decided := range map[string]struct {
		before func(id string) error // before the restart
		commit error
		there  bool
	}{
		"recorded-later":  {nil, nil, true},
		"recorded-before": {func(id string) error { return assign(id, "b") }, nil, true},
		"not-recorded":    {nil, moved, false},
		"files-are-gone":  {func(string) error { return os.RemoveAll(filepath.Join(b.opt.Dir, "files")) }, nil, false},
		"destroyed": {func(id string) error {
			_, err := database.Exec(context.Background(), "DELETE FROM hutch.sandboxes WHERE sandbox = $1", id)
			return err
		}, nil, false},
	} {
		sent := a.sentFrom(t, id)
		if err := a.Depart(t.Context(), "", id, func(context.Context) error { return assign(id, "") }); err != nil {
			t.Fatal(err)
		}
		err := b.Arrive(t.Context(), travel.Arrival{Sandbox: id, From: "a", Image: "key"}, func(_ string, to func(io.Reader) error) error { return to(bytes.NewReader(sent)) }, noAnswer)
		if !errors.Is(err, travel.ErrUndecided) || b.onDisk(t) != 2 {
			t.Errorf("%s: without an answer: %v, and %d files", id, err, b.onDisk(t))
		}
		if _, err := b.Sandbox(t.Context(), id); hutch.KindOf(err) != hutch.NotFound {
			t.Errorf("%s: it is used before it is known: %v", id, err)
		}
		if decided.before != nil {
			if err := decided.before(id); err != nil {
				t.Fatal(err)
			}
		}
		restart()
		list, err := b.Arrivals()
		if err != nil || (len(list) == 0) != (id == "recorded-before") {
			t.Errorf("%s: after a restart: %+v %v", id, list, err)
		}
		for _, one := range list {
			if err := b.Settle(t.Context(), one, noAnswer); id != "destroyed" && id != "files-are-gone" && !errors.Is(err, travel.ErrUndecided) {
				t.Errorf("%s: without an answer again: %v", id, err)
			}
			err := b.Settle(t.Context(), one, func(context.Context) error {
				if decided.commit != nil {
					return decided.commit
				}
				return assign(id, "b")
			})
			if (err == nil) != decided.there {
				t.Errorf("%s: with an answer: %v", id, err)
			}
		}
		if list, err := b.Arrivals(); err != nil || len(list) != 0 {
			t.Errorf("%s: afterwards: %+v %v", id, list, err)
		}
		if !decided.there {
			if n := b.onDisk(t); n != 0 {
				t.Errorf("%s: %d files are left", id, n)
			}
			continue
		}
		if got := b.run(t, id, "cat file"); got != "kept\n" {
			t.Errorf("%s: its file: %q", id, got)
		}
		restart()
		if got := b.run(t, id, "cat file"); got != "kept\n" {
			t.Errorf("%s: after another restart: %q", id, got)
		}
		if _, err := b.Destroy(t.Context(), id, true); err != nil {
			t.Error(err)
		}
	}
}

// retainer is a fake driver that keeps the programs of builds. The name of a build is that of its folder.
type retainer struct {
	*fake.Driver
	needs chan func(build string) bool
}

func (r retainer) Unwrap() any { return builds{needs: r.needs} }

type builds struct {
	driver.Keeper
	needs chan func(build string) bool
}

func (builds) Build() string                           { return "now" }
func (builds) Contract() string                        { return "" }
func (builds) Restores(string) error                   { return nil }
func (builds) BuildOf(dir string) (string, error)      { return filepath.Base(dir), nil }
func (b builds) Retain(needed func(string) bool) error { b.needs <- needed; return nil }

// TestBuildsOfArrivals: while it is not known whether a sandbox has arrived, the programs that can restore its memory
// are kept.
func TestBuildsOfArrivals(t *testing.T) {
	needs := make(chan func(string) bool, 1)
	start(t, func(o *engine.Options) {
		o.Drivers = []driver.Driver{retainer{o.Drivers[0].(*fake.Driver), needs}}
		for path, text := range map[string]string{"arrivals/came.json": `{"sandboxId":"sb","record":"came"}`, "memory/came/pages": "x", "memory/left/pages": "x"} {
			path = filepath.Join(o.Dir, path)
			if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(text), 0o600)); err != nil {
				t.Fatal(err)
			}
		}
	})
	if needed := <-needs; !needed("came") || needed("left") {
		t.Errorf("came %v, left %v", needed("came"), needed("left"))
	}
}

// TestCameAwake: a start that completes the arrival of a sandbox which was awake on its earlier node reports that,
// once.
func TestCameAwake(t *testing.T) {
	b := start(t, nil)
	b.create(t, hutch.CreateRequest{ID: "a"})
	if _, err := b.Hibernate(t.Context(), "a", hutch.HibernateRequest{}); err != nil {
		t.Fatal(err)
	}
	b.end(t)
	files, err := filepath.Glob(filepath.Join(b.opt.Dir, "files", "*.tar"))
	if err != nil || len(files) != 1 {
		t.Fatal(files, err)
	}
	key := strings.TrimSuffix(filepath.Base(files[0]), ".tar")
	note := `{"sandboxId":"a","record":"` + key + `","checkpoint":"2026-01-02T03:04:05Z"}`
	if err := os.WriteFile(filepath.Join(b.opt.Dir, "arrivals", key+".json"), []byte(note), 0o600); err != nil {
		t.Fatal(err)
	}
	b.boot(t)
	if came := b.CameAwake(); len(came) != 1 || came[0].Sandbox != "a" {
		t.Errorf("%+v", came)
	}
	b.end(t)
	b.boot(t)
	if came := b.CameAwake(); len(came) != 0 {
		t.Errorf("after another start: %+v", came)
	}
}
