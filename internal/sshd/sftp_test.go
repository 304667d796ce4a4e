package sshd_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pkg/sftp"

	"hutch"
)

func (v *tenant) files(t *testing.T) *sftp.Client {
	t.Helper()
	c, err := sftp.NewClient(v.connect(t, "box"), sftp.UseConcurrentWrites(true), sftp.UseConcurrentReads(true))
	must(t, err)
	t.Cleanup(func() { c.Close() })
	return c
}

// folder returns a folder for one test: the fake sandbox has the files of this machine.
func folder(t *testing.T) string { return t.TempDir() }

func noise(n int) []byte {
	b := make([]byte, n)
	r := rand.NewChaCha8([32]byte{1})
	r.Read(b)
	return b
}

func write(t *testing.T, c *sftp.Client, name string, flags int, offset int64, data []byte) error {
	t.Helper()
	f, err := c.OpenFile(name, flags)
	if err != nil {
		return err
	}
	if _, err := f.WriteAt(data, offset); err != nil {
		f.Close()
		return err
	}
	return f.Close()
}

func read(t *testing.T, c *sftp.Client, name string) []byte {
	t.Helper()
	f, err := c.Open(name)
	must(t, err)
	defer f.Close()
	var b bytes.Buffer
	_, err = f.WriteTo(&b)
	must(t, err)
	return b.Bytes()
}

// TestFiles: operations of a client change the files of the sandbox, byte for byte.
func TestFiles(t *testing.T) {
	t.Parallel()
	c, dir := open(t).ada(t).files(t), folder(t)
	name, data := dir+"/a file", noise(5<<20+77)
	must(t, write(t, c, name, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0, data))
	if got := read(t, c, name); !bytes.Equal(got, data) {
		t.Errorf("read %d bytes, and others", len(got))
	}
	must(t, write(t, c, name, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0, []byte("short")))
	must(t, write(t, c, name, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 5, []byte(" and more")))
	must(t, write(t, c, name, os.O_WRONLY, 14, []byte("!")))
	if got := read(t, c, name); string(got) != "short and more!" {
		t.Errorf("%q", got)
	}
	must(t, write(t, c, dir+"/empty", os.O_WRONLY|os.O_CREATE, 0, nil))
	must(t, c.Mkdir(dir+"/d"))
	must(t, c.Symlink("../a file", dir+"/d/link"))
	must(t, c.Link(name, dir+"/hard"))
	if target, err := c.ReadLink(dir + "/d/link"); target != "../a file" {
		t.Errorf("%q %v", target, err)
	}
	if info, err := c.Stat(dir + "/d/link"); err != nil || info.Size() != 15 || !info.Mode().IsRegular() {
		t.Errorf("%v %v", info, err)
	}
	if info, err := c.Lstat(dir + "/d/link"); err != nil || info.Mode()&fs.ModeSymlink == 0 {
		t.Errorf("%v %v", info, err)
	}
	if got := read(t, c, dir+"/d/link"); string(got) != "short and more!" {
		t.Errorf("over a link: %q", got)
	}
	must(t, c.Chmod(name, 0o640))
	at := time.Unix(1_500_000_000, 0)
	must(t, c.Chtimes(name, at, at))
	must(t, c.Truncate(name, 5))
	must(t, c.Chtimes(name, at, at))
	if info, err := c.Stat(name); err != nil || info.Mode().Perm() != 0o640 || !info.ModTime().Equal(at) || info.Size() != 5 {
		t.Errorf("%v %v", info, err)
	}
	must(t, c.Truncate(name, 0))
	must(t, c.Rename(name, dir+"/b"))
	if err := c.Rename(dir+"/b", dir+"/empty"); err == nil {
		t.Error("a file took the place of another")
	}
	must(t, c.PosixRename(dir+"/b", dir+"/empty"))
	list, err := c.ReadDir(dir)
	must(t, err)
	var names []string
	for _, info := range list {
		names = append(names, info.Name())
	}
	if slices.Sort(names); strings.Join(names, " ") != "d empty hard" {
		t.Errorf("%q", names)
	}
	for what, err := range map[string]error{"a folder that is not empty": c.RemoveDirectory(dir + "/d"), "a folder as a file": removeFile(c, dir+"/d"), "a file over a folder": c.PosixRename(dir+"/hard", dir+"/d")} {
		if err == nil {
			t.Errorf("%s: done", what)
		}
	}
	must(t, c.Remove(dir+"/d/link"))
	must(t, c.RemoveDirectory(dir+"/d"))
	for what, err := range map[string]error{
		"open": func() error { _, err := c.Open(dir + "/none"); return err }(), "stat": func() error { _, err := c.Stat(dir + "/none"); return err }(),
		"list": func() error { _, err := c.ReadDir(dir + "/none"); return err }(), "write": write(t, c, dir+"/none/x", os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0, []byte("x")),
	} {
		if !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s of what is not there: %v", what, err)
		}
	}
	if _, err := c.ReadDir(dir + "/hard"); err == nil {
		t.Error("a file was listed")
	}
	if err := write(t, c, dir+"/hard", os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0, []byte("x")); err == nil {
		t.Error("a file was made twice")
	}
	if wd, err := c.Getwd(); wd != "/workspace" {
		t.Errorf("begins in %q %v", wd, err)
	}
}

func removeFile(c *sftp.Client, name string) error {
	_, err := c.Stat(name)
	if err != nil {
		return err
	}
	return c.Remove(name + "/.")
}

// TestOffsets: a file that is written and read in any order behaves like one of this machine.
func TestOffsets(t *testing.T) {
	t.Parallel()
	c, dir := open(t).ada(t).files(t), folder(t)
	mine, err := os.Create(dir + "/mine")
	must(t, err)
	defer mine.Close()
	theirs, err := c.OpenFile(dir+"/theirs", os.O_RDWR|os.O_CREATE|os.O_TRUNC)
	must(t, err)
	r := rand.New(rand.NewPCG(1, 2))
	for i := range 60 {
		offset, data := int64(r.IntN(4<<20)), noise(1+r.IntN(100_000))
		if i%3 > 0 { // two of three writes begin at the end of the file
			info, _ := mine.Stat()
			offset = info.Size()
		}
		_, err := mine.WriteAt(data, offset)
		must(t, err)
		if _, err = theirs.WriteAt(data, offset); err != nil {
			t.Fatalf("write %d at %d: %v", len(data), offset, err)
		}
		if i%10 == 9 {
			at, got, want := int64(r.IntN(2<<20)), make([]byte, 50_000), make([]byte, 50_000)
			n, _ := mine.ReadAt(want, at)
			m, err := theirs.ReadAt(got, at)
			if m != n || !bytes.Equal(got, want) || err != nil && err != io.EOF {
				t.Fatalf("read at %d: %d and %d, %v", at, n, m, err)
			}
		}
	}
	must(t, theirs.Close())
	want, err := os.ReadFile(dir + "/mine")
	must(t, err)
	if got := read(t, c, dir+"/theirs"); !bytes.Equal(got, want) {
		t.Errorf("%d bytes, want %d", len(got), len(want))
	}
}

// TestWhileWritten: a client can read and set the attributes of a file that it is writing.
func TestWhileWritten(t *testing.T) {
	t.Parallel()
	c, dir := open(t).ada(t).files(t), folder(t)
	f, err := c.Create(dir + "/new")
	must(t, err)
	_, err = f.Write(noise(100_000))
	must(t, err)
	must(t, f.Chmod(0o600))
	at := time.Unix(1_400_000_000, 0)
	must(t, c.Chtimes(dir+"/new", at, at))
	if info, err := f.Stat(); err != nil || info.Size() != 100_000 {
		t.Errorf("%v %v", info, err)
	}
	must(t, f.Close())
	if info, err := c.Stat(dir + "/new"); err != nil || info.Mode().Perm() != 0o600 || !info.ModTime().Equal(at) || info.Size() != 100_000 {
		t.Errorf("%v %v", info, err)
	}
}

// TestSizeWhileWritten: a client can set the size of a file that it is writing, as scp does at the end of each file. If
// the file has that size already, a token for files is enough.
func TestSizeWhileWritten(t *testing.T) {
	t.Parallel()
	h := open(t)
	ada := h.ada(t)
	v := h.tenant(t, hutch.TokenRequest{Name: "files", Scopes: []hutch.Scope{hutch.ScopeFiles}})
	_, err := h.Share(ada.ctx, "box", "files", hutch.WriteAccess)
	must(t, err)
	data := noise(100_000)
	for _, test := range []struct {
		by      *tenant
		write   int
		size    int64
		more, n int
	}{{v, 0, 0, 0, 0}, {v, 100_000, 100_000, 0, 100_000}, {ada, 100_000, 10, 0, 10}, {ada, 100, 1000, 0, 1000}, {ada, 100_000, 50_000, 1000, 101_000}, {v, 70_000, 70_000, 1000, 71_000}} {
		c, name := test.by.files(t), folder(t)+"/new"
		f, err := c.OpenFile(name, os.O_WRONLY|os.O_CREATE)
		must(t, err)
		_, err = f.WriteAt(data[:test.write], 0)
		must(t, err)
		if err := f.Truncate(test.size); err != nil {
			t.Errorf("%d bytes, size %d: %v", test.write, test.size, err)
		}
		if test.more > 0 {
			_, err = f.WriteAt(data[:test.more], int64(test.write))
			must(t, err)
		}
		must(t, f.Close())
		got := read(t, c, name)
		if len(got) != test.n || !bytes.Equal(got[:min(test.write, int(test.size))], data[:min(test.write, int(test.size))]) {
			t.Errorf("%d bytes, size %d: the file has %d", test.write, test.size, len(got))
		}
	}
}

// TestBrokenUpload: what had arrived when the connection broke is kept, and the client resumes after it.
func TestBrokenUpload(t *testing.T) {
	t.Parallel()
	ada := open(t).ada(t)
	dir, data := folder(t), noise(3<<20)
	conn, err := ada.dial("box")
	must(t, err)
	c, err := sftp.NewClient(conn)
	must(t, err)
	f, err := c.Create(dir + "/big")
	must(t, err)
	_, err = f.Write(data[:2<<20])
	must(t, err)
	conn.Close()
	again := ada.files(t)
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		if info, err := again.Stat(dir + "/big"); err == nil && info.Size() == 2<<20 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("nothing was kept")
		}
	}
	must(t, write(t, again, dir+"/big", os.O_WRONLY|os.O_APPEND, 2<<20, data[2<<20:]))
	if !bytes.Equal(read(t, again, dir+"/big"), data) {
		t.Error("the file is another")
	}
}

// TestLongFolder: a folder of any length is listed.
func TestLongFolder(t *testing.T) {
	t.Parallel()
	c, dir := open(t).ada(t).files(t), folder(t)
	for i := range 1234 {
		must(t, os.WriteFile(path.Join(dir, fmt.Sprint(".", i)), nil, 0o600))
	}
	if list, err := c.ReadDir(dir); len(list) != 1234 || err != nil {
		t.Errorf("%d %v", len(list), err)
	}
}

// TestManyHandles: the number of files that a client has open is bounded, and closed files do not count.
func TestManyHandles(t *testing.T) {
	t.Parallel()
	c, dir := open(t).ada(t).files(t), folder(t)
	must(t, os.WriteFile(dir+"/x", []byte("x"), 0o600))
	for range 3 {
		var handles []*sftp.File
		for {
			f, err := c.Open(dir + "/x")
			if err != nil {
				break
			}
			if handles = append(handles, f); len(handles) > 200 {
				t.Fatal("200 files are open")
			}
		}
		if len(handles) < 10 {
			t.Errorf("only %d files can be open", len(handles))
		}
		for _, f := range handles {
			f.Close()
		}
	}
}

// TestFilesScope: the scope files is enough for all operations except those that run commands.
func TestFilesScope(t *testing.T) {
	t.Parallel()
	h := open(t)
	ada := h.ada(t)
	v := h.tenant(t, hutch.TokenRequest{Name: "files", Scopes: []hutch.Scope{hutch.ScopeFiles}})
	_, err := h.Share(ada.ctx, "box", "files", hutch.WriteAccess)
	must(t, err)
	c, dir := v.files(t), folder(t)
	must(t, write(t, c, dir+"/x", os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0, []byte("text")))
	must(t, write(t, c, dir+"/x", os.O_WRONLY|os.O_APPEND, 4, []byte("s")))
	must(t, c.Chmod(dir+"/x", 0o600))
	must(t, c.Rename(dir+"/x", dir+"/y"))
	if got := read(t, c, dir+"/y"); string(got) != "texts" {
		t.Errorf("%q", got)
	}
	for what, err := range map[string]error{"a link": c.Symlink("y", dir+"/l"), "times": c.Chtimes(dir+"/y", time.Now(), time.Now()), "the middle": write(t, c, dir+"/y", os.O_WRONLY, 1, []byte("x"))} {
		if !errors.Is(err, os.ErrPermission) {
			t.Errorf("%s: %v", what, err)
		}
	}
}
