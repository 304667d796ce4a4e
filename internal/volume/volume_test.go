package volume

import (
	"archive/tar"
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"hutch"
	"hutch/internal/caller"
	"hutch/internal/membudget"
)

func open(t *testing.T, dir string) *Store {
	t.Helper()
	s, err := Open(dir, Options{Room: 4 << 20})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func newStore(t *testing.T) (*Store, string) {
	t.Helper()
	dir := t.TempDir()
	s := open(t, dir)
	if _, err := s.Create("ada", hutch.VolumeRequest{Name: "data", Quota: 1}); err != nil {
		t.Fatal(err)
	}
	return s, dir
}

// archive makes a tar archive: a name that ends with / is a folder, "name -> target" a link, "name=text" a file.
func archive(t *testing.T, entries ...string) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, e := range entries {
		h, text := &tar.Header{Name: e, Mode: 0o6755, Typeflag: tar.TypeDir}, ""
		if name, target, ok := strings.Cut(e, " -> "); ok {
			h.Name, h.Linkname, h.Typeflag = name, target, tar.TypeSymlink
		} else if name, content, ok := strings.Cut(e, "="); ok {
			h.Name, h.Typeflag, h.Size, text = name, tar.TypeReg, int64(len(content)), content
		}
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		io.WriteString(w, text)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func packs(b []byte) func(io.Writer) error {
	return func(w io.Writer) error { _, err := w.Write(b); return err }
}

func save(t *testing.T, s *Store, entries ...string) {
	t.Helper()
	if err := s.Save(t.Context(), "ada", "data", packs(archive(t, entries...))); err != nil {
		t.Fatal(err)
	}
}

// content lists the entries of a volume in the form that archive takes, with unusual modes.
func content(t *testing.T, s *Store, at string) string {
	t.Helper()
	var b bytes.Buffer
	if err := s.ReadPath("ada", "data", at, &b); err != nil {
		return err.Error()
	}
	var list []string
	for r := tar.NewReader(&b); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return strings.Join(list, " ")
		}
		if err != nil {
			t.Fatal(err)
		}
		text, _ := io.ReadAll(r)
		e := h.Name
		switch h.Typeflag {
		case tar.TypeReg:
			e += "=" + string(text)
		case tar.TypeSymlink:
			e += "->" + h.Linkname
		}
		if h.Uid != 0 || h.Gid != 0 || h.Mode&^0o777 != 0 || h.Uname != "" {
			e += fmt.Sprintf("(owner %d, mode %o)", h.Uid, h.Mode)
		}
		list = append(list, e)
	}
}

func TestThereAndBack(t *testing.T) {
	s, dir := newStore(t)
	if got := content(t, s, ""); got != "" {
		t.Errorf("a new volume has %q", got)
	}
	save(t, s, "./", "./a=1", "deep/er/b=2", "l -> /etc/passwd")
	const want = "a=1 deep/ deep/er/ deep/er/b=2 l->/etc/passwd"
	if got := content(t, s, "/"); got != want {
		t.Errorf("saved %q, want %q", got, want)
	}
	for at, want := range map[string]string{"deep": "deep/ deep/er/ deep/er/b=2", "deep/er/": "er/ er/b=2", "/deep/er/b": "b=2", "a": "a=1", "l": "l->/etc/passwd"} {
		if got := content(t, s, at); got != want {
			t.Errorf("%s: %q, want %q", at, got, want)
		}
	}
	if got := content(t, s, "de"); !strings.Contains(got, "there is no") {
		t.Errorf("a path that is not there: %q", got)
	}
	v, err := s.Find("ada", "data")
	if err != nil || v.Version != 1 || v.Entries != 5 || v.Size == 0 {
		t.Errorf("%+v, %v", v, err)
	}
	save(t, s, "./a=1", "deep/er/b=2", "l -> /etc/passwd") // the same
	if v, _ := s.Find("ada", "data"); v.Version != 1 {
		t.Errorf("saved again without a change: version %d", v.Version)
	}
	save(t, s, "c=3")
	for _, s := range []*Store{s, open(t, dir)} {
		if got := content(t, s, ""); got != "c=3" {
			t.Errorf("replaced by %q", got)
		}
	}
}

func TestHostileArchives(t *testing.T) {
	s, dir := newStore(t)
	save(t, s, "good=1")
	noise := strings.Repeat("x", 1<<20)
	entry := func(h tar.Header) []byte {
		var b bytes.Buffer
		w := tar.NewWriter(&b)
		w.WriteHeader(&h)
		w.Close()
		return b.Bytes()
	}
	whole := archive(t, "a=1", "b=2")
	cases := map[string]struct {
		archive []byte
		want    hutch.Kind
	}{
		"dots":                  {archive(t, "../out=1"), hutch.Denied},
		"dots inside":           {archive(t, "a/../../out=1"), hutch.Denied},
		"absolute":              {archive(t, "/etc/cron.d/x=1"), hutch.Denied},
		"through a link":        {archive(t, "l -> /etc", "l/passwd=1"), hutch.Conflict},
		"through a file":        {archive(t, "f=1", "f/g=1"), hutch.Conflict},
		"link for a folder":     {archive(t, "d/", "d -> /etc"), hutch.Conflict},
		"folder for a link":     {archive(t, "d -> /etc", "d/"), hutch.Conflict},
		"twice":                 {archive(t, "f=1", "./f=2"), hutch.Conflict},
		"hard link":             {entry(tar.Header{Typeflag: tar.TypeLink, Name: "h", Linkname: "../../../etc/shadow"}), hutch.Denied},
		"device":                {entry(tar.Header{Typeflag: tar.TypeBlock, Name: "sda", Devmajor: 8}), hutch.Denied},
		"character device":      {entry(tar.Header{Typeflag: tar.TypeChar, Name: "mem", Devmajor: 1}), hutch.Denied},
		"pipe":                  {entry(tar.Header{Typeflag: tar.TypeFifo, Name: "p"}), hutch.Denied},
		"too large":             {archive(t, "big="+noise), hutch.Exhausted},
		"too large together":    {archive(t, "a="+noise[:600<<10], "b="+noise[:600<<10]), hutch.Exhausted},
		"says it is large":      {entry(tar.Header{Typeflag: tar.TypeReg, Name: "hole", Size: 1 << 40}), hutch.Exhausted},
		"cut off":               {whole[:1100], hutch.Invalid},
		"compressed":            {[]byte("\x1f\x8b\x08\x00 not a tar archive"), hutch.Invalid},
		"more after the end":    {append(archive(t, "a=1"), make([]byte, 2<<20)...), hutch.Invalid},
		"a part that is long":   {archive(t, strings.Repeat("n", 300)+"=1"), hutch.Denied},
		"a link without target": {entry(tar.Header{Typeflag: tar.TypeSymlink, Name: "l"}), hutch.Denied},
	}
	for name, c := range cases {
		err := s.Save(t.Context(), "ada", "data", packs(c.archive))
		if hutch.KindOf(err) != c.want {
			t.Errorf("%s: saved: %v, want %s", name, err, c.want)
		}
		if v, _ := s.Find("ada", "data"); v.Problem == "" {
			t.Errorf("%s: the record does not say what is wrong", name)
		}
		err = s.Write(t.Context(), "ada", "data", "", bytes.NewReader(c.archive), always)
		if hutch.KindOf(err) != c.want {
			t.Errorf("%s: written: %v, want %s", name, err, c.want)
		}
		if got := content(t, s, ""); got != "good=1" {
			t.Fatalf("%s: the volume has %.100q", name, got)
		}
	}
	save(t, s, "good=1")
	if v, _ := s.Find("ada", "data"); v.Problem != "" {
		t.Errorf("after a save that worked, the problem is %q", v.Problem)
	}
	if left := filesIn(t, dir); left != "v1.tar.zst volume.json" {
		t.Errorf("left: %s", left)
	}
}

func filesIn(t *testing.T, dir string) string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(dir, "*", "*", "*"))
	if err != nil {
		t.Fatal(err)
	}
	hidden, _ := filepath.Glob(filepath.Join(dir, "*", "*", ".*"))
	var names []string
	for _, p := range append(paths, hidden...) {
		names = append(names, filepath.Base(p))
	}
	return strings.Join(names, " ")
}

// TestManyEntries: an archive of a million empty files is refused as soon as it has more files than the limit.
func TestManyEntries(t *testing.T) {
	s := open(t, t.TempDir())
	s.entries = 10_000
	if _, err := s.Create("", hutch.VolumeRequest{Name: "data", Quota: 4096}); err != nil {
		t.Fatal(err)
	}
	written := 0
	err := s.Save(t.Context(), "", "data", func(out io.Writer) error {
		buffered := bufio.NewWriterSize(out, 1<<16)
		w := tar.NewWriter(buffered)
		for ; written < 1_000_000; written++ {
			if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: fmt.Sprintf("f%d", written)}); err != nil {
				return err
			}
		}
		return errors.Join(w.Close(), buffered.Flush())
	})
	if hutch.KindOf(err) != hutch.Exhausted || written > 11_000 {
		t.Errorf("%d files: %v", written, err)
	}
}

// TestPackFails: an archive is complete only if pack succeeds, even if the archive ends between two entries.
func TestPackFails(t *testing.T) {
	s, _ := newStore(t)
	save(t, s, "good=1")
	whole := archive(t, "a=1", "b=2")
	gone := errors.New("the agent is gone")
	err := s.Save(t.Context(), "ada", "data", func(w io.Writer) error {
		w.Write(whole[:1024]) // a, and nothing else
		return gone
	})
	if !errors.Is(err, gone) {
		t.Errorf("saved: %v", err)
	}
	if got := content(t, s, ""); got != "good=1" {
		t.Errorf("the volume has %q", got)
	}
}

func TestWrite(t *testing.T) {
	s, _ := newStore(t)
	save(t, s, "a=1", "d/b=2", "l -> a")
	write := func(at string, entries ...string) error {
		return s.Write(t.Context(), "ada", "data", at, bytes.NewReader(archive(t, entries...)), always)
	}
	if err := errors.Join(write("", "a=new", "c=3"), write("/d/e", "f=4"), write("d", "b=5")); err != nil {
		t.Fatal(err)
	}
	if got, want := content(t, s, ""), "d/ l->a a=new c=3 d/e/ d/e/f=4 d/b=5"; got != want {
		t.Errorf("written %q, want %q", got, want)
	}
	for at, entries := range map[string][]string{"l": {"x=1"}, "": {"d=now a file"}, "a": {"x=1"}, "c": {"x=1"}} {
		if err := write(at, entries...); hutch.KindOf(err) != hutch.Conflict {
			t.Errorf("into %q: %v", at, err)
		}
	}
	if err := write("../x", "y=1"); hutch.KindOf(err) != hutch.Invalid {
		t.Errorf("outside: %v", err)
	}
	held := hutch.Errorf(hutch.Conflict, "held")
	if err := s.Write(t.Context(), "ada", "data", "", bytes.NewReader(archive(t, "z=1")), func() error { return held }); !errors.Is(err, held) {
		t.Errorf("a volume in use was written: %v", err)
	}
	if got := content(t, s, "z"); !strings.Contains(got, "there is no") {
		t.Errorf("it has %q", got)
	}
}

// TestKilled: files that a killed server leaves are removed, and the last complete content stays.
func TestKilled(t *testing.T) {
	s, dir := newStore(t)
	save(t, s, "a=1")
	home := s.folder(key{"ada", "data"})
	for _, name := range []string{".new-123", "v2.tar.zst", ".volume.json-77"} {
		if err := os.WriteFile(filepath.Join(home, name), []byte("half"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	removed := filepath.Join(filepath.Dir(home), "removed") // without its record
	if err := errors.Join(os.Mkdir(removed, 0o700), os.WriteFile(filepath.Join(removed, "v1.tar.zst"), nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	s = open(t, dir)
	if got := content(t, s, ""); got != "a=1" {
		t.Errorf("it has %q", got)
	}
	if left := filesIn(t, dir); left != "v1.tar.zst volume.json" {
		t.Errorf("left: %s", left)
	}
}

func TestDamaged(t *testing.T) {
	s, dir := newStore(t)
	save(t, s, "a="+strings.Repeat("text ", 1000))
	path := filepath.Join(s.folder(key{"ada", "data"}), "v1.tar.zst")
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	b[len(b)/2] ^= 1
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	if got := content(t, s, ""); !strings.Contains(got, "damaged") {
		t.Errorf("read: %.100q", got)
	}
	if err := os.WriteFile(filepath.Join(filepath.Dir(path), recordFile), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	s = open(t, dir) // one damaged volume does not keep a server from starting
	if _, err := s.Create("ada", hutch.VolumeRequest{Name: "data"}); err == nil {
		t.Error("a damaged volume was replaced by a new one")
	}
}

func TestOwnersAndRoom(t *testing.T) {
	s, _ := newStore(t)
	for name, err := range map[string]error{
		"find":   second(s.Find("bob", "data")),
		"read":   s.ReadPath("bob", "data", "", io.Discard),
		"write":  s.Write(t.Context(), "bob", "data", "", bytes.NewReader(nil), always),
		"save":   s.Save(t.Context(), "bob", "data", packs(nil)),
		"remove": s.Remove(t.Context(), "bob", "data", false, always),
	} {
		if hutch.KindOf(err) != hutch.NotFound {
			t.Errorf("%s another's volume: %v", name, err)
		}
	}
	if list := s.List("bob"); len(list) != 0 {
		t.Errorf("bob sees %v", list)
	}
	if _, err := s.Create("ada", hutch.VolumeRequest{Name: "large", Quota: 4}); hutch.KindOf(err) != hutch.Exhausted {
		t.Errorf("over the room: %v", err)
	}
	for _, who := range []string{"bob", ""} {
		if _, err := s.Create(who, hutch.VolumeRequest{Name: "data", Quota: 4}); err != nil {
			t.Errorf("%q: %v", who, err)
		}
	}
	if _, err := s.Create("ada", hutch.VolumeRequest{Name: "data", Quota: 1}); hutch.KindOf(err) != hutch.Conflict {
		t.Errorf("twice: %v", err)
	}
	if err := s.Remove(t.Context(), "ada", "data", false, always); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(s.folder(key{"ada", "data"})); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the files of a volume that was removed: %v", err)
	}
}

func second(_ hutch.Volume, err error) error { return err }

func TestServiceSeesUses(t *testing.T) {
	s, _ := newStore(t)
	uses := []hutch.VolumeUse{{SandboxID: "box", Path: "/data", ReadOnly: true}}
	svc := NewService(ServiceOptions{Store: s, Uses: func(string) map[string][]hutch.VolumeUse { return map[string][]hutch.VolumeUse{"data": uses} }})
	ada := caller.WithOwner(t.Context(), caller.Owner{ID: "ada"})
	write := func() error {
		_, err := svc.WriteVolume(ada, "data", "", bytes.NewReader(archive(t, "a=1")))
		return err
	}
	if err := write(); err != nil {
		t.Errorf("a volume that is only read: %v", err)
	}
	uses[0].ReadOnly = false
	if err := write(); hutch.KindOf(err) != hutch.Conflict || !strings.Contains(err.Error(), `"box"`) {
		t.Errorf("a volume that is written to: %v", err)
	}
	if err := svc.DeleteVolume(ada, "data", false); hutch.KindOf(err) != hutch.Conflict || !strings.Contains(err.Error(), "box") {
		t.Errorf("removed while in use: %v", err)
	}
	list, err := svc.Volumes(ada)
	if err != nil || len(list) != 1 || len(list[0].Uses) != 1 {
		t.Errorf("%+v, %v", list, err)
	}
	uses = nil
	if err := svc.DeleteVolume(ada, "data", false); err != nil {
		t.Error(err)
	}
	if err := svc.DeleteVolume(context.WithoutCancel(ada), "../data", false); hutch.KindOf(err) != hutch.Invalid {
		t.Error(err)
	}
}

// The memory of uploads and downloads is charged to their owner, and bounded.
func TestMemoryOfRequests(t *testing.T) {
	s, _ := newStore(t)
	service := NewService(ServiceOptions{Store: s, Uses: func(string) map[string][]hutch.VolumeUse { return nil }})
	all := membudget.New(64<<20, writeMemory+2000)
	begin := func() (context.Context, func()) {
		account, end := all.Open("ada")
		return caller.WithOwner(caller.With(t.Context(), caller.Caller{Budget: account}), caller.Owner{ID: "ada"}), end
	}
	ctx, end := begin()
	long := strings.Repeat("x", 200)
	many := []string{}
	for i := range 20 {
		many = append(many, fmt.Sprintf("%s%d=", long, i))
	}
	if _, err := service.WriteVolume(ctx, "data", "", bytes.NewReader(archive(t, many...))); hutch.KindOf(err) != hutch.Exhausted {
		t.Errorf("names of 4000 bytes: %v", err)
	}
	if _, err := service.WriteVolume(ctx, "data", "", bytes.NewReader(archive(t, "f=1"))); hutch.KindOf(err) != hutch.Exhausted {
		t.Errorf("a second upload with the same budget: %v", err)
	}
	end()
	ctx, end = begin()
	defer end()
	if _, err := service.WriteVolume(ctx, "data", "", bytes.NewReader(archive(t, "f=1"))); err != nil {
		t.Errorf("after it: %v", err)
	}
	if err := service.ReadVolume(ctx, "data", "", io.Discard); hutch.KindOf(err) != hutch.Exhausted {
		t.Errorf("a download with the same budget: %v", err)
	}
	if got := content(t, s, ""); got != "f=1" {
		t.Errorf("the volume has %q", got)
	}
}

// A save that does not end in time is a problem, and the record says so. A cancelled save is not a problem.
func TestSlowSaveIsAProblem(t *testing.T) {
	s, _ := newStore(t)
	slow := func(ctx context.Context) (problem string, err error) {
		err = s.Save(ctx, "ada", "data", func(io.Writer) error { <-ctx.Done(); return context.Cause(ctx) })
		v, _ := s.Find("ada", "data")
		return v.Problem, err
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if problem, err := slow(ctx); problem != "" || err == nil {
		t.Errorf("cancelled: %v, and the problem is %q", err, problem)
	}
	ctx, cancel = context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if problem, err := slow(ctx); !strings.Contains(problem, "in time") || hutch.KindOf(err) != hutch.Timeout {
		t.Errorf("late: %v, and the problem is %q", err, problem)
	}
	save(t, s, "f=1")
	if v, _ := s.Find("ada", "data"); v.Problem != "" {
		t.Errorf("after a save the problem is %q", v.Problem)
	}
}

// TestLargeSavesTakeTurns: the names of an archive are in memory while it is saved, so one owner's volumes with very
// many names are saved one after the other. Small volumes, and volumes of other owners, do not wait.
func TestLargeSavesTakeTurns(t *testing.T) {
	t.Parallel()
	s, err := Open(t.TempDir(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range []key{{"ada", "a"}, {"ada", "b"}, {"ada", "small"}, {"bob", "a"}} {
		if _, err := s.Create(k.owner, hutch.VolumeRequest{Name: k.name, Quota: 60}); err != nil {
			t.Fatal(err)
		}
	}
	var many []string
	deep := strings.Repeat(strings.Repeat("d", 240)+"/", 15)
	for i := range largeNames/len(deep) + 1 {
		many = append(many, fmt.Sprintf("%s%d=", deep, i))
	}
	large := archive(t, many...)
	begun, release, done := make(chan bool), make(chan bool), make(chan error)
	go func() {
		done <- s.Save(t.Context(), "ada", "a", func(w io.Writer) error {
			if _, err := w.Write(large[:len(large)-1024]); err != nil {
				return err
			}
			close(begun)
			<-release
			_, err := w.Write(large[len(large)-1024:])
			return err
		})
	}()
	<-begun
	soon, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if err := s.Save(soon, "ada", "b", packs(large)); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a second large one meanwhile: %v", err)
	}
	if err := s.Save(t.Context(), "ada", "small", packs(archive(t, "f=1"))); err != nil {
		t.Errorf("a small one: %v", err)
	}
	if err := s.Save(t.Context(), "bob", "a", packs(large)); err != nil {
		t.Errorf("another owner's: %v", err)
	}
	close(release)
	if err := <-done; err != nil {
		t.Error(err)
	}
	if err := s.Save(t.Context(), "ada", "b", packs(large)); err != nil {
		t.Errorf("afterwards: %v", err)
	}
}
