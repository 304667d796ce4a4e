// Package volume keeps volumes: named folders that outlive sandboxes.
//
// The content of a volume is one compressed tar archive, and no program of the host ever unpacks it. The agent of a
// sandbox unpacks it inside, when the sandbox is created, and packs the folder again when it is saved. So the daemon
// opens no path that a sandbox has chosen, and a volume works on every runtime, also without root. Data from a sandbox
// or a client is read entry by entry and written again: the archive on disk has only entries that every sandbox can
// unpack.
//
// New content is written next to the old one. The record, which names the file with the content, is then replaced: a
// save that is interrupted at any moment changes nothing, and [Open] removes leftover files.
//
// A volume can have a bucket: then each file is an object. For sandboxes, the content here is authoritative;
// [Store.Sync] exchanges changes with the bucket, with the files and objects that were equal last (see base) as the
// common ancestor of both. So a bucket that is slow or unavailable delays no save, and no change of only one side is
// lost.
//
// The store does not know who uses a volume: the records of sandboxes say that. So a destroyed sandbox can leave no
// claim behind.
package volume

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"hutch"
	"hutch/internal/bucket"
	"hutch/internal/ctxlock"
	"hutch/internal/durable"
	"hutch/internal/fairqueue"
)

// DefaultRoom is how many bytes the quotas of one owner's volumes can add up to.
const DefaultRoom = 20 << 30

const (
	defaultQuota  = 1024 // MiB
	mostVolumes   = 1000 // most volumes of one owner
	mostProblem   = 1000 // bytes of text in a record
	format        = 1
	recordFile    = "volume.json"
	contentSuffix = ".tar.zst"
	halfPrefix    = ".new-"
)

// Options configure a store.
type Options struct {
	// Room is how many bytes the quotas of one owner's volumes can add up to; default DefaultRoom. The server's own
	// volumes have no such limit.
	Room int64
	// Secret returns the value of an owner's secret, for the access keys of buckets.
	Secret func(owner, name string) (string, error)
	// BucketHosts are endpoints of buckets, as HOST:PORT, that can have private addresses and no TLS.
	BucketHosts []string
	Log         *slog.Logger
}

// Store has the volumes of all owners. Its methods are safe for concurrent use.
type Store struct {
	dir     string
	opt     Options
	entries int           // most entries of one volume
	turns   ctxlock.Locks // by folder of a volume: one change of content at a time
	large   ctxlock.Locks // by folder of an owner: one archive with many names at a time, because they are in memory

	transport http.RoundTripper // to buckets
	syncs     ctxlock.Locks     // by folder of an owner: one exchange with a bucket at a time
	slots     *fairqueue.Queue  // limits simultaneous exchanges

	mu      sync.Mutex
	volumes map[key]*record
}

type key struct{ owner, name string }

// record is a volume on disk.
type record struct {
	Format  int          `json:"format"`
	Owner   string       `json:"owner"`
	Volume  hutch.Volume `json:"volume"`
	Content string       `json:"content,omitempty"` // the name of its file; empty for a volume without files
	SHA256  string       `json:"sha256,omitempty"`  // SHA-256 of the plain archive

	Synced int    `json:"synced,omitempty"` // the version in the bucket
	Base   string `json:"base,omitempty"`   // the name of the file with the base; empty before the first exchange
	Bases  int    `json:"bases,omitempty"`  // how many bases there have been
}

// Open opens the volumes in a folder, which no other process uses, and removes leftover files of interrupted changes.
func Open(dir string, opt Options) (*Store, error) {
	opt.Room, opt.Log = cmp.Or(opt.Room, DefaultRoom), cmp.Or(opt.Log, slog.New(slog.DiscardHandler))
	s := &Store{dir: dir, opt: opt, entries: mostEntries, volumes: map[key]*record{}, transport: bucket.Transport(opt.BucketHosts), slots: fairqueue.New(syncsAtOnce, mostSyncs, slowSync)}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	paths, err := filepath.Glob(filepath.Join(dir, "*", "*"))
	if err != nil {
		return nil, err
	}
	for _, path := range paths {
		if err := s.load(path); err != nil { // it is kept for the operator to examine
			s.opt.Log.Error("a volume cannot be used", "folder", path, "err", err)
		}
	}
	return s, nil
}

// load reads the volume in a folder. A folder without a record belongs to a volume that was never created, or was
// removed.
func (s *Store) load(dir string) error {
	text, err := os.ReadFile(filepath.Join(dir, recordFile))
	if errors.Is(err, fs.ErrNotExist) {
		return os.RemoveAll(dir)
	}
	if err != nil {
		return err
	}
	var rec record
	if err := json.Unmarshal(text, &rec); err != nil {
		return err
	}
	k := key{rec.Owner, rec.Volume.Name}
	if rec.Format != format || s.folder(k) != dir {
		return fmt.Errorf("%s is not the record of a volume of this version of Hutch", recordFile)
	}
	s.volumes[k] = &rec
	return s.sweep(dir, rec.Content, rec.Base)
}

// sweep removes the files of a volume that its record does not name.
func (s *Store) sweep(dir, content, base string) error {
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		if e.Name() != recordFile && e.Name() != content && e.Name() != base {
			err = errors.Join(err, os.Remove(filepath.Join(dir, e.Name())))
		}
	}
	return err
}

// folder returns the path of a volume's folder.
func (s *Store) folder(k key) string {
	sum := sha256.Sum256([]byte(k.owner))
	return filepath.Join(s.dir, hex.EncodeToString(sum[:16]), k.name)
}

// Create makes an empty volume.
func (s *Store) Create(owner string, req hutch.VolumeRequest) (hutch.Volume, error) {
	if err := req.Check(); err != nil {
		return hutch.Volume{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	k := key{owner, req.Name}
	if s.volumes[k] != nil {
		return hutch.Volume{}, hutch.Errorf(hutch.Conflict, "there is a volume %q already: use it, or choose another name", req.Name)
	}
	quota := cmp.Or(req.Quota, defaultQuota)
	if err := s.roomLocked(owner, int64(quota)<<20); err != nil {
		return hutch.Volume{}, err
	}
	now := time.Now().UTC()
	rec := &record{Format: format, Owner: owner, Volume: hutch.Volume{Name: req.Name, Quota: quota, CreatedAt: now, SavedAt: now, Bucket: req.Bucket}}
	dir := s.folder(k)
	if err := makeFolder(dir); err != nil {
		return hutch.Volume{}, durable.Explained(err, s.dir)
	}
	if err := s.write(k, rec); err != nil {
		return hutch.Volume{}, errors.Join(err, os.RemoveAll(dir))
	}
	s.volumes[k] = rec
	return rec.shown(), nil
}

// makeFolder makes the folder of a new volume.
func makeFolder(dir string) error {
	if err := os.MkdirAll(filepath.Dir(dir), 0o700); err != nil {
		return err
	}
	err := os.Mkdir(dir, 0o700)
	if errors.Is(err, fs.ErrExist) {
		return hutch.Errorf(hutch.Internal, "there is a volume %q whose record is damaged, as the log of the server says: choose another name", filepath.Base(dir))
	}
	return err
}

// roomLocked refuses a volume over the owner's limit of volumes, or with a quota over the owner's remaining limit.
func (s *Store) roomLocked(owner string, quota int64) error {
	n, left := 0, s.opt.Room
	for k, rec := range s.volumes {
		if k.owner == owner {
			n, left = n+1, left-int64(rec.Volume.Quota)<<20
		}
	}
	switch {
	case n >= mostVolumes:
		return hutch.Errorf(hutch.Exhausted, "there are %d volumes, as many as one owner can have: delete some", n).With("limit", "volumes")
	case owner != "" && quota > left:
		return hutch.Errorf(hutch.Exhausted, "the quotas of the volumes would be more than the server has for one owner, of which %d MiB are left: choose a smaller quota, or delete volumes", max(left, 0)>>20).With("limit", "volumes")
	}
	return nil
}

// write writes the record of a volume.
func (s *Store) write(k key, rec *record) error {
	text, err := json.Marshal(rec)
	if err != nil {
		return err
	}
	return durable.Replace(filepath.Join(s.folder(k), recordFile), text)
}

// shown returns the record as callers see it.
func (r *record) shown() hutch.Volume {
	v := r.Volume
	v.Uses = []hutch.VolumeUse{}
	v.Unsynced = r.unsynced()
	return v
}

// unsynced reports whether a volume has changes that are not in its bucket.
func (r *record) unsynced() bool { return r.Volume.Bucket != nil && r.Synced != r.Volume.Version }

// List returns the volumes of an owner, by name.
func (s *Store) List(owner string) []hutch.Volume {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := []hutch.Volume{}
	for k, rec := range s.volumes {
		if k.owner == owner {
			list = append(list, rec.shown())
		}
	}
	slices.SortFunc(list, func(a, b hutch.Volume) int { return strings.Compare(a.Name, b.Name) })
	return list
}

// Owners lists the owners of volumes, some of them several times.
func (s *Store) Owners() (list []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for k := range s.volumes {
		list = append(list, k.owner)
	}
	return list
}

// Find returns the record of a volume.
func (s *Store) Find(owner, name string) (hutch.Volume, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	rec, err := s.findLocked(key{owner, name})
	if err != nil {
		return hutch.Volume{}, err
	}
	return rec.shown(), nil
}

func (s *Store) findLocked(k key) (*record, error) {
	if rec := s.volumes[k]; rec != nil {
		return rec, nil
	}
	return nil, hutch.Errorf(hutch.NotFound, "there is no volume %q: list the volumes, or create it", k.name)
}

// Remove removes a volume, after any change of its content has ended. free is called with the store locked, and its
// error keeps the volume. force removes a volume with changes that are not in its bucket.
func (s *Store) Remove(ctx context.Context, owner, name string, force bool, free func() error) error {
	k := key{owner, name}
	dir := s.folder(k)
	if err := s.turns.Take(ctx, dir); err != nil {
		return err
	}
	defer s.turns.Put(dir)
	s.mu.Lock()
	defer s.mu.Unlock()
	rec, err := s.findLocked(k)
	if err == nil {
		err = free()
	}
	if err == nil && rec.unsynced() && !force {
		err = hutch.Errorf(hutch.Conflict, "the volume %q has changes that are not in its bucket yet: sync it first (`hutch volume sync %[1]s`), or delete it with force, which loses them", name)
	}
	if err != nil {
		return err
	}
	// Without its record the volume does not exist, whatever files are left of it.
	if err := os.Remove(filepath.Join(dir, recordFile)); err != nil {
		return err
	}
	delete(s.volumes, k)
	return errors.Join(durable.Sync(dir), os.RemoveAll(dir))
}

// note writes into a record why the last save of a volume did not work.
func (s *Store) note(k key, cause error) {
	s.setProblem(k, func(v *hutch.Volume) *string { return &v.Problem }, cause)
}

// setProblem writes the text of an error, or none, into a field of a record.
func (s *Store) setProblem(k key, field func(*hutch.Volume) *string, cause error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	rec := s.volumes[k]
	text := ""
	if cause != nil {
		text = hutch.AsError(cause).Message
	}
	text = strings.ToValidUTF8(text[:min(len(text), mostProblem)], "")
	if rec == nil || *field(&rec.Volume) == text {
		return
	}
	*field(&rec.Volume) = text
	if err := s.write(k, rec); err != nil {
		s.opt.Log.Warn("write why a volume could not be saved", "volume", k.name, "err", err)
	}
}
