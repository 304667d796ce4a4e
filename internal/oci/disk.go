package oci

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"hutch/internal/durable"
	"hutch/internal/linux/subid"
)

// The folders of a store.
const (
	blobsDir   = "blobs/sha256"
	partialDir = "partial"
	recordsDir = "records"
	rootsDir   = "roots"
	tempDir    = "tmp"
)

// layoutFile marks the folder as an OCI layout.
const layoutFile = "oci-layout"

// partialAge is how long received parts of a layer are kept for another pull.
const partialAge = 7 * 24 * time.Hour

func (s *Store) path(parts ...string) string {
	return filepath.Join(append([]string{s.dir}, parts...)...)
}

// blobFile returns the path of a blob in the folder of the store.
func blobFile(digest string) string {
	return filepath.Join(blobsDir, strings.TrimPrefix(digest, "sha256:"))
}

func (s *Store) blobPath(digest string) string { return s.path(blobFile(digest)) }

// ownerHash returns the part of a file name that identifies an owner.
func ownerHash(owner string) string {
	sum := sha256.Sum256([]byte(owner))
	return hex.EncodeToString(sum[:8])
}

// sweep makes the folders, removes unfinished files of an earlier process, reads the records, and removes everything
// that no record needs.
func (s *Store) sweep() error {
	if err := subid.RemoveAll(s.path(tempDir)); errors.Is(err, fs.ErrPermission) { // it was made with ids that the user no longer has
		s.log.Warn("remains of unpacked images belong to subordinate ids that this user no longer has: remove the folder as root", "path", s.path(tempDir), "err", err)
	} else if err != nil {
		return err
	}
	for _, dir := range []string{blobsDir, partialDir, recordsDir, rootsDir, tempDir} {
		if err := os.MkdirAll(s.path(dir), 0o711); err != nil {
			return err
		}
	}
	if _, err := os.Stat(s.path(layoutFile)); errors.Is(err, fs.ErrNotExist) {
		if err := durable.Replace(s.path(layoutFile), []byte(`{"imageLayoutVersion":"1.0.0"}`)); err != nil {
			return err
		}
	}
	if err := s.removeOld(partialDir, partialAge); err != nil {
		return err
	}
	if err := s.readRecords(); err != nil {
		return err
	}
	_, err := s.collectLocked() // no other call has the store yet
	return err
}

// removeOld removes files that were not written for a while.
func (s *Store) removeOld(dir string, age time.Duration) error {
	entries, err := os.ReadDir(s.path(dir))
	if err != nil {
		return err
	}
	for _, e := range entries {
		if info, err := e.Info(); err == nil && time.Since(info.ModTime()) > age {
			if err := os.Remove(s.path(dir, e.Name())); err != nil {
				return err
			}
		}
	}
	return nil
}

// readRecords fills records. If two records have the same name, because the server was killed while it moved the name,
// the record that changed last keeps it.
func (s *Store) readRecords() error {
	entries, err := os.ReadDir(s.path(recordsDir))
	if err != nil {
		return err
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), ".") { // a file that package durable had not finished
			if err := os.Remove(s.path(recordsDir, e.Name())); err != nil {
				return err
			}
			continue
		}
		r := &record{}
		text, err := os.ReadFile(s.path(recordsDir, e.Name()))
		if err == nil {
			err = json.Unmarshal(text, r)
		}
		if err != nil || r.file() != e.Name() {
			s.log.Error("the record of an image cannot be read", "file", e.Name(), "err", err)
			continue
		}
		s.records[r.key()] = r
	}
	s.settleNames()
	return nil
}

// pin keeps files, given by their path below the store, until release is called.
func (s *Store) pin(files ...string) (release func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.pinLocked(files)
}

func (s *Store) pinLocked(files []string) (release func()) {
	for _, f := range files {
		s.pinned[f]++
	}
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, f := range files {
			if s.pinned[f]--; s.pinned[f] == 0 {
				delete(s.pinned, f)
			}
		}
	}
}

// collectLocked removes blobs and roots that no record needs, and returns their bytes.
func (s *Store) collectLocked() (freed int64, err error) {
	needed := map[string]bool{}
	for _, r := range s.records {
		for _, f := range r.files() {
			needed[f] = true
		}
	}
	for _, dir := range []string{blobsDir, rootsDir} {
		entries, err := os.ReadDir(s.path(dir))
		if err != nil {
			return freed, err
		}
		for _, e := range entries {
			file := filepath.Join(dir, fileOfTree(e.Name()))
			if needed[file] || s.pinned[file] > 0 || strings.HasPrefix(e.Name(), ".") { // a tree that is being unpacked begins with a dot
				continue
			}
			bytes, err := s.removeFile(filepath.Join(dir, e.Name()))
			if freed += bytes; err != nil {
				return freed, err
			}
		}
	}
	return freed, nil
}

// treeSuffix follows the name of the EROFS file in the name of the folder into which a runtime unpacks it;
// image.TreePath has it, too. The ids that own the content can follow it.
const treeSuffix = ".tree"

// fileOfTree returns the name of the file that a tree was unpacked from, or the name itself if it is not the name of a
// tree.
func fileOfTree(name string) string {
	file, _, _ := strings.Cut(name, treeSuffix)
	return file
}

// removeFile removes a file or a tree of the store, and returns its bytes. A tree is renamed at once; its content is
// removed in the background.
func (s *Store) removeFile(file string) (freed int64, err error) {
	freed = s.size(file)
	if !strings.Contains(filepath.Base(file), treeSuffix) {
		return freed, os.Remove(s.path(file))
	}
	gone, err := os.MkdirTemp(s.path(tempDir), "gone-*")
	if err == nil {
		err = os.Rename(s.path(file), filepath.Join(gone, "tree"))
	}
	if err != nil {
		return 0, err
	}
	s.work.Go(func() {
		if err := subid.RemoveAll(gone); err != nil {
			s.log.Warn("an unpacked image that is not needed stays until the server starts again", "path", gone, "err", err)
		}
	})
	return freed, nil
}

// size returns the size of a file of the store, or of the content of a folder; 0 when it does not exist.
func (s *Store) size(file string) int64 {
	info, err := os.Lstat(s.path(file))
	switch {
	case err != nil:
		return 0
	case info.IsDir():
		return s.treeSize(file)
	}
	return info.Size()
}

func (s *Store) treeSize(dir string) (sum int64) {
	filepath.WalkDir(s.path(dir), func(_ string, e fs.DirEntry, err error) error {
		if err != nil {
			return nil // it was removed meanwhile
		}
		if info, err := e.Info(); err == nil {
			sum += info.Size()
		}
		return nil
	})
	return sum
}

// writeTemp makes a temporary file, calls a function to fill it, and gives it its name when it is on disk.
func (s *Store) writeTemp(name string, fill func(*os.File) error) error {
	f, err := os.CreateTemp(s.path(tempDir), "new-*") // mode 0600
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	if err = fill(f); err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	return s.rename(f.Name(), name)
}

// rename gives a file that is on disk its name in the store.
func (s *Store) rename(from, name string) error {
	if err := os.Rename(from, s.path(name)); err != nil {
		return err
	}
	return durable.Sync(filepath.Dir(s.path(name)))
}

// digestOf returns the digest of a document.
func digestOf(content []byte) string {
	sum := sha256.Sum256(content)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// writeDocument keeps a manifest or a configuration.
func (s *Store) writeDocument(content []byte) error {
	file := blobFile(digestOf(content))
	if s.size(file) == int64(len(content)) {
		return nil
	}
	return s.writeTemp(file, func(f *os.File) error {
		_, err := f.Write(content)
		return err
	})
}
