package installation

import (
	"bytes"
	"context"
	crand "crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"filippo.io/age"
	"golang.org/x/sys/unix"

	"hutch"
	"hutch/internal/datadir"
	"hutch/internal/durable"
	"hutch/internal/hutchtest/disk"
	"hutch/internal/hutchtest/steps"
	"hutch/internal/secret"
	"hutch/internal/store"
)

func newKey(t *testing.T) *secret.Key {
	t.Helper()
	identity, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	key, err := secret.ParseKey(identity.String())
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func folder(t *testing.T) datadir.Folder {
	t.Helper()
	f, err := datadir.Open(filepath.Join(t.TempDir(), "data"))
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func write(t *testing.T, data datadir.Folder, name, content string) {
	t.Helper()
	path := data.Path(name)
	err := os.MkdirAll(filepath.Dir(path), 0o700)
	if err == nil {
		err = os.WriteFile(path, []byte(content), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func openStore(t *testing.T, data datadir.Folder) *store.Store {
	t.Helper()
	dir, err := data.Make(datadir.Server)
	if err != nil {
		t.Fatal(err)
	}
	s, err := store.Open(t.Context(), datadir.Database(dir))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func sleeping(key string, generation int) store.Record {
	return store.Record{Key: key, Token: fmt.Sprint("generation ", generation), Sandbox: hutch.Sandbox{ID: key, Status: hutch.Hibernated, CreatedAt: time.Now()}}
}

// example returns a data folder with some of everything.
func example(t *testing.T) (datadir.Folder, *store.Store) {
	data := folder(t)
	s := openStore(t, data)
	write(t, data, "token", "hutch_the-token\n")
	write(t, data, "server/secrets.key", "AGE-SECRET-KEY-1SOMETHING\n")
	write(t, data, "server/volumes/o/data/volume.json", `{"format":1}`)
	write(t, data, "server/memory/box/pages", strings.Repeat("page", 100_000)+strings.Repeat("\x00", 1<<20))
	write(t, data, "server/memory/gone/pages", "of a sandbox that woke")
	write(t, data, "server/gvisor/box/config.json", "of an instance")
	write(t, data, "server/audit/2026-11-25.jsonl", "one\ntwo\n")
	write(t, data, "images/host/file", "made again")
	write(t, data, "oci/blobs/sha256/aa", "layer")
	if err := s.Put(t.Context(), sleeping("box", 1)); err != nil {
		t.Fatal(err)
	}
	awake := sleeping("awake", 1)
	awake.Sandbox.Status = hutch.Running
	if err := s.Put(t.Context(), awake); err != nil {
		t.Fatal(err)
	}
	return data, s
}

func backUp(t *testing.T, data datadir.Folder, key *secret.Key, withKey bool) (path string, m Manifest) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "backup")
	m, err := Write(t.Context(), data, Options{To: path, Key: key, WithKey: withKey, Version: "test"})
	if err != nil {
		t.Fatal(err)
	}
	return path, m
}

// content returns the content of a data folder as text, without its store.
func content(t *testing.T, data datadir.Folder) string {
	t.Helper()
	var b strings.Builder
	err := filepath.WalkDir(string(data), func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() || strings.Contains(path, "hutch.db") {
			return err
		}
		text, err := os.ReadFile(path)
		rel, _ := filepath.Rel(string(data), path)
		fmt.Fprintf(&b, "%s %d %.30q\n", rel, len(text), text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return b.String()
}

const wantContent = `oci/blobs/sha256/aa 5 "layer"
server/audit/2026-11-25.jsonl 8 "one\ntwo\n"
server/memory/box/pages 1448576 "pagepagepagepagepagepagepagepa"
server/restored %d %.30q
server/secrets.key 26 "AGE-SECRET-KEY-1SOMETHING\n"
server/volumes/o/data/volume.json 12 "{\"format\":1}"
token 16 "hutch_the-token\n"
`

// A restored backup equals the original, although the store was in use.
func TestRoundTrip(t *testing.T) {
	data, _ := example(t)
	key := newKey(t)
	path, m := backUp(t, data, key, false)
	if m.Asleep != 1 || len(m.Awake) != 1 || m.Awake[0] != "awake" {
		t.Errorf("%+v", m)
	}
	if got, err := Verify(t.Context(), path, key, nil); err != nil || got.Files != m.Files || got.Bytes != m.Bytes {
		t.Errorf("verified: %+v, %v; not %+v", got, err, m)
	}
	to := folder(t)
	if _, err := Restore(t.Context(), path, key, to, RestoreOptions{}); err != nil {
		t.Fatal(err)
	}
	from := string(data) + "\n"
	if got, want := content(t, to), fmt.Sprintf(wantContent, len(from), from); got != want {
		t.Errorf("restored:\n%s\nnot:\n%s", got, want)
	}
	records, err := openStore(t, to).All(t.Context())
	if err != nil || len(records) != 2 {
		t.Errorf("records: %v, %v", records, err)
	}
	if _, err := Restore(t.Context(), path, key, to, RestoreOptions{}); hutch.KindOf(err) != hutch.Conflict {
		t.Errorf("a restore over a folder that is used: %v", err)
	}
	if _, err := Write(t.Context(), data, Options{To: path, Key: key}); hutch.KindOf(err) != hutch.Conflict {
		t.Errorf("a backup over another: %v", err)
	}
	if _, err := Write(t.Context(), data, Options{To: data.Path("server/b"), Key: key}); hutch.KindOf(err) != hutch.Invalid {
		t.Errorf("a backup in the data folder: %v", err)
	}
}

// A backup does not replace a file that appears under its name while it is written.
func TestTwoToOneName(t *testing.T) {
	path := filepath.Join(t.TempDir(), "backup")
	err := writeWhole(path, func(f *os.File) error {
		_, err := f.WriteString("second")
		return errors.Join(err, os.WriteFile(path, []byte("first"), 0o600))
	})
	if hutch.KindOf(err) != hutch.Conflict {
		t.Errorf("two backups to one name: %v", err)
	}
	if text, err := os.ReadFile(path); err != nil || string(text) != "first" {
		t.Errorf("%q, %v", text, err)
	}
	if _, err := os.Lstat(path + partSuffix); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the part file: %v", err)
	}
}

// All of a backup is encrypted, except the key that was asked for.
func TestNothingInClear(t *testing.T) {
	data, _ := example(t)
	key := newKey(t)
	for _, withKey := range []bool{false, true} {
		path, _ := backUp(t, data, key, withKey)
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, clear := range []string{"hutch_the-token", "SOMETHING", "secrets", "server", string(data), "generation"} {
			if bytes.Contains(text, []byte(clear)) {
				t.Errorf("%q is in the backup in clear", clear)
			}
		}
		if got := bytes.Contains(text, []byte(secret.Reveal(key))); got != withKey {
			t.Errorf("the key is in a backup with %t: %t", withKey, got)
		}
		if _, err := Restore(t.Context(), path, nil, folder(t), RestoreOptions{}); (err == nil) != withKey {
			t.Errorf("restored without a key that is in it, %t: %v", withKey, err)
		}
	}
}

// A server that had its key from elsewhere starts from a backup with the key.
func TestKeyFromElsewhere(t *testing.T) {
	data, _ := example(t)
	if err := os.Remove(data.Path("server/secrets.key")); err != nil {
		t.Fatal(err)
	}
	key := newKey(t)
	path, _ := backUp(t, data, key, true)
	to := folder(t)
	if _, err := Restore(t.Context(), path, nil, to, RestoreOptions{}); err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(to.Path("server/secrets.key")); err != nil || strings.TrimSpace(string(text)) != secret.Reveal(key) {
		t.Errorf("the key: %v", err)
	}
}

// A backup that is incomplete, changed or foreign is refused, and leaves no files.
func TestDamaged(t *testing.T) {
	data, _ := example(t)
	key := newKey(t)
	path, _ := backUp(t, data, key, false)
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	refused := func(what string, text []byte, key *secret.Key) {
		t.Helper()
		file := filepath.Join(t.TempDir(), "bad")
		if err := os.WriteFile(file, text, 0o600); err != nil {
			t.Fatal(err)
		}
		to := folder(t)
		_, err := Restore(t.Context(), file, key, to, RestoreOptions{})
		if kind := hutch.KindOf(err); kind != hutch.Invalid && kind != hutch.Denied {
			t.Errorf("%s: %v", what, err)
		}
		if _, err := Verify(t.Context(), file, key, nil); err == nil {
			t.Errorf("%s: verified", what)
		}
		if left, err := os.ReadDir(string(to)); err != nil || len(left) != 0 {
			t.Errorf("%s: left: %v, %v", what, left, err)
		}
	}
	for _, n := range []int{0, 1, len(magic), len(magic) + 2, len(magic) + 12, len(whole) / 2, len(whole) - 17, len(whole) - 1} {
		refused(fmt.Sprintf("cut off after %d of %d bytes", n, len(whole)), whole[:n], key)
	}
	refused("with something after it", append(bytes.Clone(whole), 'x'), key)
	for range 30 {
		changed, at := bytes.Clone(whole), rand.IntN(len(whole))
		changed[at] ^= 1 << rand.IntN(8)
		refused(fmt.Sprintf("changed at %d of %d", at, len(whole)), changed, key)
	}
	refused("of another installation", whole, newKey(t))
	refused("no backup", []byte("something else, which is no backup at all\n"), key)
	later := bytes.Replace(whole, []byte(`"created":"2`), []byte(`"created":"3`), 1)
	if bytes.Equal(later, whole) {
		t.Fatal("the header has no date")
	}
	refused("of another date", later, key)
}

// TestManyFilesOfConversations: programs that write many files into conversations do not keep an administrator from making a
// backup. It is not parallel, because it limits the open files of the process.
func TestManyFilesOfConversations(t *testing.T) {
	data, _ := example(t)
	const files = 400
	for i := range files {
		write(t, data, fmt.Sprintf("conversations/chat-%d/files/f", i), fmt.Sprint("of ", i))
	}
	if err := os.Symlink("/etc/passwd", data.Path("conversations/chat-1/files/link")); err != nil {
		t.Fatal(err)
	}
	var was unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &was); err != nil {
		t.Fatal(err)
	}
	few := was
	few.Cur = 200
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &few); err != nil {
		t.Fatal(err)
	}
	defer unix.Setrlimit(unix.RLIMIT_NOFILE, &was)
	key := newKey(t)
	path, m := backUp(t, data, key, false)
	if want := "conversations/chat-1/files/link"; !slices.Contains(m.Skipped, want) || m.Files < files {
		t.Errorf("%d files; skipped: %q", m.Files, m.Skipped)
	}
	to := folder(t)
	if _, err := Restore(t.Context(), path, key, to, RestoreOptions{}); err != nil {
		t.Fatal(err)
	}
	for i := range files {
		if text, err := os.ReadFile(to.Path(fmt.Sprintf("conversations/chat-%d/files/f", i))); err != nil || string(text) != fmt.Sprint("of ", i) {
			t.Fatalf("%q, %v", text, err)
		}
	}
}

// A backup without its key is verified with the key of the data folder if that key fits.
func TestVerifyWithTheKeyOfTheFolder(t *testing.T) {
	data, _ := example(t)
	key, other := newKey(t), newKey(t)
	path, m := backUp(t, data, key, false)
	if got, err := Verify(t.Context(), path, nil, key); err != nil || got.Files != m.Files {
		t.Errorf("%+v, %v", got, err)
	}
	for _, found := range []*secret.Key{nil, other} {
		if _, err := Verify(t.Context(), path, nil, found); !errors.Is(err, hutch.Invalid) || !strings.Contains(err.Error(), "--secret-key FILE") || !strings.Contains(err.Error(), "--data FOLDER") {
			t.Error(err)
		}
	}
	if _, err := Verify(t.Context(), path, other, key); !errors.Is(err, hutch.Denied) {
		t.Errorf("a wrong key: %v", err)
	}
	path, _ = backUp(t, data, key, true)
	if _, err := Verify(t.Context(), path, nil, other); err != nil {
		t.Errorf("with its key: %v", err)
	}
}

// CheckTarget refuses a file that cannot be written, so that no sandbox is copied for a backup that must fail.
func TestTargetThatCannotBeWritten(t *testing.T) {
	data := folder(t)
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	readOnly := t.TempDir()
	if os.Geteuid() == 0 { // root can write to every folder of a disk that can be written
		disk.Shrink(t, readOnly, "1m")
		if err := unix.Mount("", readOnly, "", unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != nil {
			t.Fatal(err)
		}
	} else if err := os.Chmod(readOnly, 0o500); err != nil {
		t.Fatal(err)
	}
	for to, want := range map[string]string{
		filepath.Join(dir, "none", "backup"): "cannot be written to",
		filepath.Join(dir, "file", "backup"): "cannot be written to",
		filepath.Join(readOnly, "backup"):    "cannot be written to",
		filepath.Join(dir, "file"):           "is there already",
		"":                                   "name of the backup file is missing",
	} {
		if err := CheckTarget(data, to); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", to, err)
		}
	}
	if err := CheckTarget(data, filepath.Join(dir, "backup")); err != nil {
		t.Error(err)
	}
	if _, err := Verify(t.Context(), "", nil, nil); err == nil || !strings.Contains(err.Error(), "is missing") {
		t.Error(err)
	}
}

// A refused restore leaves no folder: neither before the backup was read, nor when it turns out to be cut off at its end.
func TestRefusedRestoreLeavesNothing(t *testing.T) {
	data, _ := example(t)
	key := newKey(t)
	path, _ := backUp(t, data, key, false)
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	cut := path + "-cut"
	if err := os.WriteFile(cut, whole[:len(whole)-10], 0o600); err != nil {
		t.Fatal(err)
	}
	above := t.TempDir()
	to := datadir.Folder(filepath.Join(above, "srv", "hutch"))
	for what, try := range map[string]struct {
		file string
		key  *secret.Key
	}{"without a key": {path, nil}, "with another key": {path, newKey(t)}, "without a file": {path + "-none", key}, "cut off": {cut, key}} {
		if _, err := Restore(t.Context(), try.file, try.key, to, RestoreOptions{}); err == nil {
			t.Errorf("%s: restored", what)
		}
		if left, err := os.ReadDir(above); err != nil || len(left) > 0 {
			t.Errorf("%s: left %v, %v", what, left, err)
		}
	}
	kept := folder(t) // it was there before
	if _, err := Restore(t.Context(), cut, key, kept, RestoreOptions{}); err == nil {
		t.Error("restored")
	}
	if _, err := os.Stat(string(kept)); err != nil {
		t.Error(err)
	}
	if _, err := Restore(t.Context(), path, key, to, RestoreOptions{}); err != nil {
		t.Error(err)
	}
}

// If the disk of the backup or of the restored folder is full, the error names the folder and the space that is needed. It is not the
// error for a full disk of the server.
func TestFullDisk(t *testing.T) {
	data, _ := example(t)
	noise := make([]byte, 3<<20)
	crand.Read(noise)
	write(t, data, "server/memory/box/noise", string(noise))
	key := newKey(t)
	path, m := backUp(t, data, key, false)
	small := t.TempDir()
	disk.Shrink(t, small, "2m")
	_, written := Write(t.Context(), data, Options{To: filepath.Join(small, "backup"), Key: key})
	_, restored := Restore(t.Context(), path, key, datadir.Folder(small), RestoreOptions{})
	for _, err := range []error{written, restored} {
		if !errors.Is(err, hutch.Exhausted) || !errors.Is(err, unix.ENOSPC) {
			t.Fatal(err)
		}
		said := hutch.AsError(err).Message
		if !strings.Contains(said, small) || !strings.Contains(said, atMost(m.Bytes)) || strings.Contains(said, "server") || strings.Contains(said, "sandboxes") {
			t.Error(said)
		}
	}
	if left, err := os.ReadDir(small); err != nil || len(left) > 0 {
		t.Errorf("left %v, %v", left, err)
	}
}

// The files of each sandbox in a backup fit its record, even while sandboxes fall asleep and wake.
func TestRunning(t *testing.T) {
	data, s := example(t)
	key := newKey(t)
	ctx, end := context.WithCancel(t.Context())
	var running sync.WaitGroup
	defer running.Wait()
	defer end()
	const sandboxes = 6
	for i := range sandboxes {
		running.Go(func() {
			key := fmt.Sprint("churn-", i)
			for generation := 1; ctx.Err() == nil; generation++ { // in the order of the engine
				dir := data.Path("server/memory/" + key)
				err := errors.Join(os.Mkdir(dir+".new", 0o700), os.WriteFile(dir+".new/pages", fmt.Append(nil, "generation ", generation), 0o600), os.Rename(dir+".new", dir), s.Put(ctx, sleeping(key, generation)))
				time.Sleep(time.Duration(rand.IntN(200*(i+1))) * time.Millisecond)
				awake := sleeping(key, generation)
				awake.Sandbox.Status = hutch.Running
				if err = errors.Join(err, s.Put(context.WithoutCancel(ctx), awake), os.RemoveAll(dir)); err != nil && ctx.Err() == nil {
					t.Error(err)
					return
				}
			}
		})
	}
	seen := 0
	for range 5 {
		path := filepath.Join(t.TempDir(), "backup")
		m, err := Write(t.Context(), data, Options{To: path, Key: key})
		to := folder(t)
		if err == nil {
			_, err = Restore(t.Context(), path, key, to, RestoreOptions{})
		}
		if err != nil {
			t.Fatal(err)
		}
		records, err := openStore(t, to).All(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range records {
			if !strings.HasPrefix(r.Key, "churn-") {
				continue
			}
			got, err := os.ReadFile(to.Path("server/memory/" + r.Key + "/pages"))
			switch sleeps := r.Sandbox.Status.Sleeps(); {
			case slices.Contains(m.Changing, r.Key):
				if err == nil {
					t.Errorf("there is memory of a sandbox that is left out: %q", got)
				}
			case sleeps && (err != nil || string(got) != r.Token):
				t.Errorf("the record says %s, and the memory %q, %v", r.Token, got, err)
			case !sleeps && err == nil:
				t.Errorf("there is memory of a sandbox that is awake: %q", got)
			case sleeps:
				seen++
			}
		}
	}
	if seen == 0 {
		t.Error("no backup has a sandbox that sleeps")
	}
}

// A sandbox that changes whenever the store is read is left out, and the others are in the backup. They are in it even if new sandboxes are
// created all the time.
func TestSandboxesThatChangeAllTheTime(t *testing.T) {
	t.Parallel()
	for what, id := range map[string]func(read int) string{
		"changed": func(int) string { return "churn" },
		"created": func(read int) string { return fmt.Sprint("churn-", read) },
	} {
		data, s := example(t)
		reads := 0
		g := backupContent{data: data, open: map[string]*os.File{}}
		defer g.close()
		g.dump = func(ctx context.Context, path string) ([]store.Record, []byte, error) {
			reads++
			key := id(reads)
			write(t, data, "server/memory/"+key+"/pages", "of one moment")
			if err := s.Put(ctx, sleeping(key, reads)); err != nil {
				return nil, nil, err
			}
			return store.Dump(ctx, path)
		}
		if err := g.gather(t.Context()); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		last := id(reads)
		if m := g.manifest; !slices.Equal(m.Changing, []string{last}) || !g.hasFiles([]string{"server/memory/box"}) || g.hasFiles([]string{"server/memory/" + last}) {
			t.Errorf("%s, %d reads: %+v", what, reads, m)
		}
	}
}

// A record of an image that is replaced all the time, however fast, is complete or left out. The records of other owners are in the backup.
func TestRecordsThatChangeAllTheTime(t *testing.T) {
	t.Parallel()
	data, _ := example(t)
	for i := range 2000 {
		write(t, data, fmt.Sprint("oci/blobs/sha256/still-", i), "layer")
	}
	write(t, data, "oci/records/still.json", "still-999")
	ctx, end := context.WithCancel(t.Context())
	var running sync.WaitGroup
	defer running.Wait()
	defer end()
	const owners = 4
	for owner := range owners {
		record := fmt.Sprintf("oci/records/owner-%d.json", owner)
		write(t, data, record, "still-0")
		running.Go(func() {
			blob := func(n int) string { return fmt.Sprintf("owner-%d-%d", owner, n) }
			for n := 1; ctx.Err() == nil; n++ { // in the order of package oci
				temp := data.Path("oci/records/." + filepath.Base(record))
				err := errors.Join(os.WriteFile(data.Path("oci/blobs/sha256/"+blob(n)), nil, 0o600), os.WriteFile(temp, []byte(blob(n)), 0o600), os.Rename(temp, data.Path(record)))
				if n > 1 {
					err = errors.Join(err, os.Remove(data.Path("oci/blobs/sha256/"+blob(n-1))))
				}
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	for range 3 {
		g := backupContent{data: data, open: map[string]*os.File{}, dump: store.Dump}
		defer g.close()
		if err := g.gather(t.Context()); err != nil {
			t.Fatal(err)
		}
		if g.open["oci/records/still.json"] == nil {
			t.Error("a record that never changed is left out")
		}
		for owner := range owners {
			record := fmt.Sprintf("oci/records/owner-%d.json", owner)
			f := g.open[record]
			if (f == nil) != slices.Contains(g.manifest.Changing, record) {
				t.Errorf("%s: %+v", record, g.manifest)
			}
			if f == nil {
				continue
			}
			blob, err := io.ReadAll(f)
			if err != nil || g.open["oci/blobs/sha256/"+string(blob)] == nil {
				t.Errorf("the blob %q of a record is missing, %v", blob, err)
			}
		}
	}
}

// The memory of a sandbox in a backup, or its copy, is that of one moment, even without a store in the folder. Incomplete memory is left out.
func TestMemoryThatIsReplaced(t *testing.T) {
	for _, dir := range inEachServer("memory", checkpoints) {
		data := folder(t)
		write(t, data, dir+"/box/old", "old")
		write(t, data, dir+"/box/pages", "old")
		write(t, data, dir+"/half.new/pages", "half")
		write(t, data, dir+"/half.copy/pages", "half")
		g := backupContent{data: data, open: map[string]*os.File{}}
		defer g.close()
		if err := errors.Join(g.walk("."), os.RemoveAll(data.Path(dir+"/box"))); err != nil {
			t.Fatal(err)
		}
		write(t, data, dir+"/box/pages", "new")
		write(t, data, dir+"/box/new", "new")
		if err := g.steadyAll(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got, want := slices.Sorted(maps.Keys(g.open)), []string{dir + "/box/new", dir + "/box/pages"}; !slices.Equal(got, want) {
			t.Errorf("opened %q, not %q", got, want)
			continue
		}
		if text, err := io.ReadAll(g.open[dir+"/box/pages"]); err != nil || string(text) != "new" {
			t.Errorf("%s: %q, %v", dir, text, err)
		}
	}
}

// A file that is skipped is named once, even if its sandbox is read again.
func TestSkippedOnce(t *testing.T) {
	data := folder(t)
	write(t, data, "server/memory/box/pages", "pages")
	if err := os.Symlink("pages", data.Path("server/memory/box/link")); err != nil {
		t.Fatal(err)
	}
	g := backupContent{data: data, open: map[string]*os.File{}}
	defer g.close()
	s := &server{name: datadir.Server}
	if err := errors.Join(g.walk("."), s.reopen(&g, "box"), s.reopen(&g, "box")); err != nil {
		t.Fatal(err)
	}
	if want := []string{"server/memory/box/link"}; !slices.Equal(g.manifest.Skipped, want) {
		t.Errorf("skipped %q, not %q", g.manifest.Skipped, want)
	}
}

// While a volume is saved again and again, its record in the backup names the content that is there.
func TestVolumeThatIsSaved(t *testing.T) {
	t.Parallel()
	data, _ := example(t)
	key := newKey(t)
	ctx, end := context.WithCancel(t.Context())
	var running sync.WaitGroup
	defer running.Wait()
	defer end()
	dir := data.Path("server/volumes/o/data")
	running.Go(func() {
		for n := 0; ctx.Err() == nil; n++ { // in the order of package volume
			name := fmt.Sprint("content-", n)
			err := errors.Join(os.WriteFile(filepath.Join(dir, name), []byte(name), 0o600), durable.Replace(filepath.Join(dir, "volume.json"), []byte(name)))
			if n > 0 {
				err = errors.Join(err, os.Remove(filepath.Join(dir, fmt.Sprint("content-", n-1))))
			}
			if err != nil {
				t.Error(err)
				return
			}
			time.Sleep(time.Duration(rand.IntN(20)) * time.Millisecond)
		}
	})
	for range 20 {
		path := filepath.Join(t.TempDir(), "backup")
		m, err := Write(t.Context(), data, Options{To: path, Key: key})
		if len(m.Changing) > 0 {
			continue
		}
		to := folder(t)
		if err == nil {
			_, err = Restore(t.Context(), path, key, to, RestoreOptions{})
		}
		if err != nil {
			t.Fatal(err)
		}
		name, err := os.ReadFile(to.Path("server/volumes/o/data/volume.json"))
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasPrefix(string(name), "{") { // before the first save
			continue
		}
		if _, err := os.Stat(to.Path("server/volumes/o/data/" + string(name))); err != nil {
			t.Errorf("the record names content that is not in the backup: %v", err)
		}
	}
}

const (
	varKilled = "HUTCH_TEST_INSTALLATION" // the work of the process that is killed
	varFile   = "HUTCH_TEST_FILE"
	varData   = "HUTCH_TEST_DATA"
	varKey    = "HUTCH_TEST_KEY"
)

// TestVictim is the process that TestKilled kills.
func TestVictim(t *testing.T) {
	do := os.Getenv(varKilled)
	if do == "" {
		return
	}
	key, err := secret.ParseKey(os.Getenv(varKey))
	if err != nil {
		t.Fatal(err)
	}
	os.Stdout.WriteString("\n")
	io.Copy(io.Discard, os.Stdin)
	if do == "write" {
		_, err = Write(t.Context(), datadir.Folder(os.Getenv(varData)), Options{To: os.Getenv(varFile), Key: key})
	} else {
		_, err = Restore(t.Context(), os.Getenv(varFile), key, datadir.Folder(os.Getenv(varData)), RestoreOptions{})
	}
	if err != nil {
		t.Fatal(err)
	}
}

// killed starts a backup or a restore, and kills it before its nth step.
func killed(t *testing.T, n int, do, file string, data datadir.Folder, key *secret.Key) (taken int) {
	t.Helper()
	return steps.Victim(t, "TestVictim", n, varKilled+"="+do, varFile+"="+file, varData+"="+string(data), varKey+"="+secret.Reveal(key))
}

// A backup that is killed at any step leaves a complete file or none, and can be repeated.
func TestWriteKilled(t *testing.T) {
	t.Parallel()
	data, _ := example(t)
	key := newKey(t)
	for n := 1; ; n++ {
		file := filepath.Join(t.TempDir(), "backup")
		taken := killed(t, n, "write", file, data, key)
		if _, err := os.Stat(file); err == nil {
			if _, err := Verify(t.Context(), file, key, nil); err != nil {
				t.Fatalf("killed before step %d, there is half a backup: %v", n, err)
			}
		} else if _, err := Write(t.Context(), data, Options{To: file, Key: key}); err != nil {
			t.Fatalf("repeated after a kill before step %d: %v", n, err)
		}
		if taken < n-1 {
			if n < 5 {
				t.Errorf("a backup has %d steps", taken)
			}
			return
		}
	}
}

// A restore that is killed before one of its steps leaves either all files or none that a server uses.
func TestRestoreKilled(t *testing.T) {
	t.Parallel()
	data, _ := example(t)
	key := newKey(t)
	file, _ := backUp(t, data, key, false)
	from := string(data) + "\n"
	want := fmt.Sprintf(wantContent, len(from), from)
	to := folder(t)
	all := killed(t, 1<<30, "restore", file, to, key)
	if got := content(t, to); got != want {
		t.Fatalf("restored in %d steps:\n%s", all, got)
	}
	kills, whole := 0, 0
	for n := 1; n <= all; n++ {
		if n > 8 && n <= all-26 && n%8 != 0 { // these steps write the files one after another
			continue
		}
		kills++
		to := folder(t)
		killed(t, n, "restore", file, to, key)
		if err := Finish(to); err != nil { // as a server does at its start
			t.Fatal(err)
		}
		if left, err := os.ReadDir(string(to)); err != nil {
			t.Fatal(err)
		} else if len(left) > 0 {
			whole++
			if got := content(t, to); got != want {
				t.Fatalf("killed before step %d, there is half of it:\n%s", n, got)
			}
		} else if _, err := Restore(t.Context(), file, key, to, RestoreOptions{}); err != nil || content(t, to) != want {
			t.Fatalf("repeated after a kill before step %d: %v", n, err)
		}
	}
	if whole < 4 || kills-whole < 15 {
		t.Errorf("of %d kills, %d came after everything was there", kills, whole)
	}
}

// The folder lost+found of a mount is not backed up. A restore skips the one in an older backup.
func TestLostFound(t *testing.T) {
	data, _ := example(t)
	write(t, data, "lost+found/#11", "a fragment")
	g := backupContent{data: data, open: map[string]*os.File{}}
	defer g.close()
	if err := g.walk("."); err != nil {
		t.Fatal(err)
	}
	if g.open["lost+found/#11"] != nil || slices.Contains(g.folders, "lost+found") {
		t.Error("lost+found is backed up")
	}
	to := folder(t)
	write(t, to, "lost+found/#12", "of this disk")
	write(t, to, "restored/lost+found/#11", "a fragment")
	write(t, to, "restored/token", "token")
	if err := Finish(to); err != nil {
		t.Fatal(err)
	}
	if got, want := content(t, to), "lost+found/#12 12 \"of this disk\"\ntoken 5 \"token\"\n"; got != want {
		t.Errorf("restored:\n%s\nnot:\n%s", got, want)
	}
}

// A restore that was interrupted between its last steps is completed before the folder is used.
func TestFinish(t *testing.T) {
	data := folder(t)
	write(t, data, "restored/server/hutch.db", "store")
	write(t, data, "token", "moved already")
	write(t, data, "restoring/server/hutch.db", "half")
	if err := Finish(data); err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(data.Path("server/hutch.db")); err != nil || string(text) != "store" {
		t.Errorf("%q, %v", text, err)
	}
	if entries, _ := os.ReadDir(string(data)); len(entries) != 2 {
		t.Errorf("left: %v", entries)
	}
	unlock, err := lock(data)
	if err != nil {
		t.Fatal(err)
	}
	write(t, data, "restoring/server/hutch.db", "half")
	if err := Finish(data); hutch.KindOf(err) != hutch.Conflict {
		t.Errorf("a server starts while a backup is restored: %v", err)
	}
	unlock()
}

// If a restore is interrupted at its end and repeated, the second one completes the first and reports this.
func TestRepeatedRestore(t *testing.T) {
	data, _ := example(t)
	key := newKey(t)
	file, _ := backUp(t, data, key, false)
	to := folder(t)
	write(t, to, "token", "moved already")
	write(t, to, "restored/server/hutch.db", "store")
	_, err := Restore(t.Context(), file, key, to, RestoreOptions{})
	if hutch.KindOf(err) != hutch.Conflict || !strings.Contains(err.Error(), "is complete now: start the server") {
		t.Errorf("repeated: %v", err)
	}
	if text, err := os.ReadFile(to.Path("server/hutch.db")); err != nil || string(text) != "store" {
		t.Errorf("%q, %v", text, err)
	}
	if entries, _ := os.ReadDir(string(to)); len(entries) != 2 {
		t.Errorf("left: %v", entries)
	}
}
