package engine

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"hutch"
	"hutch/internal/durable"
	"hutch/internal/store"
)

// A snapshot is a folder that is complete before it has its name, and its
// manifest is all that is known of it. Nothing in the folder is ever changed.

// manifestVersion is that of the format. Another one's snapshots are listed,
// and not read.
const manifestVersion = 1

const (
	manifestFile = "manifest.json"
	snapFiles    = "files.tar" // the written files
	snapMemory   = "memory"    // the folder of the driver's own
)

// manifest says what is in a snapshot's folder.
type manifest struct {
	Version  int            `json:"version"`
	Build    string         `json:"build"` // of the memory, as driver.Restorer tells
	Snapshot hutch.Snapshot `json:"snapshot"`
	Record   store.Record   `json:"record"` // of the sandbox that it was made of
	Files    []savedFile    `json:"files"`
	Unpacked int64          `json:"unpacked,omitempty"` // size of the archive of the written files, as tar makes it
}

// savedFile is one file of a snapshot.
type savedFile struct {
	Path   string `json:"path"`
	Size   int64  `json:"size"`
	SHA256 string `json:"sha256"`
}

// snapshot is one in memory.
type snapshot struct {
	manifest
	dir   string
	alone bool // one sandbox begins as this, and no other
	below below

	mu   sync.Mutex
	seen map[string]stamp // the files that were found in order
}

// stamp tells whether a file is the one that it was: nothing can be written to
// one without its change time telling.
type stamp struct {
	ino     uint64
	size    int64
	changed unix.Timespec
}

func stampOf(f *os.File) (stamp, error) {
	var st unix.Stat_t
	err := unix.Fstat(int(f.Fd()), &st)
	return stamp{st.Ino, st.Size, st.Ctim}, err
}

// seal brings all files of a new snapshot to disk, and notes what they are.
func (s *snapshot) seal() error {
	s.seen = map[string]stamp{}
	err := filepath.WalkDir(s.dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		name, err := filepath.Rel(s.dir, path)
		if err != nil {
			return err
		}
		file, err := s.read(name, true)
		s.Files = append(s.Files, file)
		s.Snapshot.Size += file.Size
		return err
	})
	if err != nil {
		return err
	}
	text, err := json.Marshal(&s.manifest)
	if err != nil {
		return err
	}
	return errors.Join(durable.Create(filepath.Join(s.dir, manifestFile), text), durable.Sync(filepath.Join(s.dir, snapMemory)))
}

// read reads a file to say what it is.
func (s *snapshot) read(name string, sync bool) (savedFile, error) {
	f, err := os.Open(filepath.Join(s.dir, name))
	if err != nil {
		return savedFile{}, err
	}
	defer f.Close()
	if sync {
		err = f.Sync()
	}
	hash := sha256.New()
	size, failed := io.Copy(hash, f)
	at, fault := stampOf(f)
	s.seen[name] = at
	return savedFile{name, size, hex.EncodeToString(hash.Sum(nil))}, errors.Join(err, failed, fault)
}

// verify reports whether the files are those of the manifest. What was found so
// once, and has not been touched since, is not read again.
func (s *snapshot) verify() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.Version != manifestVersion {
		return hutch.Errorf(hutch.Conflict, "the snapshot %q was made by another version of Hutch (format %d, here %d): make it anew", s.Snapshot.ID, s.Version, manifestVersion)
	}
	for _, want := range s.Files {
		if s.untouched(want.Path) {
			continue
		}
		got, err := s.read(want.Path, false)
		if err != nil || got != want {
			delete(s.seen, want.Path)
			return hutch.Errorf(hutch.Conflict, "the snapshot %q is damaged: its file %s is not what was saved; delete it and make it anew", s.Snapshot.ID, want.Path).
				Because(errors.Join(err, fmt.Errorf("%+v instead of %+v", got, want)))
		}
	}
	return nil
}

func (s *snapshot) untouched(name string) bool {
	f, err := os.Open(filepath.Join(s.dir, name))
	if err != nil {
		return false
	}
	defer f.Close()
	now, err := stampOf(f)
	was, ok := s.seen[name]
	return err == nil && ok && now == was
}

func (e *Engine) snapshotsDir() string { return filepath.Join(e.opt.Dir, "snapshots") }

// loadSnapshots finds the snapshots on disk, and removes what is half made or
// half deleted.
func (e *Engine) loadSnapshots() error {
	if err := os.MkdirAll(e.snapshotsDir(), 0o700); err != nil {
		return err
	}
	entries, err := os.ReadDir(e.snapshotsDir())
	if err != nil {
		return err
	}
	e.snaps.all = map[string]*snapshot{}
	for _, entry := range entries {
		dir := filepath.Join(e.snapshotsDir(), entry.Name())
		if hutch.CheckID(entry.Name()) != nil { // it never had its name, or has it no more
			if err := os.RemoveAll(dir); err != nil {
				return err
			}
			continue
		}
		s := &snapshot{dir: dir, seen: map[string]stamp{}}
		text, err := os.ReadFile(filepath.Join(dir, manifestFile))
		if err == nil {
			err = json.Unmarshal(text, &s.manifest)
		}
		if err != nil || s.Snapshot.ID != entry.Name() {
			e.log.Error("a snapshot cannot be read", "snapshot", entry.Name(), "err", err)
			continue
		}
		e.snaps.all[s.Snapshot.ID] = s
	}
	return nil
}

// snapshots are those that there are, and the names of those in the making.
type snapshots struct {
	mu     sync.Mutex
	all    map[string]*snapshot
	making []hutch.Snapshot
}

// listLocked lists what may be used on behalf of ctx, oldest first.
func (l *snapshots) listLocked(ctx context.Context) []*snapshot {
	owner, owned := hutch.OwnerOf(ctx)
	var list []*snapshot
	for _, s := range l.all {
		if (!owned || s.Snapshot.Owner == owner.ID || s.Snapshot.Shared) && !s.expired(time.Now()) {
			list = append(list, s)
		}
	}
	slices.SortFunc(list, func(a, b *snapshot) int { return a.Snapshot.CreatedAt.Compare(b.Snapshot.CreatedAt) })
	return list
}

// byID returns the snapshot of an id, on behalf of nobody.
func (l *snapshots) byID(id string) (*snapshot, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if s := l.all[id]; s != nil && !s.expired(time.Now()) {
		return s, nil
	}
	return nil, hutch.Errorf(hutch.NotFound, "there is no snapshot %q any more", id)
}

func (l *snapshots) has(id string) bool {
	_, err := l.byID(id)
	return err == nil
}

func (s *snapshot) expired(now time.Time) bool {
	return s.Snapshot.ExpiresAt != nil && !now.Before(*s.Snapshot.ExpiresAt)
}

// find returns a snapshot by id or name: the caller's own before a shared one.
func (l *snapshots) find(ctx context.Context, id string) (*snapshot, error) {
	if err := hutch.CheckID(id); err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	owner := nameOf(ctx, "").owner
	var found *snapshot
	for _, s := range l.listLocked(ctx) {
		if v := s.Snapshot; (v.ID == id || v.Name == id) && (found == nil || v.Owner == owner) {
			found = s
		}
	}
	if found == nil {
		return nil, hutch.Errorf(hutch.NotFound, "there is no snapshot %q: it was never made, was deleted, or has expired; list the snapshots", id)
	}
	return found, nil
}
