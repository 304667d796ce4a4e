package export

import (
	"archive/tar"
	"bytes"
	"io"
	"os"
	"path/filepath"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// layerOf returns a layer of entries, each with a name, a type and a content. The content of a link is its target.
func layerOf(t *testing.T, entries ...[3]string) v1.Layer {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, e := range entries {
		h := &tar.Header{Name: e[0], Typeflag: e[1][0], Mode: 0o4755}
		if h.Typeflag == tar.TypeReg {
			h.Size = int64(len(e[2]))
		} else {
			h.Linkname = e[2]
		}
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if h.Typeflag == tar.TypeReg {
			io.WriteString(w, e[2])
		}
	}
	w.Close()
	l, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(b.Bytes())), nil })
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func archiveOf(t *testing.T, layers ...v1.Layer) string {
	t.Helper()
	img, err := mutate.AppendLayers(empty.Image, layers...)
	file := filepath.Join(t.TempDir(), "image.tar")
	if err == nil {
		err = tarball.WriteToFile(file, nil, img)
	}
	if err != nil {
		t.Fatal(err)
	}
	return file
}

// Files that a layer replaces or removes are missing, both in a folder and in a stream.
func TestLayers(t *testing.T) {
	archive := archiveOf(t,
		layerOf(t, [3]string{"a", "0", "old"}, [3]string{"d/gone", "0", "1"}, [3]string{"d/stays", "0", "2"}, [3]string{"o/below", "0", "3"}, [3]string{"was/dir", "0", "4"}, [3]string{"h", "0", "5"}, [3]string{"hard", "1", "h"}),
		layerOf(t, [3]string{"a", "0", "new"}, [3]string{"d/.wh.gone", "0", ""}, [3]string{"o/.wh..wh..opq", "0", ""}, [3]string{"o/over", "0", "6"}, [3]string{"was", "0", "file"}, [3]string{"l", "2", "d/stays"}))
	want := map[string]string{"a": "new", "d/stays": "2", "o/over": "6", "was": "file", "h": "5", "hard": "5", "l": "2"}
	dir := filepath.Join(t.TempDir(), "out")
	if err := Folder(archive, dir); err != nil {
		t.Fatal(err)
	}
	found := 0
	filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			found++
		}
		return err
	})
	for name, content := range want {
		if text, err := os.ReadFile(filepath.Join(dir, name)); err != nil || string(text) != content {
			t.Errorf("%s is %q, %v", name, text, err)
		}
	}
	if info, err := os.Stat(filepath.Join(dir, "a")); err != nil || info.Mode() != 0o755 || found != len(want) {
		t.Errorf("there are %d files; a is %v, %v", found, info, err)
	}
	var stream bytes.Buffer
	if err := Tar(archive, &stream); err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	for r := tar.NewReader(&stream); ; {
		h, err := r.Next()
		if err != nil {
			break
		}
		names[h.Name] = true
	}
	if len(names) != len(want) {
		t.Errorf("the stream has %v", names)
	}
}

// No file is written outside of the folder.
func TestNothingOutside(t *testing.T) {
	out := t.TempDir()
	for _, l := range []v1.Layer{
		layerOf(t, [3]string{"link", "2", out}, [3]string{"link/evil", "0", "x"}),
		layerOf(t, [3]string{"../../../../../.." + out + "/evil", "0", "x"}),
		layerOf(t, [3]string{"up", "2", "../../.."}, [3]string{"up/evil", "0", "x"}),
		layerOf(t, [3]string{"evil", "1", "../../../../../../etc/passwd"}),
	} {
		dir := filepath.Join(t.TempDir(), "a/b/c")
		err := Folder(archiveOf(t, l), dir)
		for _, place := range []string{out, filepath.Dir(filepath.Dir(filepath.Dir(dir)))} {
			if _, there := os.Lstat(filepath.Join(place, "evil")); there == nil {
				t.Errorf("a file is in %s; %v", place, err)
			}
		}
		if text, err := os.ReadFile(filepath.Join(dir, "evil")); err == nil && len(text) > 1 {
			t.Errorf("a file of the host is in the folder: %.40q", text)
		}
	}
}
