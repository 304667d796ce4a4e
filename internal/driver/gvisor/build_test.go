package gvisor

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"hutch"
	"hutch/internal/driver"
	"hutch/internal/wire"
)

// installed makes a copy of the programs that differs by a few bytes at the end.
func installed(t *testing.T, difference string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	for _, name := range []string{"hutch-agent", "hutch-gofer", "hutch-runsc"} {
		program, err := os.ReadFile(built(t, name))
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name), append(program, difference...), 0o755)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// version returns the driver of one version of Hutch.
func version(t *testing.T, state, programs string, old bool) *Driver {
	t.Helper()
	d, err := New(Options{
		Options: driver.Options{Dir: filepath.Join(state, "gvisor"), Agent: filepath.Join(programs, "hutch-agent")},
		Runsc:   filepath.Join(programs, "hutch-runsc"), Builds: filepath.Join(state, "builds"), OldBuilds: old,
	})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// TestUpgrade: after the programs were replaced, a saved sandbox continues in the programs that saved it, also after
// another save. The new version removes the old programs when nothing needs them any more.
func TestUpgrade(t *testing.T) {
	t.Parallel()
	newDriver(t, t.TempDir()) // skips the test if gVisor does not work here
	state, programs := t.TempDir(), installed(t, "the old one")
	old := version(t, state, programs, true)
	if old.kept == nil {
		t.Fatal("the programs are not kept")
	}
	inst, agent := create(t, old, spec("one"))
	if _, _, err := run(t, agent, "echo kept > /dev/shm/file"); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := errors.Join(agent.Park(t.Context()), inst.Save(t.Context(), dir), inst.Destroy(t.Context()), os.RemoveAll(programs)); err != nil {
		t.Fatal(err)
	}
	now := version(t, state, installed(t, "the new one"), true)
	if now.Build() == old.Build() {
		t.Fatal("two versions are one build")
	}
	none := func(string) bool { return false }
	if err := now.Retain(func(build string) bool { return build == old.Build() }); err != nil {
		t.Fatal(err)
	}
	again := t.TempDir()
	for _, from := range []string{dir, again} {
		if build, err := now.BuildOf(dir); err != nil || build != old.Build() || now.Restores(build) != nil {
			t.Fatalf("the save is of %s, %v, %v", build, err, now.Restores(build))
		}
		restored, err := now.Restore(t.Context(), spec("one"), from)
		if err != nil {
			t.Fatal(err)
		}
		agent := wire.NewClient(restored.Dial, spec("one").Boot.Token)
		if out, _, err := run(t, agent, "cat /dev/shm/file"); err != nil || out != "kept" {
			t.Errorf("%q %v", out, err)
		}
		if err := now.Retain(none); err != nil { // an instance still needs the old programs
			t.Fatal(err)
		}
		if from == dir {
			err = errors.Join(agent.Park(t.Context()), restored.(driver.Saver).Save(t.Context(), again))
		}
		if err := errors.Join(err, restored.Destroy(context.Background())); err != nil {
			t.Fatal(err)
		}
	}
	programs = installed(t, "the newest one")
	newest := version(t, state, programs, true)
	if _, err := version(t, state, programs, false).Restore(t.Context(), spec("one"), dir); hutch.KindOf(err) != hutch.Conflict || !strings.Contains(err.Error(), "--old-builds") {
		t.Errorf("a server that wakes nothing of other versions: %v", err)
	}
	if err := newest.Retain(none); err != nil {
		t.Fatal(err)
	}
	if _, err := newest.Restore(t.Context(), spec("one"), dir); hutch.KindOf(err) != hutch.Conflict || !strings.Contains(err.Error(), "does not have the programs") {
		t.Errorf("without its programs: %v", err)
	}
	files, err := newest.RestoreFiles(t.Context(), spec("one"), dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := files.Destroy(context.Background()); err != nil {
		t.Fatal(err)
	}
}
