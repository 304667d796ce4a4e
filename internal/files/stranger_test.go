package files_test

import (
	"archive/tar"
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"hutch"
	"hutch/internal/files"
)

// archived returns an archive of files (NAME=CONTENT), links (NAME -> TARGET) and hard links (NAME => TARGET).
func archived(t *testing.T, entries ...string) *bytes.Buffer {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, e := range entries {
		h, content := &tar.Header{Mode: 0o644}, ""
		switch {
		case strings.Contains(e, " -> "):
			h.Typeflag = tar.TypeSymlink
			h.Name, h.Linkname, _ = strings.Cut(e, " -> ")
		case strings.Contains(e, " => "):
			h.Typeflag = tar.TypeLink
			h.Name, h.Linkname, _ = strings.Cut(e, " => ")
		default:
			h.Typeflag = tar.TypeReg
			h.Name, content, _ = strings.Cut(e, "=")
			h.Size = int64(len(content))
		}
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(content)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return &b
}

// TestArchivesOfStrangers: with a bound, links that lead out of the folder are left out, however they do that, and no
// archive fills the disk.
func TestArchivesOfStrangers(t *testing.T) {
	inside := []string{"same -> a.txt", "d/up -> ../a.txt", "d/e/deep -> ./../../d//b.txt", "dir -> d", "d/root -> .."}
	out := []string{"o1 -> /etc/passwd", "o2 -> ../x", "d/o3 -> ../../x", "o4 -> d/root/../x", "o5 -> d/../../x", "o6 -> .."}
	dir := t.TempDir()
	f := &files.FS{Dir: dir, Most: 1 << 20}
	all := slices.Concat([]string{"a.txt=a", "d/b.txt=b", "d/f/up -> ../../a.txt"}, inside, out, []string{"same file => a.txt", "o7 => d/f/up"})
	if err := f.Unpack(t.Context(), "", hutch.UnpackRequest{Dir: dir, Format: hutch.Tar}, archived(t, all...)); err != nil {
		t.Fatal(err)
	}
	for _, link := range slices.Concat(inside, out) {
		name, want, _ := strings.Cut(link, " -> ")
		got, err := os.Readlink(filepath.Join(dir, name))
		if kept := slices.Contains(inside, link); kept != (err == nil) || kept && got != want {
			t.Errorf("%s: %q, %v", link, got, err)
		}
	}
	if _, err := os.Lstat(filepath.Join(dir, "o7")); err == nil {
		t.Error("a hard link to a link leads out of the folder")
	}
	if b, err := os.ReadFile(filepath.Join(dir, "same file")); err != nil || string(b) != "a" {
		t.Errorf("a hard link to a file: %q, %v", b, err)
	}
	for what, entries := range map[string][]string{
		"a long file":  {"long=" + strings.Repeat("x", 2<<20)},
		"many entries": slices.Repeat([]string{"one="}, 1000),
		"deep folders": {"x/" + strings.Repeat("a/", 900) + "one="},
	} {
		err := f.Unpack(t.Context(), "", hutch.UnpackRequest{Dir: dir, Format: hutch.Tar}, archived(t, entries...))
		if hutch.KindOf(err) != hutch.Exhausted || !strings.Contains(err.Error(), "more than 1 MiB") {
			t.Errorf("%s: %v", what, err)
		}
	}
	if info, err := os.Stat(filepath.Join(dir, "long")); err != nil || info.Size() > 1<<20 {
		t.Errorf("the long file: %v, %v", info, err)
	}
}
