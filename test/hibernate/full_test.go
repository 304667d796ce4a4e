package hibernate

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"hutch"
	"hutch/internal/hutchtest"
	"hutch/internal/hutchtest/disk"
)

// smallDisk returns a folder on a file system of the given size.
func smallDisk(t *testing.T, size string) (dir string) {
	t.Helper()
	dir = hutchtest.Dir(t)
	disk.Shrink(t, dir, size)
	return dir
}

// Every operation that needs disk space reports a full disk with the same message, and works when there is space.
func TestFullDiskIsTold(t *testing.T) {
	for _, runtime := range hutchtest.Runtimes {
		t.Run(runtime, func(t *testing.T) {
			t.Parallel()
			dir := smallDisk(t, "256m")
			hutchtest.Driver(t, runtime, filepath.Join(dir, runtime)) // skips the test where the runtime does not work
			r := reopen(t, dir, runtime)
			sleeper, err := r.Create(t.Context(), hutch.CreateRequest{ID: "sleeper", SleepAfter: 0.5, OnIdle: hutch.IdleStop})
			must(t, err)
			r.run(t, sleeper.ID, "echo kept > file")
			snap, err := r.Snapshot(t.Context(), sleeper.ID, hutch.SnapshotRequest{FilesOnly: true})
			must(t, err)
			r.until(t, sleeper.ID, hutch.Stopped)
			ballast := fillUp(t, dir)
			tries := map[string]func() error{
				"a create": func() error { _, err := r.Create(t.Context(), hutch.CreateRequest{ID: "one"}); return err },
				"a restore": func() error {
					_, err := r.Create(t.Context(), hutch.CreateRequest{ID: "two", Snapshot: snap.ID})
					return err
				},
				"waking": func() error { _, err := r.Resume(t.Context(), sleeper.ID); return err },
			}
			for what, try := range tries {
				if err := try(); !errors.Is(err, hutch.Exhausted) || !strings.Contains(err.Error(), "the server's disk is full") {
					t.Errorf("%s: %v (%s)", what, err, hutch.KindOf(err))
				}
			}
			must(t, os.Remove(ballast))
			for what, try := range tries {
				if err := try(); err != nil {
					t.Errorf("%s, with room again: %v", what, err)
				}
			}
			if got := r.run(t, sleeper.ID, "cat file"); got != "kept" {
				t.Errorf("the file says %q", got)
			}
			r.clear(t)
		})
	}
}
