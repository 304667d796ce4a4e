package installation

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"hutch"
)

// copyOf returns the path of the copy of a sandbox, below the data folder.
func copyOf(key string, generation int) string {
	return "server/checkpoints/" + sleeping(key, generation).CheckpointName()
}

// A sandbox that was destroyed and created again after its copy was made is not in the backup: the copy is that of the first sandbox, and
// the record is that of the second.
func TestCopyOfAnEarlierSandbox(t *testing.T) {
	data, s := example(t)
	for id, generation := range map[string]int{"memory": 2, "archive": 2, "same": 1} {
		r := sleeping(id, generation)
		r.Sandbox.Status = hutch.Running
		if err := s.Put(t.Context(), r); err != nil {
			t.Fatal(err)
		}
	}
	write(t, data, copyOf("memory", 1)+"/pages", "of the first one")
	write(t, data, copyOf("archive", 1)+".tar", "of the first one")
	write(t, data, copyOf("same", 1)+".tar", "its files")
	key := newKey(t)
	path, m := backUp(t, data, key, false)
	if slices.Sort(m.Awake); m.Copied != 1 || !slices.Equal(m.Awake, []string{"archive", "awake", "memory"}) {
		t.Errorf("%+v", m)
	}
	to := folder(t)
	if _, err := Restore(t.Context(), path, key, to, RestoreOptions{}); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]bool{"memory/memory": false, "files/archive.tar": false, "files/same.tar": true} {
		if _, err := os.Lstat(to.Path("server/" + name)); (err == nil) != want {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A backup has the copies of awake sandboxes, as the files of sleeping ones. It does not have copies of other sandboxes.
func TestCopies(t *testing.T) {
	data, s := example(t)
	for _, id := range []string{"busy", "archive", "bare"} {
		r := sleeping(id, 1)
		r.Sandbox.Status = hutch.Running
		if err := s.Put(t.Context(), r); err != nil {
			t.Fatal(err)
		}
	}
	write(t, data, copyOf("awake", 1)+"/pages", "copied")
	write(t, data, "server/memory/awake/pages", "older")
	write(t, data, copyOf("archive", 1)+".tar", "its files")
	write(t, data, copyOf("busy", 1)+".new/pages", "half")
	write(t, data, copyOf("box", 1)+"/pages", "it fell asleep since")
	write(t, data, copyOf("destroyed", 1)+".tar", "it is gone since")
	key := newKey(t)
	path, m := backUp(t, data, key, false)
	if slices.Sort(m.Awake); m.Asleep != 1 || m.Copied != 2 || !slices.Equal(m.Awake, []string{"bare", "busy"}) {
		t.Errorf("%+v", m)
	}
	to := folder(t)
	if _, err := Restore(t.Context(), path, key, to, RestoreOptions{}); err != nil {
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

// Without the database, the files alone say which sandboxes were awake.
func TestCopiesOfANode(t *testing.T) {
	data := folder(t)
	write(t, data, "server/store.json", `{"installation":"i","node":"node-a"}`)
	write(t, data, "server/memory/asleep/pages", "saved")
	write(t, data, copyOf("asleep", 1)+"/pages", "copied before")
	write(t, data, copyOf("awake", 1)+"/pages", "copied")
	key := newKey(t)
	path := filepath.Join(t.TempDir(), "backup")
	if _, err := Write(t.Context(), data, Options{To: path, Key: key}); hutch.KindOf(err) != hutch.Invalid || !strings.Contains(err.Error(), "--no-database") {
		t.Errorf("a backup without the database, which nobody asked for: %v", err)
	}
	m, err := Write(t.Context(), data, Options{To: path, Key: key, WithoutDatabase: true})
	if err != nil || m.Node == "" || m.Copied != 1 {
		t.Errorf("%+v, %v", m, err)
	}
	to := folder(t)
	if _, err := Restore(t.Context(), path, key, to, into("")); !errors.Is(err, errHasNoDatabase) {
		t.Errorf("a restore to a database: %v", err)
	}
	if _, err := Restore(t.Context(), path, key, to, RestoreOptions{}); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"asleep": "saved", "awake": "copied"} {
		if got, err := os.ReadFile(to.Path("server/memory/" + name + "/pages")); err != nil || string(got) != want {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
}
