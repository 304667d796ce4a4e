package oci

import (
	"archive/tar"
	"context"
	"encoding/json"
	"io"
	"os"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"hutch"
	"hutch/internal/tarfile"
)

// Save writes images as one tar stream that is an OCI layout and can be read by `docker load`, too.
func (s *Store) Save(ctx context.Context, w io.Writer, owner string, refs ...Reference) error {
	if len(refs) == 0 {
		return hutch.Errorf(hutch.Invalid, "no image is named: name those to save")
	}
	images, release, err := s.hold(owner, refs)
	if err != nil {
		return err
	}
	defer release()
	t := &saved{w: tar.NewWriter(untilDone{ctx, w}), done: map[string]bool{}}
	index := v1.IndexManifest{SchemaVersion: 2, MediaType: types.OCIImageIndex, Manifests: []v1.Descriptor{}}
	list := []dockerEntry{}
	for i, r := range images {
		for _, b := range r.blobs() {
			if err := t.copy(blobFile(b), s.blobPath(b)); err != nil {
				return err
			}
		}
		d, entry := s.saveEntries(r, refs[i])
		index.Manifests, list = append(index.Manifests, d), append(list, entry)
	}
	for name, content := range map[string]any{"index.json": index, "manifest.json": list, layoutFile: map[string]string{"imageLayoutVersion": "1.0.0"}} {
		if err := t.json(name, content); err != nil {
			return err
		}
	}
	return t.w.Close()
}

// hold finds images and keeps their blobs until release is called.
func (s *Store) hold(owner string, refs []Reference) (images []record, release func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var files []string
	for _, ref := range refs {
		r, err := s.findLocked(owner, ref)
		if err != nil {
			return nil, nil, err
		}
		images = append(images, *r)
		files = append(files, r.files()...)
	}
	return images, s.pinLocked(files), nil
}

// dockerEntry is an image in Docker's own list.
type dockerEntry struct {
	Config           string
	RepoTags, Layers []string
}

func (s *Store) saveEntries(r record, ref Reference) (v1.Descriptor, dockerEntry) {
	digest, _ := v1.NewHash(r.Digest) // valid: it was checked when the record was written
	d := v1.Descriptor{MediaType: types.OCIManifestSchema1, Digest: digest, Size: s.size(blobFile(r.Digest)), Annotations: map[string]string{}}
	if kind, err := manifestType(s.blobPath(r.Digest)); err == nil && kind != "" {
		d.MediaType = kind
	}
	entry := dockerEntry{Config: blobFile(r.ConfigDigest)}
	if ref.tag != "" {
		ref.digest = ""
		d.Annotations["io.containerd.image.name"] = ref.String()
		entry.RepoTags = []string{ref.String()}
	}
	for _, l := range r.Layers {
		entry.Layers = append(entry.Layers, blobFile(l.Digest))
	}
	return d, entry
}

// manifestType returns the media type that a manifest states.
func manifestType(path string) (types.MediaType, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	var m struct {
		MediaType types.MediaType `json:"mediaType"`
	}
	return m.MediaType, json.Unmarshal(text, &m)
}

// saved is an archive that is being written.
type saved struct {
	w    *tar.Writer
	done map[string]bool
}

func (t *saved) copy(name, from string) error {
	if t.done[name] {
		return nil
	}
	t.done[name] = true
	return tarfile.AddPath(t.w, from, header(name))
}

func (t *saved) json(name string, content any) error {
	text, err := json.Marshal(content)
	if err != nil {
		return err
	}
	h := header(name)
	h.Size = int64(len(text))
	if err := t.w.WriteHeader(&h); err != nil {
		return err
	}
	_, err = t.w.Write(text)
	return err
}

// header returns the same header each time, so that equal images have equal archives.
func header(name string) tar.Header {
	return tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: 0o644, ModTime: time.Unix(0, 0)}
}

// untilDone is a writer that fails when a context has ended.
type untilDone struct {
	ctx context.Context
	io.Writer
}

func (u untilDone) Write(p []byte) (int, error) {
	if u.ctx.Err() != nil {
		return 0, context.Cause(u.ctx)
	}
	return u.Writer.Write(p)
}
