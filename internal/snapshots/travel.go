package snapshots

import (
	"archive/tar"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"hutch"
	"hutch/internal/durable"
)

// A snapshot travels as a tar archive: its manifest, and then the files of the manifest, in the same order. Its names
// are not included, because they can change later.

// Send writes a snapshot, so that Receive can read it.
func (s *Snapshot) Send(w io.Writer) error {
	s.mu.Lock()
	files := s.Files
	text, err := json.Marshal(&s.Manifest)
	s.mu.Unlock()
	if err != nil {
		return err
	}
	out := tar.NewWriter(w)
	err = out.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: manifestFile, Size: int64(len(text)), Mode: 0o600})
	if err == nil {
		_, err = out.Write(text)
	}
	for _, f := range files {
		if err == nil {
			err = s.sendFile(out, f)
		}
	}
	return errors.Join(err, out.Close())
}

func (s *Snapshot) sendFile(out *tar.Writer, want savedFile) error {
	f, err := os.Open(filepath.Join(s.Dir, want.Path))
	if err != nil {
		return err
	}
	defer f.Close()
	if err := out.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: want.Path, Size: want.Size, Mode: 0o600}); err != nil {
		return err
	}
	_, err = io.Copy(out, f)
	return err
}

// Receive writes a snapshot that Send wrote on another machine to a folder that has no name yet. It refuses a snapshot
// with another id or owner, and files that differ from the manifest. The caller then calls Add or Discard. After an
// error nothing is left.
func (c *Catalog) Receive(id, owner string, r io.Reader) (s *Snapshot, err error) {
	if err := c.checkRoom(owner); err != nil {
		return nil, err
	}
	s = &Snapshot{Dir: filepath.Join(c.dir, "."+id), seen: map[string]stamp{}}
	if err := errors.Join(os.RemoveAll(s.Dir), os.MkdirAll(s.Memory(), 0o700)); err != nil {
		return nil, err
	}
	if err := s.receive(id, owner, tar.NewReader(r)); err != nil {
		return nil, c.Discard(s, err)
	}
	return s, nil
}

func (s *Snapshot) receive(id, owner string, in *tar.Reader) error {
	h, err := in.Next()
	if err != nil {
		return fmt.Errorf("read the manifest of a snapshot: %w", err)
	}
	if err := json.NewDecoder(io.LimitReader(in, h.Size)).Decode(&s.Manifest); err != nil {
		return fmt.Errorf("read the manifest of a snapshot: %w", err)
	}
	if s.Version != version {
		return hutch.Errorf(hutch.Conflict, "the snapshot %q was made by another version of Hutch (format %d, here %d): use it on a node with that version, or make it again", id, s.Version, version)
	}
	if s.Snapshot.ID != id || s.Snapshot.Owner != owner {
		return fmt.Errorf("the snapshot %.80q arrived instead of %q", s.Snapshot.ID, id)
	}
	for _, want := range s.Files {
		if err := s.receiveFile(want, in); err != nil {
			return err
		}
	}
	text, err := json.Marshal(&s.Manifest)
	if err != nil {
		return err
	}
	return errors.Join(durable.Create(filepath.Join(s.Dir, manifestFile), text), durable.Sync(s.Memory()))
}

// receiveFile writes the next file of an archive, with holes where there are only zeros. Its path must be that of the
// files archive, or directly in the memory folder.
func (s *Snapshot) receiveFile(want savedFile, in *tar.Reader) error {
	h, err := in.Next()
	if err != nil {
		return fmt.Errorf("read the files of a snapshot: %w", err)
	}
	inMemory := filepath.Dir(want.Path) == memoryFolder && filepath.IsLocal(want.Path)
	if h.Name != want.Path || h.Typeflag != tar.TypeReg || want.Path != filesArchive && !inMemory {
		return fmt.Errorf("%.80q cannot be in a snapshot", h.Name)
	}
	f, err := os.OpenFile(filepath.Join(s.Dir, want.Path), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = durable.CopySparse(f, in)
	if err := errors.Join(err, f.Close()); err != nil {
		return err
	}
	got, err := s.read(want.Path, true)
	if err == nil && got != want {
		err = fmt.Errorf("the file %s of a snapshot arrived as %+v instead of %+v", want.Path, got, want)
	}
	return err
}

// Add adds a received snapshot to the catalog. It leaves out names that are not valid, or that another snapshot of the
// owner has or is about to get.
func (c *Catalog) Add(s *Snapshot, names []string) error {
	c.naming.Lock()
	defer c.naming.Unlock()
	s.names = map[string]int{}
	for _, name := range names {
		if hutch.CheckTemplateName(name) != nil || c.hasName(s.Snapshot.Owner, name) {
			c.log.Warn("a snapshot came without one of its names, because another one has it", "snapshot", s.Snapshot.ID)
			continue
		}
		if err := c.addName(s, name); err != nil {
			return err
		}
	}
	if len(s.names) == 0 { // without the file of names, the manifest's name would apply
		if err := c.writeNames(s, s.names); err != nil {
			return err
		}
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

func (c *Catalog) hasName(owner, name string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, o := range c.making {
		if o.Owner == owner && o.Name == name {
			return true
		}
	}
	for _, o := range c.all {
		if _, has := o.names[name]; has && o.Snapshot.Owner == owner {
			return true
		}
	}
	return false
}

// checkRoom refuses a snapshot of another machine for an owner whose snapshots here have reached the limit of bytes.
// Their number is not limited here: the limit was checked where they were made.
func (c *Catalog) checkRoom(owner string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	var size int64
	for _, s := range c.all {
		if s.Snapshot.Owner == owner && !s.Expired(time.Now()) {
			size += s.Snapshot.Size
		}
	}
	if size >= maxSize { // the caller can be an owner with whom this snapshot is shared, so the size is not in the error
		return hutch.Errorf(hutch.Exhausted, "the other snapshots of its owner on this node have reached the limit of %d bytes, so it cannot come here: its owner deletes some of them first", int64(maxSize)).With("limit", "snapshots")
	}
	return nil
}

func fullOf(size int64) error {
	return hutch.Errorf(hutch.Exhausted, "the snapshots take %d bytes, and no more can be made from %d on: delete some first", size, int64(maxSize)).With("limit", "snapshots")
}

// CheckElsewhere refuses a new snapshot if its owner has too many snapshots that are on no machine. n is their number
// and size their total size in bytes.
func CheckElsewhere(n int, size int64) error {
	switch {
	case n >= maxSnapshots:
		return tooMany()
	case size >= maxSize:
		return fullOf(size)
	}
	return nil
}

func tooMany() error {
	return hutch.Errorf(hutch.Exhausted, "the limit of %d snapshots is reached: delete some first", maxSnapshots).With("limit", "snapshots")
}

// Hold keeps the files of a snapshot until release is called: meanwhile Unused returns false.
func (s *Snapshot) Hold() (release func()) {
	s.uses.RLock()
	return s.uses.RUnlock
}

// Unused calls do if no caller holds the snapshot, and reports whether it did.
func (s *Snapshot) Unused(do func() error) (unused bool, err error) {
	if !s.uses.TryLock() {
		return false, nil
	}
	defer s.uses.Unlock()
	return true, do()
}
