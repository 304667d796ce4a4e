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

// These limits are per owner: the number of snapshots, and the bytes on disk above which no more snapshots can be made.
const (
	maxSnapshots = 100
	maxSize      = 20 << 30
)

// Catalog is the snapshots of a server. Its methods are safe for concurrent use.
type Catalog struct {
	dir string
	log *slog.Logger

	naming sync.Mutex // held while names change, before mu
	given  int        // the highest number that a name has

	mu     sync.Mutex
	all    map[string]*Snapshot // mu also guards the names of snapshots
	making []hutch.Snapshot     // reserved by Reserve
}

// Open finds the snapshots in a folder, and removes unfinished and half-deleted ones.
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
		if hutch.CheckID(entry.Name()) != nil { // the name is not an id: the snapshot is unfinished or half-deleted
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
	return c, c.settleNames()
}

func load(dir string) (*Snapshot, error) {
	s := &Snapshot{Dir: dir, seen: map[string]stamp{}}
	text, err := os.ReadFile(filepath.Join(dir, manifestFile))
	if err == nil {
		err = json.Unmarshal(text, &s.Manifest)
	}
	if err == nil {
		err = s.loadNames()
	}
	return s, err
}

// Reserve reserves the name of a snapshot to be made, and counts the snapshot as one of its owner's. The snapshot with
// the id over, if there is one, is about to lose that name, and is not counted if it has no other name. The caller
// calls release when the snapshot was kept or given up.
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

// checkLocked refuses a snapshot whose name is in use, or that would exceed a limit of its owner.
func (c *Catalog) checkLocked(v hutch.Snapshot, over string) error {
	n, size := 0, int64(0)
	count := func(o hutch.Snapshot) { n, size = n+1, size+o.Size }
	for _, o := range c.making {
		if o.Owner != v.Owner {
			continue
		}
		if count(o); v.Name != "" && o.Name == v.Name {
			return nameTaken(v.Name)
		}
	}
	for _, s := range c.all {
		if s.Snapshot.Owner != v.Owner || s.Expired(time.Now()) {
			continue
		}
		replaced := s.Snapshot.ID == over
		if _, taken := s.names[v.Name]; taken && !replaced || s.Snapshot.ID == v.Name {
			return nameTaken(v.Name)
		}
		if !replaced || len(s.names) > 1 {
			count(s.Snapshot)
		}
	}
	if n >= maxSnapshots {
		return tooMany()
	}
	if size >= maxSize {
		return fullOf(size)
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

// Keep adds a snapshot to the catalog, when the whole snapshot is on disk. If another snapshot has its name, the name
// moves. If the other one then has no name, it is forgotten and returned, and the caller removes it.
func (c *Catalog) Keep(s *Snapshot) (replaced *Snapshot, err error) {
	if err := s.seal(); err != nil {
		return nil, err
	}
	c.naming.Lock()
	defer c.naming.Unlock()
	s.names = map[string]int{}
	name := s.Snapshot.Name
	if name != "" {
		if err := c.addName(s, name); err != nil {
			return nil, err
		}
	}
	named := filepath.Join(c.dir, s.Snapshot.ID)
	if err := os.Rename(s.Dir, named); err != nil {
		return nil, err
	}
	s.Dir = named
	if err := durable.Sync(c.dir); err != nil {
		return nil, err
	}
	old := c.add(s)
	replaced, err = c.takeFrom(old, name)
	if err != nil { // the new snapshot keeps the name, because its number is higher
		c.log.Error("take the name of a snapshot", "snapshot", old.Snapshot.ID, "err", err)
	}
	return replaced, nil
}

// add lists a snapshot, and returns the snapshot that had its name before, or nil.
func (c *Catalog) add(s *Snapshot) (old *Snapshot) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, o := range c.all {
		if _, has := o.names[s.Snapshot.Name]; has && o.Snapshot.Owner == s.Snapshot.Owner {
			old = o
		}
	}
	c.all[s.Snapshot.ID] = s
	return old
}

// Discard removes a snapshot that could not be made, and returns the error why, with a better explanation if the disk
// was full.
func (c *Catalog) Discard(s *Snapshot, why error) error {
	why = durable.Explained(why, s.Dir)
	return errors.Join(why, os.RemoveAll(s.Dir))
}

// Forget removes a snapshot from the catalog. Its files stay: see Remove.
func (c *Catalog) Forget(s *Snapshot) {
	c.naming.Lock()
	defer c.naming.Unlock()
	c.forget(s)
}

func (c *Catalog) forget(s *Snapshot) {
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

// Expired lists the snapshots that have expired.
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

// Viewer is the owner on whose behalf snapshots are listed or found. The server itself sees all snapshots.
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

// Find returns a snapshot by id or name. It prefers the viewer's own snapshot to a shared one.
func (c *Catalog) Find(v Viewer, id string) (*Snapshot, error) {
	if err := hutch.CheckTemplateName(id); err != nil {
		return nil, err
	}
	id = hutch.TemplateName(id)
	c.mu.Lock()
	defer c.mu.Unlock()
	var found *Snapshot
	for _, s := range c.listLocked(v) {
		if _, named := s.names[id]; (named || s.Snapshot.ID == id) && (found == nil || s.Snapshot.Owner == v.Owner) {
			found = s
		}
	}
	if found == nil {
		return nil, hutch.Errorf(hutch.NotFound, "there is no snapshot %q: it was never made, was deleted, or has expired; list the snapshots", id)
	}
	return found, nil
}

// ByID returns the snapshot with an id, for the server's own use.
func (c *Catalog) ByID(id string) (*Snapshot, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s := c.all[id]; s != nil && !s.Expired(time.Now()) {
		return s, nil
	}
	return nil, hutch.Errorf(hutch.NotFound, "there is no snapshot %q any more", id)
}

// Has reports whether there is a snapshot with an id.
func (c *Catalog) Has(id string) bool {
	_, err := c.ByID(id)
	return err == nil
}
