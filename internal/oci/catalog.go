package oci

import (
	"cmp"
	"context"
	"encoding/json"
	"os"
	"slices"
	"time"

	"hutch"
	"hutch/internal/durable"
)

// key identifies a record.
type key struct{ owner, digest string }

// record is an image's record on disk.
type record struct {
	Image
	ConfigDigest string    `json:"configDigest"`
	Changed      time.Time `json:"changed"`        // when its names last changed
	Keys         []string  `json:"keys,omitempty"` // keys of a step
}

func (r *record) key() key { return key{r.Owner, r.Digest} }

// file returns the name of the record's file in the folder of records.
func (r *record) file() string { return ownerHash(r.Owner) + "-" + r.Digest[len("sha256:"):] + ".json" }

// blobs returns the digests of all that the image consists of.
func (r *record) blobs() []string {
	all := []string{r.Digest, r.ConfigDigest}
	for _, l := range r.Layers {
		all = append(all, l.Digest)
	}
	return all
}

// files returns the paths below the store that the record needs. The unpacked tree of the root file system can be
// beside it.
func (r *record) files() []string {
	all := []string{rootFile(r.Layers)}
	for _, b := range r.blobs() {
		all = append(all, blobFile(b))
	}
	return all
}

func (r *record) clone() Image {
	i := r.Image
	i.References = slices.Clone(i.References)
	return i
}

// Images returns all images that an owner sees, the most recently added first. For the server, these are the images of
// all owners.
func (s *Store) Images(owner string) []Image {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := []Image{}
	for _, r := range s.records {
		if owner == "" || r.Owner == owner || r.Owner == "" {
			list = append(list, r.clone())
		}
	}
	slices.SortFunc(list, func(a, b Image) int {
		return cmp.Or(b.Added.Compare(a.Added), cmp.Compare(a.Digest, b.Digest), cmp.Compare(a.Owner, b.Owner))
	})
	return list
}

// Inspect finds an image of the store: the owner's own before a public one.
func (s *Store) Inspect(owner string, ref Reference) (Image, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r, err := s.findLocked(owner, ref)
	if err != nil {
		return Image{}, err
	}
	return r.clone(), nil
}

func (s *Store) findLocked(owner string, ref Reference) (*record, error) {
	for _, o := range []string{owner, ""} {
		for _, r := range s.records {
			if r.Owner == o && r.has(ref) {
				return r, nil
			}
		}
	}
	return nil, hutch.Errorf(hutch.NotFound, "there is no image %s here: see `hutch image ls`, or pull it", ref).Naming(hutch.AboutField, "image")
}

func (r *record) has(ref Reference) bool {
	return ref.digest != "" && ref.digest == r.Digest || slices.Contains(r.References, ref)
}

// Tag gives an image of the store another name. If another image of the owner has the name, the name moves. If the
// image is public, the owner gets its own record of it.
func (s *Store) Tag(owner string, source, target Reference) error {
	if err := nameable(target); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	r, err := s.findLocked(owner, source)
	if err != nil {
		return err
	}
	tagged := record{Image: r.Image, ConfigDigest: r.ConfigDigest}
	tagged.Step = false
	return s.explained(s.addLocked(tagged, owner, target))
}

// nameable refuses a text that cannot be the name of an image.
func nameable(ref Reference) error {
	if ref.repository == "" || ref.digest != "" {
		return badReference("%s cannot be the name of an image: write NAME or NAME:TAG", ref)
	}
	return nil
}

// addLocked puts a record on disk, and moves names to it. An image that the owner already has keeps its other names.
func (s *Store) addLocked(r record, owner string, names ...Reference) error {
	now := time.Now().UTC()
	r.Owner, r.References, r.Added, r.Used, r.Changed = owner, nil, now, now, now
	if old := s.records[r.key()]; old != nil {
		r.References, r.Added, r.Step = slices.Clone(old.References), old.Added, r.Step && old.Step
		r.Keys = lastKeys(append(slices.Clone(old.Keys), r.Keys...))
	} else if err := s.roomLocked(owner, r.Step); err != nil {
		return err
	}
	for _, n := range names {
		if !slices.Contains(r.References, n) && n.repository != "" {
			r.References = append(r.References, n)
		}
	}
	if err := s.saveLocked(&r); err != nil {
		return err
	}
	return s.takeNamesLocked(&r)
}

// roomLocked refuses one more image of an owner that has the allowed number already. There is such a limit because all
// records are in memory.
func (s *Store) roomLocked(owner string, step bool) error {
	if step {
		return s.stepRoomLocked(owner)
	}
	count := 0
	for k, r := range s.records {
		if k.owner == owner && !r.Step {
			count++
		}
	}
	if count >= s.o.Limits.Images {
		return hutch.Errorf(hutch.Exhausted, "there are %d images already: remove some with `hutch image rm` or `hutch image prune`", count).With("limit", "images")
	}
	return nil
}

// takeNamesLocked removes the names of a record from the other images of its owner.
func (s *Store) takeNamesLocked(r *record) error {
	for k, other := range s.records {
		if k.owner != r.Owner || k == r.key() {
			continue
		}
		left := *other
		left.References = slices.DeleteFunc(slices.Clone(other.References), func(ref Reference) bool { return slices.Contains(r.References, ref) })
		if len(left.References) == len(other.References) {
			continue
		}
		if err := s.saveLocked(&left); err != nil {
			return err
		}
	}
	return nil
}

// settleNames removes each name from all records except the one that changed last.
func (s *Store) settleNames() {
	type name struct {
		owner string
		ref   Reference
	}
	newest := map[name]*record{}
	for _, r := range s.records {
		for _, ref := range r.References {
			if old := newest[name{r.Owner, ref}]; old == nil || r.Changed.After(old.Changed) {
				newest[name{r.Owner, ref}] = r
			}
		}
	}
	for _, r := range s.records {
		r.References = slices.DeleteFunc(r.References, func(ref Reference) bool { return newest[name{r.Owner, ref}] != r })
	}
}

// saveLocked writes a record, and replaces an existing one.
func (s *Store) saveLocked(r *record) error {
	text, err := json.Marshal(r)
	if err != nil {
		return err
	}
	if err := durable.Replace(s.path(recordsDir, r.file()), text); err != nil {
		return err
	}
	s.records[r.key()] = r
	return nil
}

// deleteLocked removes a record; its files are collected later.
func (s *Store) deleteLocked(r *record) error {
	if err := os.Remove(s.path(recordsDir, r.file())); err != nil {
		return err
	}
	delete(s.records, r.key())
	return durable.Sync(s.path(recordsDir))
}

// holds reports whether the owner has received a blob, and it still exists unchanged.
func (s *Store) holds(owner, digest string, size int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.records {
		if (r.Owner == owner || r.Owner == "") && slices.Contains(r.blobs(), digest) {
			return s.size(blobFile(digest)) == size
		}
	}
	return false
}

// Use keeps an image and its root file system from being removed until release is called. It is called for each sandbox
// of the image, also when the server starts and finds the sandbox. owner is the owner of the sandbox.
func (s *Store) Use(owner, digest string) (release func()) {
	k := key{owner, digest}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.uses[k]++
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.uses[k]--; s.uses[k] == 0 {
			delete(s.uses, k)
		}
		s.touchLocked(k)
	}
}

// usedEvery is the precision of the time of the last use on disk.
const usedEvery = 10 * time.Minute

func (s *Store) touch(k key) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.touchLocked(k)
}

// touchLocked records that an image is used now.
func (s *Store) touchLocked(k key) {
	for _, k := range []key{k, {"", k.digest}} {
		r := s.records[k]
		if r == nil || time.Since(r.Used) < usedEvery {
			continue
		}
		used := *r
		used.Used = time.Now().UTC()
		if err := s.saveLocked(&used); err != nil {
			s.log.Warn("the last use of an image is not on disk", "image", k.digest, "err", err)
		}
	}
}

// inUseLocked reports whether a sandbox needs a record. A sandbox of any owner can need a public one.
func (s *Store) inUseLocked(r *record) bool {
	for k := range s.uses {
		if k.digest == r.Digest && (r.Owner == "" || k.owner == r.Owner) {
			return true
		}
	}
	return false
}

// Remove removes a name from an image of the owner, and the image itself if it has no other name. By digest it removes
// the image with all its names. An image in use is not removed: the error is of kind [hutch.Conflict].
func (s *Store) Remove(owner string, ref Reference) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	r, err := s.findLocked(owner, ref)
	if err != nil {
		return err
	}
	if r.Owner != owner {
		return hutch.Errorf(hutch.Denied, "the image %s belongs to the server: its administrator can remove it", ref)
	}
	left := *r
	left.Changed = time.Now().UTC()
	left.References = slices.DeleteFunc(slices.Clone(r.References), func(have Reference) bool { return have == ref })
	if ref.repository != "" && len(left.References) > 0 {
		return s.explained(s.saveLocked(&left))
	}
	if s.inUseLocked(r) {
		return hutch.Errorf(hutch.Conflict, "sandboxes use the image %s: delete them first", ref)
	}
	if err := s.deleteLocked(r); err != nil {
		return err
	}
	_, err = s.collectLocked()
	return err
}

// PruneOptions set which unused images are removed. If all are zero, none is removed.
type PruneOptions struct {
	Unnamed bool          // remove images without a name
	Unused  time.Duration // remove images that were not used for this long
	Bytes   int64         // remove the longest unused images, until the store uses no more bytes than this
	Roots   time.Duration // remove the root file systems of images that were not used for this long, but keep the images
}

// Pruned is what a prune removed.
type Pruned struct {
	Images []Image `json:"images"`
	Bytes  int64   `json:"bytes"` // bytes that are free on disk now
}

// Prune removes images of an owner; for the server, of all owners.
func (s *Store) Prune(ctx context.Context, owner string, o PruneOptions) (Pruned, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var gone Pruned
	for _, r := range s.idleLocked(owner) {
		if ctx.Err() != nil {
			return gone, context.Cause(ctx)
		}
		idle := time.Since(r.Used)
		var freed int64
		var err error
		switch {
		case o.Unnamed && len(r.References) == 0, o.Unused > 0 && idle > o.Unused, o.Bytes > 0 && s.bytesLocked() > o.Bytes:
			if err = s.deleteLocked(r); err == nil {
				gone.Images = append(gone.Images, r.clone())
				freed, err = s.collectLocked()
			}
		case o.Roots > 0 && idle > o.Roots:
			freed, err = s.dropRootLocked(r)
		}
		gone.Bytes += freed
		if err != nil {
			return gone, err
		}
	}
	return gone, nil
}

// idleLocked returns the records of an owner that are not in use, the longest unused first.
func (s *Store) idleLocked(owner string) []*record {
	var idle []*record
	for _, r := range s.records {
		if (owner == "" || r.Owner == owner) && !s.inUseLocked(r) {
			idle = append(idle, r)
		}
	}
	slices.SortFunc(idle, func(a, b *record) int { return a.Used.Compare(b.Used) })
	return idle
}

// bytesLocked returns the size of the blobs and roots of the store.
func (s *Store) bytesLocked() (sum int64) {
	counted := map[string]bool{}
	for _, r := range s.records {
		for _, f := range append(r.files(), rootFile(r.Layers)+treeSuffix) {
			if !counted[f] {
				counted[f] = true
				sum += s.size(f)
			}
		}
	}
	return sum
}

// dropRootLocked removes the root file system of an image, unless another image with the same root is in use.
func (s *Store) dropRootLocked(r *record) (int64, error) {
	file := rootFile(r.Layers)
	for _, other := range s.records {
		if rootFile(other.Layers) == file && s.inUseLocked(other) {
			return 0, nil
		}
	}
	if s.pinned[file] > 0 {
		return 0, nil
	}
	var freed int64
	for _, f := range []string{file + treeSuffix, file} {
		if s.size(f) == 0 {
			continue
		}
		bytes, err := s.removeFile(f)
		if freed += bytes; err != nil {
			return freed, err
		}
	}
	return freed, nil
}
