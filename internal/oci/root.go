package oci

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

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"hutch"
	"hutch/internal/oci/rootfs"
)

// rootFile returns the path of an image's root file system in the store. Images with the same layers share it. Its name
// comes from the layers' own digests, which were checked, not from a configuration.
func rootFile(layers []Layer) string {
	sum := sha256.New()
	fmt.Fprintln(sum, rootfs.Version)
	for _, l := range layers {
		fmt.Fprintln(sum, l.Digest)
	}
	return filepath.Join(rootsDir, hex.EncodeToString(sum.Sum(nil))+".erofs")
}

// Root returns the path of the image's root file system, an EROFS file. If the file is missing, Root makes it. Call
// Use first, so that the file is not removed.
func (s *Store) Root(ctx context.Context, owner, digest string) (path string, err error) {
	s.mu.Lock()
	r, err := s.findLocked(owner, Reference{digest: digest})
	if err != nil {
		s.mu.Unlock()
		return "", err
	}
	s.touchLocked(r.key())
	image := *r
	s.mu.Unlock()

	file := rootFile(image.Layers)
	defer s.pin(image.files()...)()
	if err := s.building.Take(ctx, file); err != nil {
		return "", err
	}
	defer s.building.Put(file)
	if s.size(file) > 0 {
		return s.path(file), nil
	}
	return s.path(file), s.explained(s.makeRoot(ctx, image, file))
}

func (s *Store) makeRoot(ctx context.Context, image record, file string) error {
	layers, err := s.rootLayers(image)
	if err != nil {
		return err
	}
	end, err := s.builder.Take(ctx, image.Owner)
	if err != nil {
		return err
	}
	defer end()
	l, left := s.o.Limits, s.roomLeft(image.Owner)
	if left <= 0 {
		return s.noRoom(left)
	}
	l.Bytes = min(l.Bytes, left)
	write := func(base *os.File, above []rootfs.Layer) error {
		return s.writeTemp(file, func(f *os.File) error {
			return rootfs.Write(ctx, f, above, rootfs.Options{
				Limits: rootfs.Limits{Bytes: l.Bytes, Entries: l.Entries, Names: int64(l.Entries) * 256, Path: l.Path, Ratio: l.Ratio},
				Base:   base,
				Temp:   s.path(tempDir),
			})
		})
	}
	base, below := s.openBase(image.Layers)
	if base != nil {
		defer base.Close()
	}
	err = write(base, layers[below:])
	if errors.Is(err, rootfs.ErrDamaged) {
		s.log.Error("a root file system is damaged on disk and is removed: it is made again when it is needed", "file", base.Name())
		os.Remove(base.Name())
	}
	if errors.Is(err, rootfs.ErrDamaged) || errors.Is(err, rootfs.ErrUnsealed) {
		err = write(nil, layers)
	}
	if errors.Is(err, hutch.Invalid) {
		s.dropDamaged(image)
	}
	return err
}

// openBase opens the finished root file system of as many of the first layers as possible, but not of all, and returns
// the number of these layers. If there is no such file system, the file is nil.
func (s *Store) openBase(layers []Layer) (*os.File, int) {
	for n := len(layers) - 1; n > 0; n-- {
		if f, err := os.Open(s.path(rootFile(layers[:n]))); err == nil {
			return f, n
		}
	}
	return nil, 0
}

func (s *Store) rootLayers(image record) ([]rootfs.Layer, error) {
	text, err := os.ReadFile(s.blobPath(image.ConfigDigest))
	if err != nil {
		return nil, err
	}
	var config v1.ConfigFile
	if err := json.Unmarshal(text, &config); err != nil {
		return nil, err
	}
	if len(config.RootFS.DiffIDs) != len(image.Layers) {
		return nil, layerCount(len(config.RootFS.DiffIDs), len(image.Layers))
	}
	var layers []rootfs.Layer
	for i, l := range image.Layers {
		layers = append(layers, rootfs.Layer{Name: l.Digest, DiffID: config.RootFS.DiffIDs[i].String(), Open: func() (io.ReadCloser, error) {
			return os.Open(s.blobPath(l.Digest))
		}})
	}
	return layers, nil
}

func layerCount(described, present int) error {
	return hutch.Errorf(hutch.Invalid, "the image describes %d layers and has %d: have it built or pushed again", described, present)
}

// dropDamaged removes layers that the disk has changed, so that the next pull fetches them again.
func (s *Store) dropDamaged(image record) {
	for _, l := range image.Layers {
		f, err := os.Open(s.blobPath(l.Digest))
		if err != nil {
			continue
		}
		sum := sha256.New()
		_, err = io.Copy(sum, f)
		f.Close()
		if err == nil && "sha256:"+hex.EncodeToString(sum.Sum(nil)) != l.Digest {
			s.log.Error("a layer is damaged on disk and is removed: pull the image again", "layer", l.Digest)
			os.Remove(s.blobPath(l.Digest))
		}
	}
}

// User finds a user in /etc/passwd and /etc/group of an image; no program of the image runs. The text has Docker's
// form: USER, UID, USER:GROUP or any mix of names and numbers. The empty text is the user of the image's configuration,
// and root when it has none. A name that the image does not have is an error of kind [hutch.NotFound].
func (s *Store) User(ctx context.Context, owner, digest, text string) (User, error) {
	image, err := s.Inspect(owner, Reference{digest: digest})
	if err != nil {
		return User{}, err
	}
	if text == "" {
		text = image.Config.User
	}
	path, err := s.Root(ctx, owner, digest)
	if err != nil {
		return User{}, err
	}
	return rootfs.LookupUser(path, text)
}
