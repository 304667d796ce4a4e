package build

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"hutch/internal/oci/rootfs"
)

// A file of an image has its setuid, setgid and sticky bits in a view, so that COPY --from keeps them, and a folder
// that no command changed does not look changed.
func TestBitsOfAnImage(t *testing.T) {
	want := map[string]fs.FileMode{"su": fs.ModeSetuid | 0o755, "dir": fs.ModeDir | fs.ModeSetgid | 0o750, "tmp": fs.ModeDir | fs.ModeSticky | 0o777, "plain": 0o644}
	var layer bytes.Buffer
	w := tar.NewWriter(&layer)
	for _, h := range []tar.Header{
		{Name: "su", Typeflag: tar.TypeReg, Mode: 0o4755}, {Name: "dir/", Typeflag: tar.TypeDir, Mode: 0o2750},
		{Name: "tmp/", Typeflag: tar.TypeDir, Mode: 0o1777}, {Name: "plain", Typeflag: tar.TypeReg, Mode: 0o644},
	} {
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(layer.Bytes())
	dir := t.TempDir()
	file, err := os.Create(filepath.Join(dir, "image"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	err = rootfs.Write(t.Context(), file, []rootfs.Layer{{
		Name: "layer", DiffID: "sha256:" + hex.EncodeToString(sum[:]), Open: func() (io.ReadCloser, error) { return io.NopCloser(&layer), nil },
	}}, rootfs.Options{Limits: rootfs.Limits{Bytes: 1 << 20, Entries: 10, Names: 1000, Path: 100, Ratio: 20}, Temp: dir})
	if err != nil {
		t.Fatal(err)
	}
	root, opened, err := openRoot(file.Name())
	if err != nil {
		t.Fatal(err)
	}
	defer opened.Close()
	for name, mode := range want {
		if got, ok := (view{root: root}).lookup(name); !ok || got.mode != mode {
			t.Errorf("%s has the mode %v, want %v", name, got.mode, mode)
		}
	}
}
