package hibernate

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"hutch"
	"hutch/internal/driver"
	"hutch/internal/engine"
	"hutch/internal/hutchtest"
)

// Snapshots that were damaged while no daemon ran are recognized, do not prevent a start, and can be deleted.
func TestSnapshotsFoundDamaged(t *testing.T) {
	for _, runtime := range hutchtest.Runtimes {
		t.Run(runtime, func(t *testing.T) {
			t.Parallel()
			dir := hutchtest.Dir(t)
			hutchtest.Driver(t, runtime, filepath.Join(dir, runtime)) // skips the test where the runtime does not work
			r := open(t, dir, runtime)
			_, err := r.Create(t.Context(), hutch.CreateRequest{ID: "parent"})
			must(t, err)
			r.run(t, "parent", "echo kept > /workspace/file")
			snaps := map[string]hutch.Snapshot{}
			for _, name := range []string{"sound", "flipped", "short", "later", "half", "one", "other"} {
				snaps[name], err = r.Snapshot(t.Context(), "parent", hutch.SnapshotRequest{Name: name})
				must(t, err)
			}
			must(t, r.Close(context.Background()))
			must(t, errors.Join(
				flip(r.archive(t, snaps["flipped"])), os.Truncate(r.archive(t, snaps["short"]), 100),
				rewrite(r.file(snaps["later"], "manifest.json"), "version", 99), os.Truncate(r.file(snaps["half"], "manifest.json"), 100),
				unix.Renameat2(unix.AT_FDCWD, r.file(snaps["one"], ""), unix.AT_FDCWD, r.file(snaps["other"], ""), unix.RENAME_EXCHANGE),
			))
			r = reopen(t, dir, runtime)
			for name, want := range map[string]string{
				"sound": "", "flipped": "damaged", "short": "damaged", "later": "another version of Hutch",
				"half": "there is no snapshot", "one": "there is no snapshot", "other": "there is no snapshot",
			} {
				sb, err := r.Create(t.Context(), hutch.CreateRequest{Snapshot: name})
				if err == nil && want == "" && r.run(t, sb.ID, "cat /workspace/file") == "kept" {
					continue
				}
				if err == nil || want == "" || !strings.Contains(err.Error(), want) {
					t.Errorf("%s: %v, not %q", name, err, want)
				}
				must(t, r.DeleteSnapshot(t.Context(), name))
			}
			list, err := r.Snapshots(t.Context())
			if len(list) != 1 || err != nil {
				t.Errorf("there are %+v, %v", list, err)
			}
			must(t, r.DeleteSnapshot(t.Context(), "sound"))
			all, err := r.Sandboxes(t.Context(), hutch.Filter{})
			must(t, err)
			for _, sb := range all {
				_, err := r.Destroy(t.Context(), sb.ID, true)
				must(t, err)
			}
		})
	}
}

// archive returns the path of the files in a snapshot.
func (r room) archive(t *testing.T, s hutch.Snapshot) string {
	t.Helper()
	found, err := filepath.Glob(r.file(s, "files.*"))
	if len(found) != 1 || err != nil {
		t.Fatalf("the files are %q, %v", found, err)
	}
	return found[0]
}

// On a full disk, sleeping sandboxes stay asleep, and no sandbox starts that could not be saved. When there is space
// again, everything works as before.
func TestNoRoomAtAll(t *testing.T) {
	t.Parallel()
	dir := smallDisk(t, "256m")
	hutchtest.Driver(t, "gvisor", filepath.Join(dir, "gvisor")) // skips the test where the runtime does not work
	r := reopen(t, dir, "gvisor")
	parent := r.counted(t)
	snap, err := r.Snapshot(t.Context(), parent, hutch.SnapshotRequest{})
	must(t, err)
	sleeper, _ := r.sleeper(t, hutch.CreateRequest{})
	r.until(t, sleeper, hutch.Hibernated)
	ballast := fillUp(t, dir)
	for what, try := range map[string]func() error{
		"a restore": func() error {
			_, err := r.Create(t.Context(), hutch.CreateRequest{ID: "copy", Snapshot: snap.ID})
			return err
		},
		"a fork": func() error { _, err := r.Fork(t.Context(), parent, hutch.ForkRequest{}); return err },
		"waking": func() error {
			_, err := r.Exec(t.Context(), sleeper, hutch.ExecRequest{Command: "true"}, nil)
			return err
		},
	} {
		if err := try(); !errors.Is(err, hutch.Exhausted) {
			t.Errorf("%s: %v (%s)", what, err, hutch.KindOf(err))
		}
	}
	must(t, os.Remove(ballast))
	for _, id := range []string{parent, sleeper} {
		if got := r.run(t, id, count); got != "2" {
			t.Errorf("the counter of %s says %q", id, got)
		}
	}
	if got := r.state(t); len(got.sandboxes) != 2 {
		t.Errorf("there are %+v", got.sandboxes)
	}
	copy, err := r.Create(t.Context(), hutch.CreateRequest{Snapshot: snap.ID})
	must(t, err)
	if got := r.run(t, copy.ID, count); got != "2" {
		t.Errorf("the counter of the copy says %q", got)
	}
	r.clear(t)
}

// unlucky is a driver whose first instances are killed while they are restored.
type unlucky struct {
	driver.Restorer
	times *atomic.Int32
}

func (u unlucky) Restore(ctx context.Context, spec driver.Spec, dir string) (driver.Instance, error) {
	if u.times.Add(-1) >= 0 {
		return nil, errors.New("killed")
	}
	return u.Restorer.Restore(ctx, spec, dir)
}

// If a sandbox is killed while it wakes, it keeps its memory.
func TestKilledWhileItWakes(t *testing.T) {
	t.Parallel()
	u := unlucky{times: &atomic.Int32{}}
	var r room
	r.Engine = hutchtest.Engine(t, "gvisor", func(o *engine.Options) {
		u.Restorer = o.Drivers[0].(driver.Restorer)
		r.dir, o.Drivers = o.Dir, []driver.Driver{u}
	})
	id, _ := r.sleeper(t, hutch.CreateRequest{})
	r.until(t, id, hutch.Hibernated)
	u.times.Store(2)
	if got := r.run(t, id, count); got != "2" {
		t.Errorf("the counter says %q", got)
	}
}

// fillUp fills the disk of a folder.
func fillUp(t *testing.T, dir string) (ballast string) {
	t.Helper()
	f, err := os.Create(filepath.Join(dir, "ballast"))
	must(t, err)
	defer f.Close()
	for block := make([]byte, 4096); err == nil; {
		_, err = f.Write(block)
	}
	if !errors.Is(err, unix.ENOSPC) {
		t.Fatal(err)
	}
	return f.Name()
}
