package gvisor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// The disk space of a saved instance is free as soon as the save is removed: sandboxes that were restored from the save
// hold none of its files open.
func TestImageIsFreed(t *testing.T) {
	t.Parallel()
	d := newDriver(t, t.TempDir())
	inst, agent := create(t, d, spec("one"))
	if _, _, err := run(t, agent, "head -c 8M /dev/urandom > /workspace/file"); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := errors.Join(agent.Park(t.Context()), inst.Copy(t.Context(), dir)); err != nil {
		t.Fatal(err)
	}
	var pages unix.Stat_t
	if err := unix.Stat(filepath.Join(dir, "pages"), &pages); err != nil || pages.Size < 8<<20 {
		t.Fatalf("%d bytes of pages, %v", pages.Size, err)
	}
	restored, err := d.Restore(t.Context(), spec("two"), dir)
	if err != nil {
		t.Fatal(err)
	}
	defer restored.Destroy(context.Background())
	procs := restored.(*instance).procs
	for end := time.Now().Add(5 * time.Second); ; time.Sleep(time.Millisecond) {
		held := holds(procs.Sentry.PID, &pages) || holds(procs.Gofer.PID, &pages)
		if !held {
			return
		}
		if time.Now().After(end) {
			t.Fatal("the pages are held")
		}
	}
}

// An instance can be saved any number of times. The agent makes new sockets after each save. gVisor frees the files of
// the old sockets only when it has many of them, so they must fit into the folder of the socket between daemon and
// agent.
func TestManySaves(t *testing.T) {
	t.Parallel()
	d := newDriver(t, t.TempDir())
	inst, agent := create(t, d, spec("one"))
	for n := range 40 {
		dir := t.TempDir()
		if err := errors.Join(agent.Park(t.Context()), inst.Copy(t.Context(), dir)); err != nil {
			t.Fatalf("save %d: %v", n, err)
		}
		if err := os.RemoveAll(dir); err != nil {
			t.Fatal(err)
		}
	}
	if out, _, err := run(t, agent, "echo here"); err != nil || out != "here" {
		t.Fatalf("%q, %v", out, err)
	}
}

// holds reports whether a process has a file open, or mapped.
func holds(pid int, file *unix.Stat_t) bool {
	fds, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
	for _, fd := range fds {
		var st unix.Stat_t
		if unix.Stat(fd, &st) == nil && st.Dev == file.Dev && st.Ino == file.Ino {
			return true
		}
	}
	maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
	return err != nil || len(fds) == 0 || strings.Contains(string(maps), fmt.Sprintf(" %d ", file.Ino))
}
