package snapshots

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"hutch"
)

// TestSendAndReceive: a snapshot that was sent is the same in another catalog, with the names that are free there, also after
// the catalog is opened again.
func TestSendAndReceive(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	from, to := open(t, t.TempDir()), open(t, dir)
	made(t, to, hutch.Snapshot{ID: "snap-other", Owner: "ada", Name: "taken"})
	s, err := from.Begin(hutch.Snapshot{ID: "snap-a", Owner: "ada", Name: "base"})
	content := append(append([]byte("begin"), make([]byte, 1<<20)...), "end"...)
	if err = errors.Join(err, os.WriteFile(s.Archive(), []byte("files"), 0o600), os.WriteFile(filepath.Join(s.Memory(), "pages"), content, 0o600)); err != nil {
		t.Fatal(err)
	}
	if _, err := from.Keep(s); err != nil {
		t.Fatal(err)
	}
	var sent bytes.Buffer
	if err := s.Send(&sent); err != nil {
		t.Fatal(err)
	}
	whole := sent.Bytes()
	if _, err := to.Receive("snap-a", "ada", bytes.NewReader(whole[:len(whole)/2])); err == nil {
		t.Error("half of it was taken")
	}
	for id, owner := range map[string]string{"snap-b": "ada", "snap-a": "bob"} {
		if _, err := to.Receive(id, owner, bytes.NewReader(whole)); err == nil {
			t.Errorf("it was taken as %s of %s", id, owner)
		}
	}
	if left, _ := filepath.Glob(filepath.Join(dir, ".*")); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
	got, err := to.Receive("snap-a", "ada", bytes.NewReader(whole))
	if err == nil {
		err = to.Add(got, []string{"base", "taken", "base:v2", "../x"})
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []*Catalog{to, open(t, dir)} {
		got, err := c.Find(Viewer{Owner: "ada"}, "base:v2")
		if err != nil || got.Snapshot.ID != "snap-a" || got.Verify() != nil || c.Record(got).HasName("taken") {
			t.Fatalf("%+v %v", got, err)
		}
		if text, err := os.ReadFile(filepath.Join(got.Memory(), "pages")); err != nil || !bytes.Equal(text, content) {
			t.Errorf("%d bytes, %v", len(text), err)
		}
	}
}

// TestReceiveWhileMaking: a snapshot that arrives while another one with its name is being made loses the name, but is
// not deleted as a replaced snapshot.
func TestReceiveWhileMaking(t *testing.T) {
	t.Parallel()
	from, to := open(t, t.TempDir()), open(t, t.TempDir())
	var sent bytes.Buffer
	if err := made(t, from, hutch.Snapshot{ID: "snap-a", Owner: "ada", Name: "base"}).Send(&sent); err != nil {
		t.Fatal(err)
	}
	v := hutch.Snapshot{ID: "snap-b", Owner: "ada", Name: "base"}
	release, err := to.Reserve(v, "")
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	got, err := to.Receive("snap-a", "ada", &sent)
	if err == nil {
		err = to.Add(got, []string{"base"})
	}
	if err != nil {
		t.Fatal(err)
	}
	made(t, to, v)
	for name, id := range map[string]string{"base": "snap-b", "snap-a": "snap-a"} {
		if s, err := to.Find(Viewer{Owner: "ada"}, name); err != nil || s.Snapshot.ID != id {
			t.Errorf("%s is %+v %v", name, s, err)
		}
	}
}

// TestReceiveOfAFullOwner: the error for a caller does not reveal how much the owner of a shared snapshot has.
func TestReceiveOfAFullOwner(t *testing.T) {
	t.Parallel()
	c := open(t, t.TempDir())
	full := hutch.Snapshot{ID: "snap-a", Owner: "alice", Size: maxSize + 12345}
	c.all[full.ID] = &Snapshot{Manifest: Manifest{Snapshot: full}}
	_, err := c.Receive("snap-b", "alice", strings.NewReader(""))
	if hutch.KindOf(err) != hutch.Exhausted || strings.Contains(err.Error(), fmt.Sprint(full.Size)) {
		t.Errorf("%v", err)
	}
}

// TestReceiveLandsNowhereElse: Receive writes only files that a snapshot can have.
func TestReceiveLandsNowhereElse(t *testing.T) {
	t.Parallel()
	for _, path := range []string{"../out", "/out", "memory/../../out", "memory/a/b", "manifest.json", "names.json", "memory"} {
		dir := t.TempDir()
		c := open(t, filepath.Join(dir, "snapshots"))
		text, err := json.Marshal(&Manifest{Version: version, Snapshot: hutch.Snapshot{ID: "snap-a"}, Files: []savedFile{{Path: path, Size: 1}}})
		if err != nil {
			t.Fatal(err)
		}
		var sent bytes.Buffer
		out := tar.NewWriter(&sent)
		for _, f := range [][2]string{{manifestFile, string(text)}, {path, "x"}} {
			err := out.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: f[0], Size: int64(len(f[1]))})
			if _, failed := out.Write([]byte(f[1])); err != nil || failed != nil {
				t.Fatal(err, failed)
			}
		}
		out.Close()
		if _, err := c.Receive("snap-a", "", &sent); err == nil || !strings.Contains(err.Error(), "cannot be in a snapshot") {
			t.Errorf("%s: %v", path, err)
		}
		if all, _ := filepath.Glob(filepath.Join(dir, "*")); len(all) != 1 {
			t.Errorf("%s landed in %q", path, all)
		}
	}
}

// TestUnused: a snapshot cannot leave while a sandbox is being made from it.
func TestUnused(t *testing.T) {
	t.Parallel()
	s := made(t, open(t, t.TempDir()), hutch.Snapshot{ID: "snap-a"})
	release := s.Hold()
	if unused, err := s.Unused(func() error { return errors.New("it was called") }); unused || err != nil {
		t.Errorf("while it is held: %v %v", unused, err)
	}
	release()
	if unused, err := s.Unused(func() error { return nil }); !unused || err != nil {
		t.Errorf("afterwards: %v %v", unused, err)
	}
}
