package snapshots

import (
	"cmp"
	"encoding/json"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"hutch"
	"hutch/internal/durable"
)

// Only the names of a snapshot ever change. They are in a file of the snapshot's folder, each with a number that is
// higher than the numbers of all earlier names. A name that moves is first written for its new snapshot, and then
// removed from the old one. If the server ends in between, Open finds the name twice and completes the move: the higher
// number wins.

const namesFile = "names.json"

// loadNames reads the names of a snapshot. A snapshot from before this file existed has its name in the
// manifest.
func (s *Snapshot) loadNames() error {
	text, err := os.ReadFile(filepath.Join(s.Dir, namesFile))
	if errors.Is(err, os.ErrNotExist) {
		s.names = map[string]int{}
		if s.Snapshot.Name != "" {
			s.names[s.Snapshot.Name] = 0
		}
		return nil
	}
	if err == nil {
		err = json.Unmarshal(text, &s.names)
	}
	return err
}

// settleNames completes moves of names that the server's end interrupted. A snapshot that loses its last name is
// removed.
func (c *Catalog) settleNames() error {
	holders := map[[2]string]*Snapshot{}
	for _, s := range c.listLocked(Viewer{Server: true}) { // oldest first
		for name, number := range s.names {
			c.given = max(c.given, number)
			key := [2]string{s.Snapshot.Owner, name}
			old := holders[key]
			if old == nil {
				holders[key] = s
				continue
			}
			loser := old
			if number < old.names[name] {
				loser = s
			} else {
				holders[key] = s
			}
			last, err := c.take(loser, name)
			if err == nil && last {
				err = c.Remove(loser)
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// Record returns the snapshot's record, with its present names.
func (c *Catalog) Record(s *Snapshot) hutch.Snapshot {
	c.mu.Lock()
	defer c.mu.Unlock()
	v := s.Snapshot
	v.Name, v.Names = "", slices.SortedFunc(maps.Keys(s.names), func(a, b string) int {
		return cmp.Or(cmp.Compare(s.names[a], s.names[b]), cmp.Compare(a, b))
	})
	if len(v.Names) > 0 {
		v.Name = v.Names[0]
	}
	return v
}

// Tag gives a snapshot another name. If another snapshot of the owner has the name, Tag moves it if move is true, and
// otherwise returns Conflict. If the other snapshot then has no name, it is forgotten and returned, and the caller
// removes it.
func (c *Catalog) Tag(s *Snapshot, name string, move bool) (lost *Snapshot, err error) {
	c.naming.Lock()
	defer c.naming.Unlock()
	old, err := c.holder(s, name)
	switch {
	case err != nil || old == s:
		return nil, err
	case old != nil && !move:
		return nil, nameTaken(name)
	}
	before := s.names
	if err := c.addName(s, name); err != nil {
		return nil, err
	}
	if lost, err = c.takeFrom(old, name); err != nil {
		err = errors.Join(err, c.writeNames(s, before))
	}
	return lost, err
}

// Untag removes a name of a snapshot. If that was its last name, the snapshot is forgotten, and the caller removes it.
func (c *Catalog) Untag(s *Snapshot, name string) (last bool, err error) {
	c.naming.Lock()
	defer c.naming.Unlock()
	return c.take(s, hutch.TemplateName(name))
}

func nameTaken(name string) error {
	return hutch.Errorf(hutch.Conflict, "there is a snapshot or template %q already: choose another name, replace that one, or delete it first", name).Naming(hutch.AboutField, "name")
}

// holder returns the snapshot with a name among those of the owner of s, or nil. It refuses a name that s cannot get.
func (c *Catalog) holder(s *Snapshot, name string) (old *Snapshot, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.all[s.Snapshot.ID] != s {
		return nil, hutch.Errorf(hutch.NotFound, "there is no snapshot %q any more", s.Snapshot.ID)
	}
	for _, o := range c.making {
		if o.Owner == s.Snapshot.Owner && o.Name == name {
			return nil, hutch.Errorf(hutch.Conflict, "a snapshot %q is being made: try again when it is there", name).Naming(hutch.AboutField, "name")
		}
	}
	for _, o := range c.all {
		if o.Snapshot.Owner != s.Snapshot.Owner || o.Expired(time.Now()) {
			continue
		}
		if o.Snapshot.ID == name {
			return nil, nameTaken(name)
		}
		if _, has := o.names[name]; has {
			old = o
		}
	}
	if old != s && len(s.names) >= hutch.MaxSnapshotNames {
		return nil, hutch.Errorf(hutch.Exhausted, "the snapshot has %d names, and can have no more: remove some first", len(s.names)).With("limit", "names")
	}
	return old, nil
}

// addName writes one more name of a snapshot. c.naming is held.
func (c *Catalog) addName(s *Snapshot, name string) error {
	c.given++
	names := maps.Clone(s.names)
	names[name] = c.given
	return c.writeNames(s, names)
}

// takeFrom removes a name from a snapshot, and returns the snapshot if that was its last name. For nil it does nothing.
// c.naming is held.
func (c *Catalog) takeFrom(s *Snapshot, name string) (lost *Snapshot, err error) {
	if s == nil {
		return nil, nil
	}
	if last, err := c.take(s, name); err != nil || !last {
		return nil, err
	}
	return s, nil
}

// take removes a name, and forgets the snapshot if that was its last name. c.naming is held.
func (c *Catalog) take(s *Snapshot, name string) (last bool, err error) {
	names := maps.Clone(s.names)
	delete(names, name)
	if len(names) == 0 {
		c.forget(s)
		return true, nil
	}
	return false, c.writeNames(s, names)
}

// writeNames sets the names of a snapshot, on disk first. c.naming is held.
func (c *Catalog) writeNames(s *Snapshot, names map[string]int) error {
	text, err := json.Marshal(names)
	if err == nil {
		err = durable.Replace(filepath.Join(s.Dir, namesFile), text)
	}
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	s.names = names
	return nil
}
