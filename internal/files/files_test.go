package files_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"hutch"
	"hutch/internal/files"
)

// testFolder is a folder with its FS.
type testFolder struct {
	*testing.T
	*files.FS
}

func newTestFolder(t *testing.T) testFolder {
	t.Parallel()
	return testFolder{t, &files.FS{Dir: t.TempDir()}}
}

func (d testFolder) put(name, content string) {
	d.Helper()
	if _, err := d.WriteFile(d.Context(), "", hutch.WriteRequest{Path: name, Parents: true}, strings.NewReader(content)); err != nil {
		d.Fatalf("write %q: %v", name, err)
	}
}

func (d testFolder) get(name string) string {
	d.Helper()
	var b bytes.Buffer
	if _, err := d.ReadFile(d.Context(), "", hutch.ReadRequest{Path: name}, &b); err != nil {
		d.Fatalf("read %q: %v", name, err)
	}
	return b.String()
}

func (d testFolder) at(name string) string { return filepath.Join(d.Dir, name) }

func (d testFolder) must(err error) {
	d.Helper()
	if err != nil {
		d.Fatal(err)
	}
}

// verbs are all operations that open a path.
func (d testFolder) verbs(p string) map[string]func(context.Context) error {
	return map[string]func(context.Context) error{
		"read": func(ctx context.Context) error {
			_, err := d.ReadFile(ctx, "", hutch.ReadRequest{Path: p}, io.Discard)
			return err
		},
		"write": func(ctx context.Context) error {
			_, err := d.WriteFile(ctx, "", hutch.WriteRequest{Path: p}, strings.NewReader("x"))
			return err
		},
		"append": func(ctx context.Context) error {
			_, err := d.WriteFile(ctx, "", hutch.WriteRequest{Path: p, Append: true}, strings.NewReader("x"))
			return err
		},
		"edit": func(ctx context.Context) error {
			_, err := d.EditFile(ctx, "", hutch.EditRequest{Path: p, Old: "x", New: "y"})
			return err
		},
		"list": func(ctx context.Context) error {
			return d.ListFiles(ctx, "", hutch.ListRequest{Path: p}, func(hutch.FileInfo) error { return nil })
		},
		"watch": func(ctx context.Context) error {
			return d.Watch(ctx, "", hutch.WatchRequest{Path: p + "/."}, func(hutch.FileEvent) error { return nil })
		},
		"pack": func(ctx context.Context) error {
			return d.Pack(ctx, "", hutch.PackRequest{Dir: p}, io.Discard)
		},
	}
}

// answered returns the error of an operation that must not block.
func (d testFolder) answered(what string, verb func(context.Context) error) error {
	d.Helper()
	ctx, cancel := context.WithTimeout(d.Context(), 20*time.Second)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- verb(ctx) }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		d.Fatalf("%s waits", what)
		return nil
	}
}

// odd are names that often break programs.
var odd = []string{"line\nfeed", "carriage\rreturn", "\x1b[31m", "-rf", " ", "...", "a\\..\\b", "*", "\xff\xfe", strings.Repeat("n", 255)}

func TestOddNames(t *testing.T) {
	d := newTestFolder(t)
	for _, name := range odd {
		d.put("d/"+name, name)
		if got, err := os.ReadFile(d.at("d/" + name)); string(got) != name || err != nil {
			t.Errorf("%q: %q, %v", name, got, err)
		}
		if got := d.get("d/../d/./" + name); got != name {
			t.Errorf("%q: %q", name, got)
		}
	}
	var names []string
	err := d.ListFiles(t.Context(), "", hutch.ListRequest{Path: "d", Hidden: true}, func(f hutch.FileInfo) error {
		names = append(names, f.Name)
		return nil
	})
	if want := slices.Sorted(slices.Values(odd)); err != nil || !slices.Equal(names, want) {
		t.Errorf("%q, %v; want %q", names, err, want)
	}
}

// The meaning of .. depends on links, so the kernel must resolve it.
func TestParents(t *testing.T) {
	d := newTestFolder(t)
	d.put("real/deep/f", "f")
	d.put("real/g", "beside the target")
	d.put("g", "beside the link")
	d.must(os.Symlink("real/deep", d.at("link")))
	if got := d.get("link/../g"); got != "beside the target" {
		t.Errorf("link/../g is %q", got)
	}
	for _, p := range []string{"..", ".", "real/..", "/", "nothing/.."} {
		for _, verb := range []string{"read", "write", "append"} {
			if err := d.verbs(p)[verb](t.Context()); err == nil {
				t.Errorf("%s of %s", verb, p)
			}
		}
		if err := d.Delete(t.Context(), "", p, true); err == nil {
			t.Errorf("delete of %s", p)
		}
	}
	for range 20 { // far above the root there is only the root
		d.Dir += "/.."
	}
	if info, err := d.Stat(t.Context(), "", "."); err != nil || info.Path != "/" {
		t.Errorf("%+v, %v", info, err)
	}
}

func TestLinksThatLeadNowhere(t *testing.T) {
	d := newTestFolder(t)
	d.must(os.Symlink("self", d.at("self")))
	d.must(os.Symlink("pong", d.at("ping")))
	d.must(os.Symlink("ping", d.at("pong")))
	d.must(os.Mkdir(d.at("dir"), 0o755))
	d.must(os.Symlink("../dir/down", d.at("dir/down")))
	d.put("end", "x")
	last := "end"
	for i := range 60 { // no loop, but more links than the kernel follows
		name := fmt.Sprintf("chain%d", i)
		d.must(os.Symlink(last, d.at(name)))
		last = name
	}
	for _, p := range []string{"self", "ping", "pong", "dir/down", "dir/down/f", "self/f", last} {
		for name, verb := range d.verbs(p) {
			if err := d.answered(name+" of "+p, verb); !errors.Is(err, hutch.Invalid) {
				t.Errorf("%s of %s: %v, want one that is invalid", name, p, err)
			}
		}
	}
	// A walk does not follow links, so it ends.
	n := 0
	if err := d.ListFiles(t.Context(), "", hutch.ListRequest{Path: ".", Recursive: true}, func(hutch.FileInfo) error { n++; return nil }); err != nil || n != 66 {
		t.Errorf("%d entries, %v", n, err)
	}
	if err := d.Copy(t.Context(), "", "dir", "copy", false); err != nil {
		t.Error(err)
	}
	if err := d.Delete(t.Context(), "", "self", false); err != nil {
		t.Error(err)
	}
}

// No operation waits for the other end of a pipe, or triggers a device.
func TestPipesSocketsAndDevices(t *testing.T) {
	d := newTestFolder(t)
	d.must(unix.Mkfifo(d.at("fifo"), 0o666))
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: d.at("socket"), Net: "unix"})
	d.must(err)
	defer ln.Close()
	d.must(os.Symlink("fifo", d.at("link")))
	for _, p := range []string{"fifo", "socket", "link", "/dev/null", "/dev/zero", "/dev/tty"} {
		for name, verb := range d.verbs(p) {
			if name == "write" && strings.HasPrefix(p, "/dev/") && os.Geteuid() == 0 {
				continue // a faulty write of root would replace the device with a file
			}
			if err := d.answered(name+" of "+p, verb); err == nil {
				t.Errorf("%s of %s", name, p)
			}
		}
	}
	d.put("f", "needle")
	n := 0
	search := func(ctx context.Context) error {
		return d.SearchFiles(ctx, "", hutch.SearchRequest{Path: ".", Pattern: "needle"}, func(hutch.Match) error { n++; return nil })
	}
	if err := d.answered("a search beside a pipe", search); err != nil || n != 1 {
		t.Errorf("%d matches, %v", n, err)
	}
	for _, format := range []hutch.ArchiveFormat{hutch.Tar, hutch.TarGz, hutch.Zip} {
		pack := func(ctx context.Context) error {
			return d.Pack(ctx, "", hutch.PackRequest{Dir: ".", Format: format}, io.Discard)
		}
		if err := d.answered("packing a pipe", pack); err != nil {
			t.Errorf("%s: %v", format, err)
		}
	}
}

// meddler is a reader that calls do before the end of the data.
type meddler struct {
	io.Reader
	do func()
}

func (m *meddler) Read(b []byte) (int, error) {
	n, err := m.Reader.Read(b)
	if err == io.EOF && m.do != nil {
		m.do()
		m.do = nil
	}
	return n, err
}

func TestWhatIsFoundOnceIsWorkedOn(t *testing.T) {
	d := newTestFolder(t)
	d.put("dir/f", "old")
	d.put("other/f", "other")
	swap := func() {
		d.must(os.Rename(d.at("dir"), d.at("moved")))
		d.must(os.Symlink("other", d.at("dir")))
	}
	_, err := d.WriteFile(t.Context(), "", hutch.WriteRequest{Path: "dir/f"}, &meddler{strings.NewReader("new"), swap})
	if got := d.get("moved/f") + d.get("other/f"); got != "newother" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	// If two programs create the same file, exactly one succeeds.
	d.Dir = t.TempDir()
	taken := &meddler{strings.NewReader("mine"), func() { d.put("f", "yours") }}
	_, err = d.WriteFile(t.Context(), "", hutch.WriteRequest{Path: "f", Create: true}, taken)
	if got := d.get("f"); got != "yours" || !errors.Is(err, hutch.Conflict) {
		t.Errorf("%q, %v", got, err)
	}
	if left, _ := os.ReadDir(d.Dir); len(left) != 1 {
		t.Errorf("left behind: %v", left)
	}
}

func TestTheSecretIsNotRead(t *testing.T) {
	d := newTestFolder(t)
	d.Secret = fmt.Sprintf("/proc/%d", os.Getpid())
	thread := fmt.Sprintf("/proc/%d", unix.Gettid()) // a thread that is in no list
	for _, p := range []string{"/proc/self/environ", d.Secret + "/environ", "/proc/self/task/../environ", thread + "/maps"} {
		if _, err := d.ReadFile(t.Context(), "", hutch.ReadRequest{Path: p}, io.Discard); !errors.Is(err, hutch.Denied) {
			t.Errorf("%s: %v", p, err)
		}
		if err := d.Chmod(t.Context(), "", p, 0o600); !errors.Is(err, hutch.Denied) {
			t.Errorf("chmod %s: %v", p, err)
		}
	}
}

// Open files of a process can be reached only by their names, and by no link of /proc.
func TestLinksToOpenFilesLeadNowhere(t *testing.T) {
	d := newTestFolder(t)
	d.put("f", "x")
	file, err := os.Open(d.at("f"))
	d.must(err)
	defer file.Close()
	d.must(os.Symlink("/proc/self/root", d.at("root")))
	for _, p := range []string{"/proc/self/exe", fmt.Sprintf("/proc/self/fd/%d", file.Fd()), "/proc/self/root" + d.at("f"), "root" + d.at("f")} {
		for verb, call := range map[string]func() error{
			"read": func() error {
				_, err := d.ReadFile(t.Context(), "", hutch.ReadRequest{Path: p}, io.Discard)
				return err
			},
			"chmod": func() error { return d.Chmod(t.Context(), "", p, 0) },
			"append": func() error {
				_, err := d.WriteFile(t.Context(), "", hutch.WriteRequest{Path: p, Append: true}, strings.NewReader("y"))
				return err
			},
			"mkdir": func() error { return d.Mkdir(t.Context(), "", p+"/new", true) },
		} {
			if err := call(); err == nil {
				t.Errorf("%s of %s did not fail", verb, p)
			}
		}
	}
	if info, err := os.Stat(d.at("f")); err != nil || info.Mode() != 0o644 || d.get("f") != "x" {
		t.Errorf("%v, %v", info, err)
	}
}

// A folder of 100,000 entries is listed about as fast as by os.ReadDir, and
// within limits.
func TestFolderOfManyFiles(t *testing.T) {
	d := newTestFolder(t)
	const many = 100_000
	if shm, err := os.MkdirTemp("/dev/shm", "hutch-"); err == nil { // on a disk, creating so many takes a minute
		d.Dir = shm
		t.Cleanup(func() { os.RemoveAll(shm) })
	}
	d.must(os.Mkdir(d.at("dir"), 0o755))
	for i := range many {
		d.must(os.Symlink("x", d.at(fmt.Sprintf("dir/%06d", i))))
	}
	begin := time.Now()
	entries, err := os.ReadDir(d.at("dir"))
	for _, e := range entries {
		e.Info()
	}
	bare := time.Since(begin)
	d.must(err)
	for limit, want := range map[int]int{0: 10_000, 1: 1, many - 1: many - 1, many: many} {
		n := 0
		begin := time.Now()
		err := d.ListFiles(t.Context(), "", hutch.ListRequest{Path: "dir", Limit: limit}, func(f hutch.FileInfo) error {
			if f.Name != fmt.Sprintf("%06d", n) {
				t.Fatalf("entry %d is %s", n, f.Name)
			}
			n++
			return nil
		})
		if n != want || (n < many) != errors.Is(err, hutch.Exhausted) || n == many && err != nil {
			t.Errorf("limit %d: %d entries, %v", limit, n, err)
		}
		if took := time.Since(begin); took > 20*bare+time.Second {
			t.Errorf("limit %d: %v, and os.ReadDir takes %v", limit, took, bare)
		}
	}
}

// A walk over many files ends in time. It returns what it has found, and an error that says that there is more.
func TestWalksEndInTime(t *testing.T) {
	d := newTestFolder(t)
	for i := range 300 {
		d.put(fmt.Sprintf("d%d/file", i), "text\n")
	}
	d.WalkTime = 50 * time.Millisecond
	found := 0
	slow := func() error { found++; time.Sleep(time.Millisecond); return nil }
	for name, walk := range map[string]func() error{
		"list": func() error {
			return d.ListFiles(d.Context(), "", hutch.ListRequest{Path: ".", Glob: "**/file"}, func(hutch.FileInfo) error { return slow() })
		},
		"search": func() error {
			return d.SearchFiles(d.Context(), "", hutch.SearchRequest{Path: ".", Pattern: "text"}, func(hutch.Match) error { return slow() })
		},
	} {
		found = 0
		err := walk()
		if !errors.Is(err, hutch.Exhausted) || !strings.Contains(err.Error(), "not all") || found == 0 || found == 300 {
			t.Errorf("%s: %d found, %v", name, found, err)
		}
	}
}
