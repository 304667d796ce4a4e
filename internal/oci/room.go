package oci

import (
	"math"
	"os"
	"strings"

	"hutch"
)

// The room of an owner is the disk space that its images can use: blobs, root file systems, unpacked trees, and
// received parts of interrupted pulls. A pull reserves its space before its first layer arrives, so many pulls at once
// cannot use more. Images of the server have no such limit.

// takeRoom reserves bytes for an owner until release is called, when the received data is recorded.
func (s *Store) takeRoom(owner string, bytes int64) (release func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if left := s.roomLeftLocked(owner); bytes > left {
		return nil, s.noRoom(left)
	}
	s.reserved[owner] += bytes
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.reserved[owner] -= bytes; s.reserved[owner] == 0 {
			delete(s.reserved, owner)
		}
	}, nil
}

func (s *Store) noRoom(left int64) error {
	return hutch.Errorf(hutch.Exhausted, "your images can take %d MiB together, and %d MiB are left: remove some with `hutch image rm` or `hutch image prune`", s.o.Limits.Room>>20, max(left, 0)>>20).With("limit", "image room")
}

// roomLeft returns how many bytes more an owner's images can take.
func (s *Store) roomLeft(owner string) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.roomLeftLocked(owner)
}

func (s *Store) roomLeftLocked(owner string) int64 {
	if owner == "" {
		return math.MaxInt64
	}
	left := s.o.Limits.Room - s.reserved[owner] - s.partialBytes(owner)
	counted := map[string]bool{}
	for k, r := range s.records {
		if k.owner != owner {
			continue
		}
		for _, f := range append(r.files(), rootFile(r.Layers)+treeSuffix) {
			if !counted[f] {
				counted[f] = true
				left -= s.size(f)
			}
		}
	}
	return left
}

// partialBytes returns the size of the received parts of an owner's interrupted pulls.
func (s *Store) partialBytes(owner string) (sum int64) {
	entries, _ := os.ReadDir(s.path(partialDir))
	for _, e := range entries {
		if info, err := e.Info(); err == nil && strings.HasPrefix(e.Name(), ownerHash(owner)+"-") {
			sum += info.Size()
		}
	}
	return sum
}

// missing returns how many bytes of an image's layers an owner does not have.
func (s *Store) missing(owner string, layers []Layer) (sum int64) {
	counted := map[string]bool{}
	for _, l := range layers {
		if !counted[l.Digest] && !s.holds(owner, l.Digest, l.Size) {
			counted[l.Digest] = true
			sum += l.Size
		}
	}
	return sum
}
