package inside

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestChunks: a stream that was written in chunks is read unchanged. A stream that is cut off, or has false lengths, is
// an error.
func TestChunks(t *testing.T) {
	var b bytes.Buffer
	c := chunks{&b}
	for _, part := range []string{"one", "", "two", strings.Repeat("x", 100_000)} {
		if _, err := c.Write([]byte(part)); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.end(); err != nil {
		t.Fatal(err)
	}
	whole := b.Bytes()
	var out bytes.Buffer
	if err := Unchunk(&out, bytes.NewReader(whole)); err != nil || out.String() != "onetwo"+strings.Repeat("x", 100_000) {
		t.Errorf("%d bytes, %v", out.Len(), err)
	}
	for _, bad := range [][]byte{whole[:len(whole)-1], whole[:5], nil, binary.BigEndian.AppendUint32(nil, mostChunk+1)} {
		if err := Unchunk(io.Discard, bytes.NewReader(bad)); err == nil {
			t.Errorf("%d bytes are taken", len(bad))
		}
	}
}

// TestPackets: each packet is one write, and a packet that is cut off is not written.
func TestPackets(t *testing.T) {
	var stream bytes.Buffer
	for _, p := range []string{"first", "", "second"} {
		stream.Write(binary.BigEndian.AppendUint16(nil, uint16(len(p))))
		stream.WriteString(p)
	}
	stream.Write([]byte{0, 9, 'c', 'u', 't'})
	var w writes
	if err := Packets(&stream, &w); !errors.Is(err, io.ErrUnexpectedEOF) || strings.Join(w, ",") != "first,second" {
		t.Errorf("%q, %v", w, err)
	}
}

type writes []string

func (w *writes) Write(b []byte) (int, error) { *w = append(*w, string(b)); return len(b), nil }

// TestFilesOverAnImage: our files replace those of an image, also its links, which are never followed.
func TestFilesOverAnImage(t *testing.T) {
	dir, outside := t.TempDir(), t.TempDir()
	if err := errors.Join(os.Mkdir(dir+"/etc", 0o755), os.Symlink(outside, dir+"/home"), os.Symlink(outside+"/hosts", dir+"/etc/hosts"), os.Mkdir(dir+"/etc/hostname", 0o755), os.WriteFile(dir+"/data", nil, 0o644)); err != nil {
		t.Fatal(err)
	}
	r := rootMaker{root: dir, upper: t.TempDir()}
	uid, gid := os.Getuid(), os.Getgid()
	files := []File{
		{Path: "/", Mode: 0o755 | fs.ModeDir, UID: uid, GID: gid}, {Path: "/etc", Mode: 0o755 | fs.ModeDir, UID: uid, GID: gid}, {Path: "/etc/hosts", Mode: 0o644, UID: uid, GID: gid, Content: "ours"},
		{Path: "/etc/hostname", Mode: 0o644, UID: uid, GID: gid, Content: "ours"}, {Path: "/home", Mode: 0o755 | fs.ModeDir, UID: uid, GID: gid}, {Path: "/home/user", Mode: 0o1777 | fs.ModeDir | fs.ModeSticky, UID: uid, GID: gid},
		{Path: "/data", Mode: 0o755 | fs.ModeDir, UID: uid, GID: gid}, {Path: "/proc/self", Mode: 0o755 | fs.ModeDir}, {Path: "/usr", Mode: 0o755 | fs.ModeDir, UID: uid, GID: gid}, {Path: "/usr/ours", Mode: 0o644, UID: uid, GID: gid, Content: "ours"},
	}
	if err := r.put(files, map[string]bool{"usr": true}); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{dir + "/etc/hosts", dir + "/etc/hostname", r.upper + "/usr/ours"} {
		if info, err := os.Lstat(path); err != nil || !info.Mode().IsRegular() {
			t.Errorf("%s: %v", path, err)
		} else if text, _ := os.ReadFile(path); string(text) != "ours" {
			t.Errorf("%s is %q", path, text)
		}
	}
	for _, path := range []string{"/home", "/home/user", "/data"} {
		if info, err := os.Lstat(dir + path); err != nil || !info.IsDir() {
			t.Errorf("%s: %v, %v", path, info, err)
		}
	}
	if left, _ := os.ReadDir(outside); len(left) > 0 {
		t.Errorf("a link was followed: %v", left)
	}
	if _, err := os.Lstat(dir + "/proc"); err == nil {
		t.Error("something was put below /proc")
	}
}

// TestCopies: a folder with mounts is copied with its links, owners and modes, but without devices and setuid bits.
func TestCopies(t *testing.T) {
	from, to := t.TempDir(), filepath.Join(t.TempDir(), "copy")
	l, err := net.Listen("unix", from+"/socket")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if err := errors.Join(os.Mkdir(from+"/d", 0o750), os.WriteFile(from+"/d/f", []byte("text"), 0o640), os.Chmod(from+"/d/f", 0o640|fs.ModeSetuid), os.Symlink("/etc/passwd", from+"/link")); err != nil {
		t.Fatal(err)
	}
	if err := copyTree(from, to); err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(to + "/d/f"); err != nil || string(text) != "text" {
		t.Errorf("%q, %v", text, err)
	}
	if info, err := os.Lstat(to + "/d/f"); err != nil || info.Mode() != 0o640 {
		t.Errorf("%v, %v", info, err)
	}
	if link, err := os.Readlink(to + "/link"); err != nil || link != "/etc/passwd" {
		t.Errorf("%q, %v", link, err)
	}
	if _, err := os.Lstat(to + "/socket"); err == nil {
		t.Error("a socket was copied")
	}
}

// TestUsageOfProcesses: if a container sees no control groups, its usage is the sum of its processes.
func TestUsageOfProcesses(t *testing.T) {
	proc := t.TempDir()
	stat := func(pid, name string, ticks, pages string) {
		if err := errors.Join(os.Mkdir(filepath.Join(proc, pid), 0o755), os.WriteFile(filepath.Join(proc, pid, "stat"), []byte(pid+" ("+name+") S 1 1 1 0 -1 0 0 0 0 0 "+ticks+" 100 0 0 20 0 1 0 5 1000 "+pages+" 0\n"), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	stat("1", "a ) b (", "100", "10")
	stat("22", "sh", "50", "1")
	if err := os.Mkdir(proc+"/sys", 0o755); err != nil {
		t.Fatal(err)
	}
	if u := processUsage(proc); u.PIDs != 2 || u.CPUSeconds != 3.5 || u.Memory != 11*int64(os.Getpagesize()) {
		t.Errorf("%+v", u)
	}
}
