package installation

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"hutch"
)

// Copies of sandboxes that are awake are in a backup as the files of sleeping ones; those of others are not.
func TestCopies(t *testing.T) {
	data, s := example(t)
	for _, id := range []string{"busy", "archive", "bare"} {
		r := sleeping(id, 1)
		r.Sandbox.Status = hutch.Running
		if err := s.Put(t.Context(), r); err != nil {
			t.Fatal(err)
		}
	}
	write(t, data, "server/checkpoints/awake/pages", "copied")
	write(t, data, "server/memory/awake/pages", "older")
	write(t, data, "server/checkpoints/archive.tar", "its files")
	write(t, data, "server/checkpoints/busy.new/pages", "half")
	write(t, data, "server/checkpoints/box/pages", "it fell asleep since")
	write(t, data, "server/checkpoints/destroyed.tar", "it is gone since")
	key := newKey(t)
	path, m := backUp(t, data, key, false)
	if slices.Sort(m.Awake); m.Asleep != 1 || m.Copied != 2 || !slices.Equal(m.Awake, []string{"bare", "busy"}) {
		t.Errorf("%+v", m)
	}
	to := folder(t)
	if _, err := Restore(t.Context(), path, key, to); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"memory/awake/pages": "copied", "files/archive.tar": "its files"} {
		if got, err := os.ReadFile(to.Path(filepath.Join("server", name))); err != nil || string(got) != want {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
	for _, name := range []string{"checkpoints", "memory/busy", "memory/busy.new", "files/destroyed.tar"} {
		if _, err := os.Lstat(to.Path(filepath.Join("server", name))); err == nil {
			t.Errorf("%s is in the backup", name)
		}
	}
	if got, err := os.ReadFile(to.Path("server/memory/box/pages")); err != nil || len(got) != 1448576 {
		t.Errorf("the files of the sandbox that sleeps: %d bytes, %v", len(got), err)
	}
}

// Where the store is a database elsewhere, its dump says which sandboxes were awake.
func TestCopiesOfANode(t *testing.T) {
	data := folder(t)
	write(t, data, "server/store.json", `{"installation":"i","node":"node-a"}`)
	write(t, data, "server/memory/asleep/pages", "saved")
	write(t, data, "server/checkpoints/asleep/pages", "copied before")
	write(t, data, "server/checkpoints/awake/pages", "copied")
	key := newKey(t)
	path, m := backUp(t, data, key, false)
	if m.Node == "" || m.Copied != 1 {
		t.Errorf("%+v", m)
	}
	to := folder(t)
	if _, err := Restore(t.Context(), path, key, to); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"asleep": "saved", "awake": "copied"} {
		if got, err := os.ReadFile(to.Path("server/memory/" + name + "/pages")); err != nil || string(got) != want {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
}
