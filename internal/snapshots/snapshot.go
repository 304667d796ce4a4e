// Package snapshots keeps snapshots on disk, and lists them.
//
// A snapshot is a folder. It has the files that were added or changed in the image, the memory that the runtime saved,
// and a manifest that names every file with its digest. The folder is complete and synced before it is renamed to the
// snapshot's id, and nothing in it ever changes except the file of its names. A folder under any other name was never
// finished, or is being deleted; [Open] removes it.
package snapshots

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"hutch"
	"hutch/internal/durable"
	"hutch/internal/store"
)

// version is the version of the format. Snapshots with another version are listed but cannot be used.
const version = 1

const (
	manifestFile = "manifest.json"
	filesArchive = "files.tar"
	memoryFolder = "memory"
)

// Manifest lists the content of a snapshot's folder.
type Manifest struct {
	Version  int            `json:"version"`
	Build    string         `json:"build"` // build of the runtime that saved the memory (driver.Restorer)
	Snapshot hutch.Snapshot `json:"snapshot"`
	Record   store.Record   `json:"record"` // record of the sandbox that the snapshot was made from
	Files    []savedFile    `json:"files"`
	Unpacked int64          `json:"unpacked,omitempty"` // bytes of the uncompressed archive of the written files
}

// savedFile is one file of a snapshot.
type savedFile struct {
	Path   string `json:"path"`
	Size   int64  `json:"size"`
	SHA256 string `json:"sha256"`
}

// Snapshot is a snapshot on disk.
type Snapshot struct {
	Manifest
	Dir string
	// Single is true if exactly one sandbox will start from the snapshot.
	Single bool
	// Base is the layer that sandboxes of the snapshot share.
	Base Base

	names map[string]int // names with their numbers; never changed in place; guarded by the catalog
	uses  sync.RWMutex   // held for reading while a sandbox is made from the snapshot

	mu   sync.Mutex
	seen map[string]stamp // the files that were verified
}

// Archive returns the path of the archive of the written files.
func (s *Snapshot) Archive() string { return filepath.Join(s.Dir, filesArchive) }

// Memory returns the path of the folder for the memory that the runtime saves.
func (s *Snapshot) Memory() string { return filepath.Join(s.Dir, memoryFolder) }

// Expired reports whether the snapshot has expired.
func (s *Snapshot) Expired(now time.Time) bool {
	return s.Snapshot.ExpiresAt != nil && !now.Before(*s.Snapshot.ExpiresAt)
}

// Verify checks that the files are those of the manifest. A file that was verified before, and was not changed since,
// is not read again.
func (s *Snapshot) Verify() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.Version != version {
		return hutch.Errorf(hutch.Conflict, "the snapshot %q was made by another version of Hutch (format %d, here %d): make it again", s.Snapshot.ID, s.Version, version)
	}
	for _, want := range s.Files {
		if s.untouched(want.Path) {
			continue
		}
		got, err := s.read(want.Path, false)
		if err != nil || got != want {
			delete(s.seen, want.Path)
			return hutch.Errorf(hutch.Conflict, "the snapshot %q is damaged: its file %s is not what was saved; delete it and make it again", s.Snapshot.ID, want.Path).
				Because(errors.Join(err, fmt.Errorf("%+v instead of %+v", got, want)))
		}
	}
	return nil
}

// seal syncs all files of a new snapshot, and writes its manifest.
func (s *Snapshot) seal() error {
	s.seen = map[string]stamp{}
	err := filepath.WalkDir(s.Dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		name, err := filepath.Rel(s.Dir, path)
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
	text, err := json.Marshal(&s.Manifest)
	if err != nil {
		return err
	}
	return errors.Join(durable.Create(filepath.Join(s.Dir, manifestFile), text), durable.Sync(s.Memory()))
}

// Change calls change, which can replace files of a snapshot, and then writes their new sizes and digests into the
// manifest. If it is interrupted, it has to be repeated before the snapshot is used.
func (s *Snapshot) Change(change func() error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := make([]stamp, len(s.Files))
	for i, f := range s.Files {
		before[i], _ = s.stamp(f.Path) // Verify finds a missing file
	}
	if err := change(); err != nil {
		return err
	}
	for i, f := range s.Files {
		if now, err := s.stamp(f.Path); err != nil || now == before[i] {
			continue
		}
		file, err := s.read(f.Path, true)
		if err != nil {
			return err
		}
		s.Snapshot.Size += file.Size - f.Size
		s.Files[i] = file
	}
	text, err := json.Marshal(&s.Manifest)
	if err != nil {
		return err
	}
	return durable.Replace(filepath.Join(s.Dir, manifestFile), text)
}

func (s *Snapshot) stamp(name string) (stamp, error) {
	f, err := os.Open(filepath.Join(s.Dir, name))
	if err != nil {
		return stamp{}, err
	}
	defer f.Close()
	return stampOf(f)
}

// read returns the size and the digest of a file, and remembers its stamp.
func (s *Snapshot) read(name string, sync bool) (savedFile, error) {
	f, err := os.Open(filepath.Join(s.Dir, name))
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

func (s *Snapshot) untouched(name string) bool {
	now, err := s.stamp(name)
	was, ok := s.seen[name]
	return err == nil && ok && now == was
}

// stamp identifies the content of a file: every write changes the change time.
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
