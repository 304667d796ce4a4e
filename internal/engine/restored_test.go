package engine_test

import (
	"cmp"
	"context"
	"database/sql"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"hutch"
	"hutch/internal/driver"
	"hutch/internal/driver/fake"
	"hutch/internal/engine"
	"hutch/internal/store"
)

// restoredDriver is the driver of a restored server on the machine of the original server. There, a handle leads to the
// instance of the original.
type restoredDriver struct {
	*fake.Driver
	original *fake.Driver
}

func (d restoredDriver) Recover(ctx context.Context, id string, h driver.Handle) (driver.Instance, error) {
	if inst, err := d.Driver.Recover(ctx, id, h); err == nil {
		return inst, nil
	}
	return d.original.Recover(ctx, id, h)
}

// restoreBeside makes the options of a restored server that runs beside the original server, with the records and the
// copies of the original's sandboxes.
func (b *bench) restoreBeside(t *testing.T) engine.Options {
	t.Helper()
	dir := t.TempDir()
	st, err := store.Open(t.Context(), filepath.Join(dir, "hutch.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { st.Close() })
	opt := b.opt
	opt.Dir, opt.Store, opt.Restored = dir, st, true
	opt.Drivers = []driver.Driver{restoredDriver{fake.New(t.TempDir()), b.driver}}
	if err := os.MkdirAll(filepath.Join(opt.Dir, "files"), 0o700); err != nil {
		t.Fatal(err)
	}
	b.checkpoints(t, func([]hutch.Checkpoint) {
		records, err := b.store.All(t.Context())
		for _, r := range records {
			err = cmp.Or(err, st.Put(t.Context(), r))
		}
		for _, path := range b.files(t, "checkpoints") {
			data, failed := os.ReadFile(path)
			key, _ := store.CutCheckpointName(filepath.Base(path))
			err = cmp.Or(err, failed, os.WriteFile(filepath.Join(opt.Dir, "files", key+".tar"), data, 0o600))
		}
		if err != nil {
			t.Fatal(err)
		}
	})
	return opt
}

// A restored server on the machine of the original one leaves the original's running instances alone.
func TestRestoredBesideTheOriginal(t *testing.T) {
	b := start(t, nil)
	for _, id := range []string{"kept", "lost"} {
		b.create(t, hutch.CreateRequest{ID: id})
		b.run(t, id, "echo before > file")
	}
	b.create(t, hutch.CreateRequest{ID: "asleep", OnIdle: hutch.IdleStop, SleepAfter: 0.05}) // its files are not in the backup
	b.until(t, "asleep", hutch.Stopped)
	opt := b.restoreBeside(t)
	if err := os.Remove(filepath.Join(opt.Dir, "files", "lost.tar")); err != nil {
		t.Fatal(err)
	}
	b.run(t, "kept", "echo after > file")

	drill := &bench{store: opt.Store, opt: opt}
	drill.boot(t)
	drill.until(t, "kept", hutch.Stopped)
	if sb := drill.until(t, "lost", hutch.Failed); !strings.Contains(sb.Reason, "no copy") {
		t.Errorf("reason %q", sb.Reason)
	}
	if sb := drill.until(t, "asleep", hutch.Failed); !strings.Contains(sb.Reason, "no files") {
		t.Errorf("reason %q", sb.Reason)
	}
	if got := drill.run(t, "kept", "cat file"); got != "before\n" {
		t.Errorf("restored: %q", got)
	}
	for _, id := range []string{"kept", "lost"} {
		if _, err := drill.Destroy(t.Context(), id, true); err != nil {
			t.Error(err)
		}
	}
	drill.end(t)
	if got := b.run(t, "kept", "cat file") + b.run(t, "lost", "cat file"); got != "after\nbefore\n" {
		t.Errorf("the original: %q", got)
	}
}

// A start on a restored folder fails if it cannot write its records, and keeps the copies. Otherwise the mark of the
// folder would be removed, and the next start would use the handles.
func TestRestoredThatCannotWrite(t *testing.T) {
	b := start(t, nil)
	for _, id := range []string{"kept", "lost"} {
		b.create(t, hutch.CreateRequest{ID: id})
	}
	for _, id := range []string{"kept", "lost"} {
		opt := b.restoreBeside(t)
		if err := os.Remove(filepath.Join(opt.Dir, "files", "lost.tar")); err != nil {
			t.Fatal(err)
		}
		db, err := sql.Open("sqlite", filepath.Join(opt.Dir, "hutch.db"))
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		if _, err := db.ExecContext(t.Context(), `create trigger broken before insert on sandboxes when new.id = '`+id+`' begin select raise(abort, 'broken'); end`); err != nil {
			t.Fatal(err)
		}
		e := engine.New(opt)
		if err := e.Start(t.Context()); err == nil || !strings.Contains(err.Error(), "broken") {
			t.Errorf("%s: %v", id, err)
		}
		if err := e.Close(context.Background()); err != nil {
			t.Error(err)
		}
		if _, err := os.Stat(filepath.Join(opt.Dir, "files", "kept.tar")); err != nil {
			t.Errorf("%s: %v", id, err)
		}
		if _, err := db.ExecContext(t.Context(), `drop trigger broken`); err != nil {
			t.Fatal(err)
		}
		drill := &bench{store: opt.Store, opt: opt}
		drill.boot(t)
		drill.until(t, "kept", hutch.Stopped)
		drill.until(t, "lost", hutch.Failed)
		drill.end(t)
	}
}
