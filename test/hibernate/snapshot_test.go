package hibernate

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"hutch"
	"hutch/internal/hutchtest"
)

// counted makes a sandbox with a counter that has answered 1.
func (r room) counted(t *testing.T) string {
	t.Helper()
	sb, err := r.Create(t.Context(), hutch.CreateRequest{})
	if err != nil {
		t.Fatal(err)
	}
	r.count(t, sb.ID)
	return sb.ID
}

// Background servers continue in each copy, independently.
func TestForksGoTheirOwnWays(t *testing.T) {
	r := newRoom(t)
	parent := r.counted(t)
	forks, err := r.Fork(t.Context(), parent, hutch.ForkRequest{Count: 3})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		r.run(t, parent, count)
	}
	for _, f := range forks {
		if got := r.run(t, f.ID, count+"; hostname"); got != "2\n"+f.ID {
			t.Errorf("the fork says %q", got)
		}
	}
	if got := r.run(t, parent, count); got != "4" {
		t.Errorf("the parent says %q", got)
	}
	if kept := r.kept(t); len(kept) != 0 {
		t.Errorf("left: %q", kept)
	}
}

// kept lists the folders of snapshots, including unfinished ones.
func (r room) kept(t *testing.T) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(filepath.Join(r.dir, "snapshots"))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// A changed snapshot is refused with an error; the sandbox's files are intact.
func TestSnapshotsThatFitNoMore(t *testing.T) {
	r := newRoom(t)
	parent := r.counted(t)
	r.run(t, parent, "echo kept > /workspace/file")
	other, err := r.Snapshot(t.Context(), parent, hutch.SnapshotRequest{})
	if err != nil {
		t.Fatal(err)
	}
	foreign, err := os.ReadFile(r.file(other, "memory/state"))
	if err != nil {
		t.Fatal(err)
	}
	for name, damage := range map[string]func(s hutch.Snapshot) error{
		"cut short": func(s hutch.Snapshot) error { return os.Truncate(r.file(s, "memory/pages"), 4096) },
		"tampered":  func(s hutch.Snapshot) error { return flip(r.file(s, "memory/pages")) },
		"exchanged": func(s hutch.Snapshot) error { return os.WriteFile(r.file(s, "memory/state"), foreign, 0o600) },
		"gone":      func(s hutch.Snapshot) error { return os.Remove(r.file(s, "files.tar")) },
	} {
		s, err := r.Snapshot(t.Context(), parent, hutch.SnapshotRequest{})
		if err != nil {
			t.Fatal(err)
		}
		if err := damage(s); err != nil {
			t.Fatal(err)
		}
		_, err = r.Create(t.Context(), hutch.CreateRequest{Snapshot: s.ID})
		if !errors.Is(err, hutch.Conflict) || !strings.Contains(err.Error(), "damaged") {
			t.Errorf("%s: %v", name, err)
		}
		if err := r.DeleteSnapshot(t.Context(), s.ID); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := r.Create(t.Context(), hutch.CreateRequest{Snapshot: other.ID}); err != nil {
		t.Error(err)
	}
}

func (r room) file(s hutch.Snapshot, name string) string {
	return filepath.Join(r.dir, "snapshots", s.ID, name)
}

// flip changes one bit in the middle of a file, in a way that only reading the file, or its change time, reveals.
func flip(path string) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	b[len(b)/2] ^= 1
	return os.WriteFile(path, b, 0o600)
}

// The memory of another version is refused, but its files are not. Snapshots survive the server's restart, and a
// paused sandbox stays paused.
func TestSnapshotsOverAnUpgrade(t *testing.T) {
	t.Parallel()
	dir := hutchtest.Dir(t)
	hutchtest.Driver(t, "gvisor", filepath.Join(dir, "gvisor")) // skips the test where the runtime does not work
	r := open(t, dir, "gvisor")
	id := r.counted(t)
	r.run(t, id, "echo kept > /workspace/file")
	old, err := r.Snapshot(t.Context(), id, hutch.SnapshotRequest{Name: "old"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.Snapshot(t.Context(), id, hutch.SnapshotRequest{Name: "new"}); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Pause(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(r.Close(context.Background()), rewrite(r.file(old, "manifest.json"), "build", "gVisor of old")); err != nil {
		t.Fatal(err)
	}
	r = reopen(t, dir, "gvisor")
	if sb, err := r.Sandbox(t.Context(), id); !sb.Paused || err != nil {
		t.Errorf("after the restart it is %+v, %v", sb, err)
	}
	if got := r.run(t, id, count); got != "2" {
		t.Errorf("the counter says %q", got)
	}
	if _, err = r.Create(t.Context(), hutch.CreateRequest{Snapshot: "old"}); !errors.Is(err, hutch.Conflict) || !strings.Contains(err.Error(), "gVisor of old") {
		t.Errorf("the memory of another version: %v", err)
	}
	for name, want := range map[string]string{"old": "kept\ngone", "new": "kept\n3"} {
		sb, err := r.Create(t.Context(), hutch.CreateRequest{Snapshot: name, FilesOnly: name == "old"})
		if err != nil {
			t.Fatal(err)
		}
		if got := r.run(t, sb.ID, "cat /workspace/file; (echo > /dev/tcp/127.0.0.1/8123) 2>/dev/null && "+count+" || echo gone"); got != want {
			t.Errorf("%s: %q", name, got)
		}
		r.Destroy(t.Context(), sb.ID, true)
	}
	r.Destroy(t.Context(), id, true)
	errs := errors.Join(r.DeleteSnapshot(t.Context(), "old"), r.DeleteSnapshot(t.Context(), "new"))
	if kept := r.kept(t); errs != nil || len(kept) != 0 {
		t.Errorf("left: %q, %v", kept, errs)
	}
}

// rewrite sets a field of a JSON file.
func rewrite(path, field string, value any) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	var doc map[string]any
	if err := json.Unmarshal(text, &doc); err != nil {
		return err
	}
	doc[field] = value
	if text, err = json.Marshal(doc); err != nil {
		return err
	}
	return os.WriteFile(path, text, 0o600)
}

// A running command is neither cut nor part of the snapshot: the snapshot waits for a short one, and is refused
// during a long one.
func TestSnapshotDuringExec(t *testing.T) {
	r := newRoom(t)
	id := r.counted(t)
	long := make(chan error, 1)
	begun := make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		var once sync.Once
		_, err := r.Exec(ctx, id, hutch.ExecRequest{Command: "echo begun; sleep 60"}, func(hutch.Output) error { once.Do(func() { close(begun) }); return nil })
		long <- err
	}()
	<-begun
	_, err := r.Snapshot(t.Context(), id, hutch.SnapshotRequest{})
	if !errors.Is(err, hutch.Conflict) {
		t.Errorf("snapshot: %v", err)
	}
	if kept := r.kept(t); len(kept) != 0 {
		t.Errorf("left: %q", kept)
	}
	cancel()
	if err := <-long; !errors.Is(err, context.Canceled) {
		t.Errorf("the command: %v", err)
	}
	var wg sync.WaitGroup
	for range 4 { // they write all the time
		wg.Go(func() {
			for range 5 {
				if got := r.run(t, id, "date > /workspace/now; echo written"); got != "written" {
					t.Errorf("%q", got)
				}
			}
		})
	}
	s, err := r.Snapshot(t.Context(), id, hutch.SnapshotRequest{})
	wg.Wait()
	if err != nil && !errors.Is(err, hutch.Conflict) {
		t.Errorf("snapshot during writes: %v", err)
	}
	if err == nil {
		if sb, err := r.Create(t.Context(), hutch.CreateRequest{Snapshot: s.ID}); err != nil || r.run(t, sb.ID, count) != "2" {
			t.Errorf("a sandbox of it: %v", err)
		}
	}
}

// However many callers arrive at a sleeping sandbox, it is woken once.
func TestWakeStorm(t *testing.T) {
	r := newRoom(t)
	id, _ := r.sleeper(t, hutch.CreateRequest{})
	r.until(t, id, hutch.Hibernated)
	var wg sync.WaitGroup
	for range 100 {
		wg.Go(func() {
			if got := r.run(t, id, "echo here"); got != "here" {
				t.Errorf("%q", got)
			}
		})
	}
	wg.Wait()
	if got := r.run(t, id, count); got != "2" {
		t.Errorf("the counter says %q", got)
	}
}
