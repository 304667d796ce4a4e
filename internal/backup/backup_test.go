package backup

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/minio/minio-go/v7/pkg/credentials"

	"hutch"
	"hutch/internal/caller"
	"hutch/internal/hutchtest"
	"hutch/internal/hutchtest/s3"
	"hutch/internal/objects"
)

func TestMain(m *testing.M) { hutchtest.Main(m) }

// rig returns the backups, in a folder, of a service with the sandbox "box".
func rig(t *testing.T, opt Options) (*Backups, hutch.Service, string) {
	t.Helper()
	e := hutchtest.Engine(t, "native", nil)
	if _, err := e.Create(t.Context(), hutch.CreateRequest{ID: "box"}); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	store, err := objects.OpenFolder(dir)
	if err != nil {
		t.Fatal(err)
	}
	opt.Service, opt.Store = e, store
	return New(opt), e, dir
}

func write(t *testing.T, svc hutch.Service, path, text string) {
	t.Helper()
	if _, err := svc.WriteFile(t.Context(), "box", hutch.WriteRequest{Path: path, Parents: true}, strings.NewReader(text)); err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, svc hutch.Service, path string) string {
	t.Helper()
	var b bytes.Buffer
	if _, err := svc.ReadFile(t.Context(), "box", hutch.ReadRequest{Path: path}, &b); err != nil {
		return err.Error()
	}
	return b.String()
}

func backUp(t *testing.T, b *Backups, ctx context.Context, req hutch.BackupRequest) hutch.Backup {
	t.Helper()
	made, err := b.Backup(ctx, "box", req)
	if err != nil {
		t.Fatal(err)
	}
	return made
}

func TestThereAndBack(t *testing.T) {
	b, svc, _ := rig(t, Options{})
	write(t, svc, "app/main.py", "print(1)")
	write(t, svc, "app/.hidden/x", "hidden")
	made := backUp(t, b, t.Context(), hutch.BackupRequest{Dir: "app", Name: "first"})
	if made.Name != "first" || made.SandboxID != "box" || filepath.Base(made.Dir) != "app" || made.Size == 0 || made.ExpiresAt != nil {
		t.Errorf("made %+v", made)
	}
	list, err := b.Backups(t.Context())
	if err != nil || len(list) != 1 || list[0] != made {
		t.Errorf("listed %+v, %v; want %+v", list, err, made)
	}

	write(t, svc, "app/main.py", "print(2)")
	write(t, svc, "app/later", "not in the backup")
	if err := b.RestoreBackup(t.Context(), made.ID, hutch.RestoreBackupRequest{SandboxID: "box"}); err != nil {
		t.Fatal(err)
	}
	if got := read(t, svc, "app/main.py") + read(t, svc, "app/.hidden/x"); got != "print(1)hidden" {
		t.Errorf("restored %q", got)
	}
	if _, err := svc.Stat(t.Context(), "box", "app/later"); hutch.KindOf(err) != hutch.NotFound {
		t.Errorf("what was not in the backup is still there: %v", err)
	}
	if got := names(t, svc, "app"); got != ".hidden main.py" {
		t.Errorf("the folder holds %s", got)
	}
	// A backup can be restored elsewhere, into a folder that is created.
	if err := b.RestoreBackup(t.Context(), made.ID, hutch.RestoreBackupRequest{SandboxID: "box", Dir: "deep/copy"}); err != nil {
		t.Fatal(err)
	}
	if got := read(t, svc, "deep/copy/main.py"); got != "print(1)" {
		t.Errorf("restored %q", got)
	}

	if err := b.DeleteBackup(t.Context(), made.ID); err != nil {
		t.Fatal(err)
	}
	for name, err := range map[string]error{
		"delete":  b.DeleteBackup(t.Context(), made.ID),
		"restore": b.RestoreBackup(t.Context(), made.ID, hutch.RestoreBackupRequest{SandboxID: "box"}),
	} {
		if hutch.KindOf(err) != hutch.NotFound {
			t.Errorf("%s what is gone: %v", name, err)
		}
	}
}

func names(t *testing.T, svc hutch.Service, dir string) string {
	t.Helper()
	var all []string
	err := svc.ListFiles(t.Context(), "box", hutch.ListRequest{Path: dir, Hidden: true}, func(f hutch.FileInfo) error {
		all = append(all, f.Name)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(all, " ")
}

func TestDamaged(t *testing.T) {
	for _, c := range []struct {
		name  string
		spoil func(archive []byte) []byte
	}{
		{"cut short", func(b []byte) []byte { return b[:len(b)/2] }},
		{"cut at the end", func(b []byte) []byte { return b[:len(b)-1] }},
		{"another byte", func(b []byte) []byte { b[len(b)/2] ^= 1; return b }},
		{"longer", func(b []byte) []byte { return append(b, 0) }},
		{"twice", func(b []byte) []byte { return append(b, b...) }},
		{"empty", func([]byte) []byte { return nil }},
		{"no archive", func([]byte) []byte { return []byte("hello") }},
		{"gone", nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			b, svc, dir := rig(t, Options{})
			write(t, svc, "app/a", rand.Text()+strings.Repeat("a", 1000))
			made := backUp(t, b, t.Context(), hutch.BackupRequest{Dir: "app"})
			write(t, svc, "app/a", "newer")
			path := filepath.Join(dir, folder(t.Context()), made.ID+archiveSuffix)
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if c.spoil == nil {
				err = os.Remove(path)
			} else {
				err = os.WriteFile(path, c.spoil(text), 0o600)
			}
			if err != nil {
				t.Fatal(err)
			}
			err = b.RestoreBackup(t.Context(), made.ID, hutch.RestoreBackupRequest{SandboxID: "box"})
			if err == nil || !strings.Contains(err.Error(), "is damaged") {
				t.Errorf("restored: %v", err)
			}
			if got := read(t, svc, "app/a"); got != "newer" || names(t, svc, "app") != "a" {
				t.Errorf("the folder is not as it was: %q, %s", got, names(t, svc, "app"))
			}
		})
	}
}

func TestDamagedRecord(t *testing.T) {
	b, svc, dir := rig(t, Options{})
	write(t, svc, "app/a", "a")
	made := backUp(t, b, t.Context(), hutch.BackupRequest{Dir: "app"})
	path := filepath.Join(dir, folder(t.Context()), made.ID+recordSuffix)
	if err := os.WriteFile(path, []byte(`{"version":1`), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := b.RestoreBackup(t.Context(), made.ID, hutch.RestoreBackupRequest{SandboxID: "box"}); err == nil || !strings.Contains(err.Error(), "is damaged") {
		t.Errorf("restored: %v", err)
	}
	if err := b.DeleteBackup(t.Context(), made.ID); err != nil {
		t.Errorf("a damaged backup cannot be deleted: %v", err)
	}
	if left := files(t, dir); left != "" {
		t.Errorf("left: %s", left)
	}
}

// files returns the content of a folder, with all folders below it.
func files(t *testing.T, dir string) string {
	t.Helper()
	keys, err := objects.Folder(dir).List(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(keys, " ")
}

func TestOwnersAreApart(t *testing.T) {
	b, svc, _ := rig(t, Options{})
	write(t, svc, "app/a", "a")
	made := backUp(t, b, t.Context(), hutch.BackupRequest{Dir: "app"})
	other := caller.WithOwner(t.Context(), caller.Owner{ID: "../else"})
	if list, err := b.Backups(other); err != nil || len(list) != 0 {
		t.Errorf("another sees %v, %v", list, err)
	}
	for name, err := range map[string]error{
		"delete":  b.DeleteBackup(other, made.ID),
		"restore": b.RestoreBackup(other, made.ID, hutch.RestoreBackupRequest{SandboxID: "box"}),
	} {
		if hutch.KindOf(err) != hutch.NotFound {
			t.Errorf("%s another's backup: %v", name, err)
		}
	}
	for _, id := range []string{"", "..", "../" + folder(t.Context()) + made.ID, "a/b", strings.Repeat("a", 64)} {
		if err := b.DeleteBackup(other, id); hutch.KindOf(err) != hutch.Invalid {
			t.Errorf("delete %q: %v", id, err)
		}
	}
}

func TestRefusals(t *testing.T) {
	b, svc, dir := rig(t, Options{Room: 1 << 20})
	write(t, svc, "file", "no folder")
	write(t, svc, "noise/a", noise(2<<20))
	for _, c := range []struct {
		sandbox string
		req     hutch.BackupRequest
		want    hutch.Kind
	}{
		{"box", hutch.BackupRequest{Dir: "nothing"}, hutch.NotFound},
		{"nobody", hutch.BackupRequest{}, hutch.NotFound},
		{"box", hutch.BackupRequest{Dir: "file"}, hutch.Conflict},
		{"box", hutch.BackupRequest{Name: strings.Repeat("n", hutch.MaxBackupName+1)}, hutch.Invalid},
		{"box", hutch.BackupRequest{TTL: -1}, hutch.Invalid},
		{"box", hutch.BackupRequest{TTL: 1e18}, hutch.Invalid},
		{"box", hutch.BackupRequest{Dir: "noise"}, hutch.Exhausted},
	} {
		if _, err := b.Backup(t.Context(), c.sandbox, c.req); hutch.KindOf(err) != c.want {
			t.Errorf("%s %+v: %v, want %s", c.sandbox, c.req, err, c.want)
		}
	}
	if left := files(t, dir); left != "" {
		t.Errorf("left: %s", left)
	}
}

func noise(n int) string {
	b := make([]byte, n)
	rand.Read(b)
	return string(b)
}

// Two concurrent backups cannot together take more than the limit.
func TestRoomIsNotTakenTwice(t *testing.T) {
	b, svc, _ := rig(t, Options{Room: 1 << 20})
	write(t, svc, "noise/a", noise(700<<10))
	errs := make(chan error)
	for range 3 {
		go func() {
			_, err := b.Backup(t.Context(), "box", hutch.BackupRequest{Dir: "noise"})
			errs <- err
		}()
	}
	made := 0
	for range 3 {
		if err := <-errs; err == nil {
			made++
		} else if hutch.KindOf(err) != hutch.Exhausted {
			t.Error(err)
		}
	}
	if made != 1 {
		t.Errorf("%d backups fit, want 1", made)
	}
}

func TestExpiry(t *testing.T) {
	b, svc, dir := rig(t, Options{})
	now := time.Now()
	b.now = func() time.Time { return now }
	write(t, svc, "app/a", "a")
	made := backUp(t, b, t.Context(), hutch.BackupRequest{Dir: "app", TTL: 60})
	kept := backUp(t, b, t.Context(), hutch.BackupRequest{Dir: "app"})
	if made.ExpiresAt == nil || !made.ExpiresAt.Equal(made.CreatedAt.Add(time.Minute)) {
		t.Fatalf("expires %v", made.ExpiresAt)
	}
	now = now.Add(61 * time.Second)
	if err := b.Sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
	if left := files(t, dir); strings.Contains(left, made.ID) || strings.Count(left, kept.ID) != 2 {
		t.Errorf("left: %s", left)
	}
}

// A server that was killed while it wrote leaves no partial backup.
func TestKilled(t *testing.T) {
	b, svc, dir := rig(t, Options{})
	write(t, svc, "app/a", "a")
	made := backUp(t, b, t.Context(), hutch.BackupRequest{Dir: "app"})
	home := filepath.Join(dir, folder(t.Context()))
	for _, name := range []string{"bk-one" + archiveSuffix, "bk-two" + archiveSuffix + ".new", "bk-two" + recordSuffix + ".new"} {
		if err := os.WriteFile(filepath.Join(home, name), []byte("half"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := objects.OpenFolder(dir); err != nil {
		t.Fatal(err)
	}
	if err := b.Sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
	if left := files(t, dir); strings.Count(left, "bk-") != 2 || strings.Count(left, made.ID) != 2 {
		t.Errorf("left: %s", left)
	}
}

func TestBucket(t *testing.T) {
	service := s3.Start(t)
	store, err := objects.OpenBucket(service.URL("some/prefix"), credentials.NewStaticV4(s3.KeyID, s3.Key, ""))
	if err != nil {
		t.Fatal(err)
	}
	b, svc, _ := rig(t, Options{})
	b.store = store
	write(t, svc, "app/large", noise(17<<20)) // two parts
	made := backUp(t, b, t.Context(), hutch.BackupRequest{Dir: "app"})
	want := read(t, svc, "app/large")
	write(t, svc, "app/large", "changed")
	if err := b.RestoreBackup(t.Context(), made.ID, hutch.RestoreBackupRequest{SandboxID: "box"}); err != nil {
		t.Fatal(err)
	}
	if read(t, svc, "app/large") != want {
		t.Error("the file did not come back as it was")
	}
}

// A backup to a store that fails returns the store's error, and leaves no objects.
func TestStoreFails(t *testing.T) {
	b, svc, dir := rig(t, Options{})
	write(t, svc, "app/a", noise(3<<20))
	b.store = failing{objects.Folder(dir)}
	if _, err := b.Backup(t.Context(), "box", hutch.BackupRequest{Dir: "app"}); !errors.Is(err, errFull) {
		t.Errorf("made: %v", err)
	}
	if left := files(t, dir); left != "" {
		t.Errorf("left: %s", left)
	}
}

var errFull = errors.New("the disk is full")

type failing struct{ objects.Folder }

func (f failing) Put(ctx context.Context, key string, r io.Reader) error {
	return f.Folder.Put(ctx, key, io.MultiReader(io.LimitReader(r, 1<<20), broken{}))
}

type broken struct{}

func (broken) Read([]byte) (int, error) { return 0, errFull }

// hoarding is a service with a folder that has new names without end. A hostile agent can claim to have one.
type hoarding struct {
	hutch.Service
	listed, longest int
}

func (s *hoarding) ListFiles(ctx context.Context, sandbox string, req hutch.ListRequest, out func(hutch.FileInfo) error) error {
	s.longest = max(s.longest, req.Most())
	for range req.Most() {
		s.listed++
		if err := out(hutch.FileInfo{Name: "x"}); err != nil {
			return err
		}
	}
	return hutch.Errorf(hutch.Exhausted, "there are more")
}

func (*hoarding) Delete(context.Context, string, string, bool) error { return nil }

// TestFolderOfManyNames: only some names of a folder are in memory at a time, and a restore ends even if the names do not.
func TestFolderOfManyNames(t *testing.T) {
	t.Parallel()
	s := &hoarding{}
	b := &Backups{svc: s}
	if err := b.replace(t.Context(), "box", "/d", "/d/new"); !errors.Is(err, hutch.Exhausted) || s.longest > 10_000 || s.listed > 2<<20 {
		t.Errorf("%v, %d at once, %d in all", err, s.longest, s.listed)
	}
	real, svc, _ := rig(t, Options{})
	write(t, svc, "app/kept", "1")
	made := backUp(t, real, t.Context(), hutch.BackupRequest{Dir: "app"})
	if res, err := svc.Exec(t.Context(), "box", hutch.ExecRequest{Command: "cd app && for i in {1..5500}; do : > $i; done"}, nil); err != nil || res.ExitCode != 0 {
		t.Fatal(err, res)
	}
	if err := real.RestoreBackup(t.Context(), made.ID, hutch.RestoreBackupRequest{SandboxID: "box"}); err != nil {
		t.Fatal(err)
	}
	if got := names(t, svc, "app"); got != "kept" {
		t.Errorf("the folder holds %.80s", got)
	}
}
