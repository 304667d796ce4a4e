package oci

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"hash"
	"io"
	"os"
	"path/filepath"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/klauspost/compress/gzip"

	"hutch"
	"hutch/internal/pipe"
)

// CommitOptions describe a new image.
type CommitOptions struct {
	Owner string
	Base  string    // digest of an image that the owner sees
	Name  Reference // name of the new image
	By    string    // text in its history
	// Fill writes the new layer, as a plain tar stream.
	Fill func(io.Writer) error
}

// Commit makes an image from another one and a layer over it. The layer is untrusted: it has limits while it is
// received, its digests are computed here, and the root file system of the new image is made before the record. The
// new image has the configuration of the base, with one more line of history.
func (s *Store) Commit(ctx context.Context, o CommitOptions) (Image, error) {
	if err := nameable(o.Name); err != nil {
		return Image{}, err
	}
	base, release, err := s.hold(o.Owner, []Reference{{digest: o.Base}})
	if err != nil {
		return Image{}, err
	}
	defer release()
	dir, err := os.MkdirTemp(s.path(tempDir), "commit-*")
	if err != nil {
		return Image{}, s.explained(err)
	}
	defer os.RemoveAll(dir)
	l, err := s.receiveLayer(ctx, filepath.Join(dir, "layer"), o.Fill)
	if err != nil {
		return Image{}, s.explained(err)
	}
	taken, err := s.takeRoom(o.Owner, l.size)
	if err != nil {
		return Image{}, err
	}
	defer taken()
	image, err := s.addCommit(ctx, base[0], l, o)
	if err != nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		_, cerr := s.collectLocked()
		return Image{}, errors.Join(s.explained(err), cerr)
	}
	return image, nil
}

// newLayer is a layer that the store has received.
type newLayer struct {
	archived
	diffID string // diff ID of the plain stream
}

// receiveLayer compresses a layer into a file.
func (s *Store) receiveLayer(ctx context.Context, path string, fill func(io.Writer) error) (newLayer, error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return newLayer{}, err
	}
	defer f.Close()
	plain, packed := sha256.New(), sha256.New()
	size := &boundedWriter{Writer: io.MultiWriter(f, packed), most: s.o.Limits.Blob}
	z, err := gzip.NewWriterLevel(size, gzip.BestSpeed)
	if err != nil {
		return newLayer{}, err
	}
	err = pipe.Ahead(func(w io.Writer) error {
		return fill(untilDone{ctx, &boundedWriter{Writer: io.MultiWriter(plain, w), most: s.o.Limits.Bytes}})
	}, func(r io.Reader) error {
		if _, err := io.Copy(z, r); err != nil {
			return err
		}
		return errors.Join(z.Close(), f.Sync())
	})
	if err != nil {
		return newLayer{}, err
	}
	return newLayer{archived{path, sum(packed), size.size}, sum(plain)}, nil
}

func sum(h hash.Hash) string { return "sha256:" + hex.EncodeToString(h.Sum(nil)) }

// boundedWriter refuses more bytes than a layer can have.
type boundedWriter struct {
	io.Writer
	size, most int64
}

func (w *boundedWriter) Write(b []byte) (int, error) {
	if w.size += int64(len(b)); w.size > w.most {
		return 0, hutch.Errorf(hutch.Exhausted, "the new layer has more than %d MiB: remove large files, and holes in files count too", w.most>>20).With("limit", "image bytes")
	}
	return w.Writer.Write(b)
}

// addCommit writes the documents of the new image, checks all of it, and then writes its record.
func (s *Store) addCommit(ctx context.Context, base record, l newLayer, o CommitOptions) (Image, error) {
	config, err := s.commitConfig(base, l, o.By)
	if err != nil {
		return Image{}, err
	}
	manifest, err := s.commitManifest(base, l, config)
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
	r, err := s.describe(manifest, d, config, platform{base.OS, base.Architecture, ""})
	if err != nil {
		return Image{}, err
	}
	file := rootFile(r.Layers)
	defer s.pin(append(documentFiles(manifest, d), file)...)()
	if err := errors.Join(s.linkBlob(l.archived), s.writeDocument(config)); err != nil {
		return Image{}, err
	}
	if err := s.building.Take(ctx, file); err != nil {
		return Image{}, err
	}
	defer s.building.Put(file)
	if err := s.makeRoot(ctx, r, file); err != nil {
		return Image{}, err
	}
	return s.keep(r, manifest, config, o.Owner, o.Name)
}

// commitConfig returns the configuration of the base with one more layer. Unknown fields are kept.
func (s *Store) commitConfig(base record, l newLayer, by string) ([]byte, error) {
	text, err := os.ReadFile(s.blobPath(base.ConfigDigest))
	if err != nil {
		return nil, err
	}
	var known v1.ConfigFile
	all := map[string]json.RawMessage{}
	if err := errors.Join(json.Unmarshal(text, &known), json.Unmarshal(text, &all)); err != nil {
		return nil, err
	}
	diffID, err := v1.NewHash(l.diffID)
	if err != nil {
		return nil, err
	}
	now := v1.Time{Time: time.Now().UTC()}
	for name, value := range map[string]any{
		"created": now,
		"rootfs":  v1.RootFS{Type: "layers", DiffIDs: append(known.RootFS.DiffIDs, diffID)},
		"history": append(known.History, v1.History{Created: now, CreatedBy: by}),
	} {
		if all[name], err = json.Marshal(value); err != nil {
			return nil, err
		}
	}
	return json.Marshal(all)
}

// commitManifest returns the manifest of the base with one more layer.
func (s *Store) commitManifest(base record, l newLayer, config []byte) ([]byte, error) {
	text, err := os.ReadFile(s.blobPath(base.Digest))
	if err != nil {
		return nil, err
	}
	var m v1.Manifest
	if err := json.Unmarshal(text, &m); err != nil {
		return nil, err
	}
	kind := types.OCILayer
	if m.MediaType == types.DockerManifestSchema2 {
		kind = types.DockerLayer
	}
	digest, err := v1.NewHash(l.digest)
	if err != nil {
		return nil, err
	}
	m.Layers = append(m.Layers, v1.Descriptor{MediaType: kind, Size: l.size, Digest: digest})
	if m.Config.Digest, err = v1.NewHash(digestOf(config)); err != nil {
		return nil, err
	}
	m.Config.Size, m.Config.Data = int64(len(config)), nil
	m.Annotations, m.Subject = nil, nil // they are about the base
	return json.Marshal(m)
}
