package tarball

import (
	"archive/tar"
	"bytes"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Files are the same after they were packed and unpacked: contents, modes, times, links and holes.
func TestRoundTrip(t *testing.T) {
	t.Parallel()
	from, to := t.TempDir(), t.TempDir()
	old := time.Date(2020, 2, 3, 4, 5, 6, 0, time.UTC)
	must(t, os.Mkdir(filepath.Join(from, "sub"), 0o755))
	must(t, os.WriteFile(filepath.Join(from, "sub/a"), []byte("text"), 0o640))
	must(t, os.Link(filepath.Join(from, "sub/a"), filepath.Join(from, "sub/b")))
	must(t, os.Symlink("a", filepath.Join(from, "sub/c")))
	must(t, unix.Mkfifo(filepath.Join(from, "pipe"), 0o600))
	must(t, os.WriteFile(filepath.Join(from, "program"), []byte("#!"), 0o755))
	must(t, os.Chmod(filepath.Join(from, "program"), 0o755|os.ModeSetuid))
	must(t, os.WriteFile(filepath.Join(from, "hole"), nil, 0o600))
	must(t, os.Truncate(filepath.Join(from, "hole"), 8<<20))
	must(t, os.Chtimes(filepath.Join(from, "sub/a"), old, old))
	must(t, os.Chmod(filepath.Join(from, "sub"), 0o500))
	must(t, os.Chtimes(filepath.Join(from, "sub"), old, old))

	var archive bytes.Buffer
	must(t, Pack(&archive, from))
	must(t, Unpack(&archive, to))

	at := to
	if b, err := os.ReadFile(filepath.Join(at, "sub/b")); err != nil || string(b) != "text" {
		t.Errorf("sub/b is %q, %v", b, err)
	}
	if link, err := os.Readlink(filepath.Join(at, "sub/c")); err != nil || link != "a" {
		t.Errorf("sub/c leads to %q, %v", link, err)
	}
	a, b, hole, sub, program := stat(t, at, "sub/a"), stat(t, at, "sub/b"), stat(t, at, "hole"), stat(t, at, "sub"), stat(t, at, "program")
	if a.Sys().(*syscall.Stat_t).Ino != b.Sys().(*syscall.Stat_t).Ino {
		t.Error("sub/a and sub/b are two files")
	}
	if a.Mode() != 0o640 || !a.ModTime().Equal(old) || sub.Mode().Perm() != 0o500 || !sub.ModTime().Equal(old) {
		t.Errorf("sub/a is %v of %v, sub %v of %v", a.Mode(), a.ModTime(), sub.Mode(), sub.ModTime())
	}
	if program.Mode()&os.ModeSetuid == 0 {
		t.Errorf("program is %v", program.Mode())
	}
	if s := hole.Sys().(*syscall.Stat_t); hole.Size() != 8<<20 || s.Blocks*512 > 1<<20 {
		t.Errorf("hole has %d bytes, of which %d are on disk", hole.Size(), s.Blocks*512)
	}
	if stat(t, at, "pipe").Mode()&os.ModeNamedPipe == 0 {
		t.Error("pipe is not a pipe")
	}
	must(t, os.Chmod(filepath.Join(from, "sub"), 0o700)) // or the test's folder could not be removed
	must(t, os.Chmod(filepath.Join(at, "sub"), 0o700))
}

func stat(t *testing.T, dir, name string) os.FileInfo {
	t.Helper()
	info, err := os.Lstat(filepath.Join(dir, name))
	must(t, err)
	return info
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// An archive of an earlier version does not replace the instance's own files.
func TestUnpackLeavesTheInstance(t *testing.T) {
	t.Parallel()
	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	for _, name := range []string{"sys/devices/online", "./proc/x", "a/../dev/x", ".hutch/x", "system", "z/sys/x"} {
		must(t, w.WriteHeader(&tar.Header{Name: name, Mode: 0o644}))
		if name == "system" {
			must(t, w.WriteHeader(&tar.Header{Name: "z/sys/", Typeflag: tar.TypeDir, Mode: 0o755}))
		}
	}
	must(t, w.Close())
	to := t.TempDir()
	must(t, Unpack(&archive, to))
	entries, err := os.ReadDir(to)
	must(t, err)
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	if want := []string{"system", "z"}; !slices.Equal(names, want) {
		t.Errorf("unpacked are %q, and not %q", names, want)
	}
}

// The files that a sandbox starts with are not packed until they change. A copy of such a file is packed, and so
// is a file without a time.
func TestUntouched(t *testing.T) {
	t.Parallel()
	from := t.TempDir()
	for name, at := range map[string]time.Time{
		"hosts": Untouched("/hosts"), "copy": Untouched("/hosts"), "zero": time.Unix(0, 0), "changed": time.Now(),
	} {
		must(t, os.WriteFile(filepath.Join(from, name), nil, 0o644))
		must(t, os.Chtimes(filepath.Join(from, name), at, at))
	}
	var archive bytes.Buffer
	must(t, Pack(&archive, from))
	var names []string
	for r := tar.NewReader(&archive); ; {
		h, err := r.Next()
		if err == io.EOF {
			break
		}
		must(t, err)
		names = append(names, h.Name)
	}
	if want := []string{"changed", "copy", "zero"}; !slices.Equal(names, want) {
		t.Errorf("packed are %q, and not %q", names, want)
	}
}

// counter counts writes.
type counter struct{ writes, bytes int }

func (c *counter) Write(p []byte) (int, error) {
	c.writes++
	c.bytes += len(p)
	return len(p), nil
}

// Small files are written together: each write is a system call, which takes long inside.
func TestFewWrites(t *testing.T) {
	t.Parallel()
	from := t.TempDir()
	for i := range 500 {
		must(t, os.WriteFile(filepath.Join(from, strconv.Itoa(i)), []byte("text"), 0o644))
	}
	var packed, listed counter
	must(t, Pack(&packed, from))
	must(t, List(&listed, from))
	for name, c := range map[string]counter{"Pack": packed, "List": listed} {
		if most := c.bytes/bufferSize + 1; c.bytes == 0 || c.writes > most {
			t.Errorf("%s writes %d bytes in %d writes, and needs at most %d", name, c.bytes, c.writes, most)
		}
	}
}
