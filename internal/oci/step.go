package oci

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"hutch"
	"hutch/internal/oci/rootfs"
)

// A step is an image without a name that a build leaves behind: the layers up to one of its steps. It is found again
// only by its keys. It is counted, kept and removed like other images, and it is the first to be removed when its
// owner needs disk space.

// mostSteps is how many steps of one owner are kept, and mostKeys how many keys of one step.
const (
	mostSteps = 2000
	mostKeys  = 16
)

// StepOptions are the inputs of a step.
type StepOptions struct {
	Owner string
	Base  string // digest of an image that the owner sees; empty for nothing
	Key   string
	By    string // the text in its history
	// User and WorkingDir are what sandboxes of the step begin with.
	User, WorkingDir string
	// Fill writes the new layer, as a plain tar stream; nil adds none.
	Fill func(io.Writer) error
}

// AddStep makes a step of an image and a layer over it. The configuration of a step has no settings for programs
// except their user and folder. The step's root file system is made when it is needed.
func (s *Store) AddStep(ctx context.Context, o StepOptions) (Image, error) {
	base, release, err := s.stepBase(o)
	if err != nil {
		return Image{}, err
	}
	defer release()
	dir, err := os.MkdirTemp(s.path(tempDir), "step-*")
	if err != nil {
		return Image{}, s.explained(err)
	}
	defer os.RemoveAll(dir)
	var l *newLayer
	if o.Fill != nil {
		received, err := s.receiveLayer(ctx, filepath.Join(dir, "layer"), o.Fill)
		if err != nil {
			return Image{}, s.explained(err)
		}
		taken, err := s.takeRoomOfSteps(o.Owner, received.size)
		if err != nil {
			return Image{}, err
		}
		defer taken()
		l = &received
	}
	image, err := s.keepStep(base, l, o)
	return image, s.explained(err)
}

// stepBase finds the image under a step.
func (s *Store) stepBase(o StepOptions) (base *record, release func(), err error) {
	if o.Base == "" {
		return nil, func() {}, nil
	}
	list, release, err := s.hold(o.Owner, []Reference{{digest: o.Base}})
	if err != nil {
		return nil, nil, err
	}
	return &list[0], release, nil
}

func (s *Store) keepStep(base *record, l *newLayer, o StepOptions) (Image, error) {
	config, manifest, err := s.stepDocuments(base, l, o)
	if err != nil {
		return Image{}, err
	}
	d, err := parseDocument(manifest)
	if err == nil {
		err = s.check(d)
	}
	if err != nil {
		return Image{}, err
	}
	r, err := s.describe(manifest, d, config, platform{"linux", runtime.GOARCH, ""})
	if err != nil {
		return Image{}, err
	}
	r.Step, r.Keys = true, []string{o.Key}
	defer s.pin(documentFiles(manifest, d)...)()
	if l != nil {
		if err := s.linkBlob(l.archived); err != nil {
			return Image{}, err
		}
	}
	if err := s.takeKey(o.Owner, o.Key); err != nil {
		return Image{}, err
	}
	return s.keep(r, manifest, config, o.Owner)
}

// takeKey removes a key from the step that has it, because a newer step will have it.
func (s *Store) takeKey(owner, name string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for k, r := range s.records {
		if k.owner != owner || !slices.Contains(r.Keys, name) {
			continue
		}
		left := *r
		left.Keys = slices.DeleteFunc(slices.Clone(r.Keys), func(have string) bool { return have == name })
		if err := s.saveLocked(&left); err != nil {
			return err
		}
	}
	return nil
}

// stepDocuments returns the configuration and the manifest of a step. They contain no time, so the same layers give
// the same step.
func (s *Store) stepDocuments(base *record, l *newLayer, o StepOptions) (config, manifest []byte, err error) {
	c := v1.ConfigFile{Architecture: runtime.GOARCH, OS: "linux", RootFS: v1.RootFS{Type: "layers", DiffIDs: []v1.Hash{}}}
	c.Config.User, c.Config.WorkingDir = o.User, o.WorkingDir
	m := v1.Manifest{SchemaVersion: 2, MediaType: types.OCIManifestSchema1, Layers: []v1.Descriptor{}}
	if base != nil {
		var was v1.ConfigFile
		if err := errors.Join(s.document(base.ConfigDigest, &was), s.document(base.Digest, &m)); err != nil {
			return nil, nil, err
		}
		c.Architecture, c.RootFS.DiffIDs, c.History = was.Architecture, was.RootFS.DiffIDs, was.History
		m.Annotations, m.Subject = nil, nil // they are about the base
	}
	if l != nil {
		if err := appendLayer(&c, &m, *l, o.By); err != nil {
			return nil, nil, err
		}
	}
	if config, err = json.Marshal(c); err != nil {
		return nil, nil, err
	}
	manifest, err = finishManifest(m, config)
	return config, manifest, err
}

func appendLayer(c *v1.ConfigFile, m *v1.Manifest, l newLayer, by string) error {
	digest, err := v1.NewHash(l.digest)
	if err != nil {
		return err
	}
	diffID, err := v1.NewHash(l.diffID)
	if err != nil {
		return err
	}
	kind := types.OCILayer
	if m.MediaType == types.DockerManifestSchema2 {
		kind = types.DockerLayer
	}
	m.Layers = append(m.Layers, v1.Descriptor{MediaType: kind, Size: l.size, Digest: digest})
	c.RootFS.DiffIDs = append(c.RootFS.DiffIDs, diffID)
	c.History = append(c.History, v1.History{CreatedBy: by})
	return nil
}

// finishManifest names the configuration in a manifest.
func finishManifest(m v1.Manifest, config []byte) ([]byte, error) {
	digest, err := v1.NewHash(digestOf(config))
	if err != nil {
		return nil, err
	}
	if m.Config.MediaType == "" {
		m.Config.MediaType = types.OCIConfigJSON
	}
	m.Config.Digest, m.Config.Size, m.Config.Data = digest, int64(len(config)), nil
	return json.Marshal(m)
}

// document reads a manifest or a configuration of the store.
func (s *Store) document(digest string, v any) error {
	text, err := os.ReadFile(s.blobPath(digest))
	if err != nil {
		return err
	}
	return json.Unmarshal(text, v)
}

// Step finds a step of an owner by one of its keys, and records that it is used.
func (s *Store) Step(owner, name string) (Image, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.records {
		if r.Owner == owner && slices.Contains(r.Keys, name) {
			s.touchLocked(r.key())
			return s.records[r.key()].clone(), true
		}
	}
	return Image{}, false
}

// AlsoKey gives a step one more key. If the step has too many keys, the oldest one is removed.
func (s *Store) AlsoKey(owner, digest, name string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.records[key{owner, digest}]
	if r == nil || !r.Step || slices.Contains(r.Keys, name) {
		return nil
	}
	more := *r
	more.Keys = lastKeys(append(slices.Clone(r.Keys), name))
	return s.explained(s.saveLocked(&more))
}

func lastKeys(keys []string) []string { return keys[max(0, len(keys)-mostKeys):] }

// FinishOptions describe the image of a build.
type FinishOptions struct {
	Owner  string
	From   string    // digest of the last step
	Config []byte    // the configuration; the information about layers in it is replaced
	Name   Reference // name of the image; the zero value gives none
}

// Finish makes an image of the layers of a step and of a configuration. Its root file system is made before its record.
// Its time is that of the step, so the same layers with the same configuration are the same image.
func (s *Store) Finish(ctx context.Context, o FinishOptions) (Image, error) {
	list, release, err := s.hold(o.Owner, []Reference{{digest: o.From}})
	if err != nil {
		return Image{}, err
	}
	defer release()
	config, manifest, err := s.finishDocuments(list[0], o.Config)
	if err != nil {
		return Image{}, err
	}
	d, err := parseDocument(manifest)
	if err != nil {
		return Image{}, err
	}
	r, err := s.describe(manifest, d, config, platform{list[0].OS, list[0].Architecture, ""})
	if err != nil {
		return Image{}, err
	}
	file := rootFile(r.Layers)
	defer s.pin(append(documentFiles(manifest, d), file)...)()
	if err := errors.Join(s.writeDocument(config), s.building.Take(ctx, file)); err != nil {
		return Image{}, s.explained(err)
	}
	defer s.building.Put(file)
	if s.size(file) == 0 {
		if err := s.makeRoot(ctx, r, file); err != nil {
			return Image{}, s.explained(err)
		}
	}
	return s.keep(r, manifest, config, o.Owner, o.Name)
}

func (s *Store) finishDocuments(from record, config []byte) (_, manifest []byte, err error) {
	var was v1.ConfigFile
	var m v1.Manifest
	all := map[string]json.RawMessage{}
	var given struct {
		History []v1.History `json:"history"`
	}
	if err := errors.Join(s.document(from.ConfigDigest, &was), s.document(from.Digest, &m), json.Unmarshal(config, &all), json.Unmarshal(config, &given)); err != nil {
		return nil, nil, err
	}
	made := v1.Time{Time: from.Added.UTC()}
	for name, value := range map[string]any{"created": made, "rootfs": was.RootFS, "history": fittingHistory(given.History, len(was.RootFS.DiffIDs), made)} {
		if all[name], err = json.Marshal(value); err != nil {
			return nil, nil, err
		}
	}
	if config, err = json.Marshal(all); err != nil {
		return nil, nil, err
	}
	m.Annotations, m.Subject = nil, nil
	manifest, err = finishManifest(m, config)
	return config, manifest, err
}

// fittingHistory returns a history with as many entries of layers as the image has layers. Other programs refuse an
// image with another number.
func fittingHistory(history []v1.History, layers int, made v1.Time) []v1.History {
	for i := range history {
		if history[i].Created.IsZero() {
			history[i].Created = made
		}
		if history[i].EmptyLayer {
			continue
		}
		if layers--; layers < 0 {
			history[i].EmptyLayer = true
		}
	}
	for ; layers > 0; layers-- {
		history = append(history, v1.History{Created: made})
	}
	return history
}

// ConfigOf returns the configuration of an image, as it is stored.
func (s *Store) ConfigOf(owner, digest string) ([]byte, error) {
	s.mu.Lock()
	r, err := s.findLocked(owner, Reference{digest: digest})
	s.mu.Unlock()
	if err != nil {
		return nil, err
	}
	return os.ReadFile(s.blobPath(r.ConfigDigest))
}

// TopLayer opens the last layer of an image, as a plain tar stream.
func (s *Store) TopLayer(ctx context.Context, owner, digest string) (io.ReadCloser, error) {
	s.mu.Lock()
	r, err := s.findLocked(owner, Reference{digest: digest})
	s.mu.Unlock()
	if err != nil {
		return nil, err
	}
	if len(r.Layers) == 0 {
		return nil, fmt.Errorf("the image %s has no layers", digest)
	}
	last := r.Layers[len(r.Layers)-1].Digest
	f, err := os.Open(s.blobPath(last))
	if err != nil {
		return nil, err
	}
	plain, err := rootfs.Decompress(ctx, f, "layer "+last, s.o.Limits.Ratio)
	if err != nil {
		f.Close()
		return nil, err
	}
	return both{plain, f}, nil
}

// both closes a reader and the file that it reads.
type both struct {
	io.ReadCloser
	file *os.File
}

func (b both) Close() error { return errors.Join(b.ReadCloser.Close(), b.file.Close()) }

// TempFile creates a file without a name for a build's temporary data. The file is gone when it is closed or when the
// server ends.
func (s *Store) TempFile() (*os.File, error) {
	f, err := os.CreateTemp(s.path(tempDir), "build-*")
	if err != nil {
		return nil, s.explained(err)
	}
	if err := os.Remove(f.Name()); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// RoomLeft returns how many bytes more an owner's images can take.
func (s *Store) RoomLeft(owner string) int64 { return s.roomLeft(owner) }

// Bounds returns the limits of the store.
func (s *Store) Bounds() Limits { return s.o.Limits }

// Explained adds to an error about the files of the store that the disk is full, if it is.
func (s *Store) Explained(err error) error { return s.explained(err) }

// DropStepRoots removes the root file systems of steps of an owner that nothing else needs: they can be made again.
func (s *Store) DropStepRoots(owner string, digests []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, digest := range digests {
		r := s.records[key{owner, digest}]
		if r == nil || !r.Step || s.sharedRootLocked(r) {
			continue
		}
		if _, err := s.dropRootLocked(r); err != nil {
			s.log.Warn("the root file system of a step stays", "image", digest, "err", err)
		}
	}
}

// sharedRootLocked reports whether an image that is not a step has the root of a step.
func (s *Store) sharedRootLocked(step *record) bool {
	file := rootFile(step.Layers)
	for _, r := range s.records {
		if !r.Step && rootFile(r.Layers) == file {
			return true
		}
	}
	return false
}

// takeRoomOfSteps does the same as takeRoom, but first removes unused steps if that is needed.
func (s *Store) takeRoomOfSteps(owner string, bytes int64) (release func(), err error) {
	s.mu.Lock()
	for _, r := range s.idleLocked(owner) {
		if s.roomLeftLocked(owner) >= bytes {
			break
		}
		if r.Step && r.Owner == owner {
			if err := s.dropStepLocked(r); err != nil {
				s.mu.Unlock()
				return nil, err
			}
		}
	}
	s.mu.Unlock()
	return s.takeRoom(owner, bytes)
}

func (s *Store) dropStepLocked(r *record) error {
	if err := s.deleteLocked(r); err != nil {
		return err
	}
	_, err := s.collectLocked()
	return err
}

// stepRoomLocked makes space for one more step of an owner by removing the least recently used step.
func (s *Store) stepRoomLocked(owner string) error {
	count := 0
	for k, r := range s.records {
		if k.owner == owner && r.Step {
			count++
		}
	}
	for _, r := range s.idleLocked(owner) {
		if count < mostSteps {
			return nil
		}
		if r.Step && r.Owner == owner {
			count--
			if err := s.dropStepLocked(r); err != nil {
				return err
			}
		}
	}
	if count >= mostSteps {
		return hutch.Errorf(hutch.Exhausted, "builds that run have %d steps already: wait until one ends", count).With("limit", "build steps")
	}
	return nil
}
