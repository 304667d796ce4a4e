package snapshots

import (
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"hutch"
	"hutch/internal/durable"
)

// Bounds on the snapshots of one owner: their number, and the bytes on disk from
// which on there can be no more.
const (
	maxSnapshots = 100
	maxSize      = 20 << 30
)

// Catalog is the snapshots of a server. Its methods are safe for concurrent use.
type Catalog struct {
	dir string
	log *slog.Logger

	mu     sync.Mutex
	all    map[string]*Snapshot
	making []hutch.Snapshot // reserved
}

// Open finds the snapshots in a folder, and removes what is half made or half
// deleted.
func Open(dir string, log *slog.Logger) (*Catalog, error) {
	c := &Catalog{dir: dir, log: log, all: map[string]*Snapshot{}}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	for _, entry := range entries {
		if hutch.CheckID(entry.Name()) != nil { // its name is not an id: not finished, or being deleted
			if err := os.RemoveAll(filepath.Join(dir, entry.Name())); err != nil {
				return nil, err
			}
			continue
		}
		s, err := load(filepath.Join(dir, entry.Name()))
		if err != nil || s.Snapshot.ID != entry.Name() {
			log.Error("a snapshot cannot be read", "snapshot", entry.Name(), "err", err)
			continue
		}
		c.all[s.Snapshot.ID] = s
	}
	return c, c.dropReplaced()
}

// dropReplaced removes the older of two snapshots with one name: the server ended
// before it could.
func (c *Catalog) dropReplaced() error {
	newest := map[[2]string]*Snapshot{}
	for _, s := range c.listLocked(Viewer{Server: true}) { // the oldest first
		if s.Snapshot.Name == "" {
			continue
		}
		key := [2]string{s.Snapshot.Owner, s.Snapshot.Name}
		if old := newest[key]; old != nil {
			delete(c.all, old.Snapshot.ID)
			if err := c.Remove(old); err != nil {
				return err
			}
		}
		newest[key] = s
	}
	return nil
}

func load(dir string) (*Snapshot, error) {
	s := &Snapshot{Dir: dir, seen: map[string]stamp{}}
	text, err := os.ReadFile(filepath.Join(dir, manifestFile))
	if err == nil {
		err = json.Unmarshal(text, &s.Manifest)
	}
	return s, err
}

// Reserve takes the name of a snapshot to be made, and its place among the
// owner's. The snapshot of the id in over, if there is one, does not count: it is to be
// replaced. The caller calls release when the snapshot is kept, or was given up.
func (c *Catalog) Reserve(v hutch.Snapshot, over string) (release func(), err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.checkLocked(v, over); err != nil {
		return nil, err
	}
	c.making = append(c.making, v)
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.making = slices.DeleteFunc(c.making, func(o hutch.Snapshot) bool { return o.ID == v.ID })
	}, nil
}

// checkLocked refuses a snapshot whose name is taken, or that is one too many.
func (c *Catalog) checkLocked(v hutch.Snapshot, over string) error {
	others := slices.Clone(c.making)
	for _, s := range c.all {
		if !s.Expired(time.Now()) && s.Snapshot.ID != over {
			others = append(others, s.Snapshot)
		}
	}
	n, size := 0, int64(0)
	for _, o := range others {
		if o.Owner != v.Owner {
			continue
		}
		size += o.Size
		if n++; v.Name != "" && (o.Name == v.Name || o.ID == v.Name) {
			return hutch.Errorf(hutch.Conflict, "there is a snapshot %q already: choose another name, or delete it first", v.Name).With("field", "name")
		}
	}
	if n >= maxSnapshots {
		return hutch.Errorf(hutch.Exhausted, "the limit of %d snapshots is reached: delete some first", maxSnapshots).With("limit", "snapshots")
	}
	if size >= maxSize {
		return hutch.Errorf(hutch.Exhausted, "the snapshots take %d bytes, and from %d on there can be no more: delete some first", size, int64(maxSize)).With("limit", "snapshots")
	}
	return nil
}

// Begin makes the folder of a new snapshot, which has no name yet. The caller
// fills it, and then calls Keep or Discard.
func (c *Catalog) Begin(v hutch.Snapshot) (*Snapshot, error) {
	s := &Snapshot{Dir: filepath.Join(c.dir, "."+v.ID)}
	s.Version, s.Snapshot = version, v
	return s, os.MkdirAll(s.Memory(), 0o700)
}

// Keep gives a snapshot its name, when all of it is on disk.
func (c *Catalog) Keep(s *Snapshot) error {
	if err := s.seal(); err != nil {
		return err
	}
	named := filepath.Join(c.dir, s.Snapshot.ID)
	if err := os.Rename(s.Dir, named); err != nil {
		return err
	}
	s.Dir = named
	if err := durable.Sync(c.dir); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.all[s.Snapshot.ID] = s
	return nil
}

// Discard removes a snapshot that could not be made, and returns why, with a
// better explanation where the disk was full.
func (c *Catalog) Discard(s *Snapshot, why error) error {
	why = durable.Explained(why, s.Dir)
	return errors.Join(why, os.RemoveAll(s.Dir))
}

// Forget takes a snapshot out of the catalog. Its files stay: see Remove.
func (c *Catalog) Forget(s *Snapshot) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.all, s.Snapshot.ID)
}

// Remove removes the files of a forgotten snapshot, its name first.
func (c *Catalog) Remove(s *Snapshot) error {
	gone := filepath.Join(c.dir, "."+s.Snapshot.ID)
	if err := os.Rename(s.Dir, gone); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return os.RemoveAll(gone)
}

// Expired lists the snapshots whose time is over.
func (c *Catalog) Expired() []*Snapshot {
	c.mu.Lock()
	defer c.mu.Unlock()
	var old []*Snapshot
	for _, s := range c.all {
		if s.Expired(time.Now()) {
			old = append(old, s)
		}
	}
	return old
}

// Viewer is who looks at snapshots. The server itself sees all.
type Viewer struct {
	Owner  string
	Server bool
}

// List lists the snapshots that a viewer can use, oldest first.
func (c *Catalog) List(v Viewer) []*Snapshot {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.listLocked(v)
}

func (c *Catalog) listLocked(v Viewer) []*Snapshot {
	var list []*Snapshot
	for _, s := range c.all {
		if (v.Server || s.Snapshot.Owner == v.Owner || s.Snapshot.Shared) && !s.Expired(time.Now()) {
			list = append(list, s)
		}
	}
	slices.SortFunc(list, func(a, b *Snapshot) int { return a.Snapshot.CreatedAt.Compare(b.Snapshot.CreatedAt) })
	return list
}

// Find returns a snapshot by id or name: the viewer's own before a shared one.
func (c *Catalog) Find(v Viewer, id string) (*Snapshot, error) {
	if err := hutch.CheckTemplateName(id); err != nil {
		return nil, err
	}
	id = hutch.TemplateName(id)
	c.mu.Lock()
	defer c.mu.Unlock()
	var found *Snapshot
	for _, s := range c.listLocked(v) {
		if (s.Snapshot.ID == id || s.Snapshot.Name == id) && (found == nil || s.Snapshot.Owner == v.Owner) {
			found = s
		}
	}
	if found == nil {
		return nil, hutch.Errorf(hutch.NotFound, "there is no snapshot %q: it was never made, was deleted, or has expired; list the snapshots", id)
	}
	return found, nil
}

// ByID returns the snapshot of an id for the server's own use.
func (c *Catalog) ByID(id string) (*Snapshot, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s := c.all[id]; s != nil && !s.Expired(time.Now()) {
		return s, nil
	}
	return nil, hutch.Errorf(hutch.NotFound, "there is no snapshot %q any more", id)
}

// Has reports whether there is a snapshot of an id.
func (c *Catalog) Has(id string) bool {
	_, err := c.ByID(id)
	return err == nil
}
