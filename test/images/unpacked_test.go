package images

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"hutch/internal/datadir"
	"hutch/internal/linux/subid"
)

// TestUnpackedImageIsRemoved: files that belong to subordinate ids are removed with their image. When the server
// starts, it removes those that a killed server has left.
func TestUnpackedImageIsRemoved(t *testing.T) {
	t.Parallel()
	if os.Geteuid() == 0 {
		t.Skip("TestSubordinate runs it as a user with subordinate ids")
	}
	ids, err := subid.Find()
	if err != nil {
		t.Skip(err)
	}
	b := newBed(t, "native")
	sb := b.make(t, "hello:1")
	roots, temp := filepath.Join(b.data, datadir.OCI, "roots"), filepath.Join(b.data, datadir.OCI, "tmp")
	trees, err := filepath.Glob(roots + "/*.tree-*")
	if err != nil || len(trees) != 1 {
		t.Fatalf("the unpacked images are %v, %v", trees, err)
	}
	if _, err := b.Destroy(t.Context(), sb.ID, true); err != nil {
		t.Fatal(err)
	}
	b.End(t)
	for _, dir := range []string{roots + "/.new-killed", temp + "/gone-killed"} { // some files have other owners already
		if err := errors.Join(os.MkdirAll(dir+"/tree/a/b", 0o755), os.WriteFile(dir+"/tree/a/file", nil, 0o600)); err != nil {
			t.Fatal(err)
		}
		if err := ids.Give(dir+"/tree", []subid.Owner{{Path: "a/b", UID: 7, GID: 8}, {Path: "a/file"}, {Path: "a"}}); err != nil {
			t.Fatal(err)
		}
		old := time.Now().Add(-2 * time.Hour)
		if err := os.Chtimes(dir, old, old); err != nil {
			t.Fatal(err)
		}
	}
	b.start(t)
	if err := b.DeleteImage(t.Context(), "hello:1"); err != nil {
		t.Fatal(err)
	}
	sb = b.make(t, "shout:1") // unpacking removes what was left there
	if _, err := b.Destroy(t.Context(), sb.ID, true); err != nil {
		t.Fatal(err)
	}
	var left []string
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		there, _ := filepath.Glob(temp + "/*")
		killed, _ := filepath.Glob(roots + "/.new-*")
		if left = append(there, killed...); len(left) == 0 {
			break
		}
	}
	if len(left) > 0 {
		t.Errorf("left: %v", left)
	}
	if _, err := os.Stat(trees[0]); !os.IsNotExist(err) {
		t.Errorf("the unpacked image is still there: %v", err)
	}
}
