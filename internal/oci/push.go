package oci

import (
	"context"
	"io"
	"os"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"hutch/internal/oci/registry"
)

// PushOptions are the settings of a push.
type PushOptions struct {
	Owner       string
	Credentials Credentials
	Allowed     []string
	Progress    func(Progress) // as in [PullOptions]
}

// Push sends an image of the store to the registry in its reference, and returns its digest in the registry.
func (s *Store) Push(ctx context.Context, ref Reference, o PushOptions) (digest string, err error) {
	if err := needsRegistry(ref); err != nil {
		return "", err
	}
	if err := allow(ref, s.o.Allowed, o.Allowed); err != nil {
		return "", err
	}
	images, release, err := s.hold(o.Owner, []Reference{ref})
	if err != nil {
		return "", err
	}
	defer release()
	core, err := s.storedImage(images[0])
	if err != nil {
		return "", err
	}
	repo, err := registry.Open(ref.registry, ref.repository, registry.Options{
		Settings: s.o.Registries[ref.registry], Credentials: o.Credentials, IdleTimeout: s.o.IdleTimeout,
		Proxy: s.o.Proxy, Push: true,
	})
	if err != nil {
		return "", err
	}
	defer repo.Close()
	return images[0].Digest, upload(ctx, repo, ref.identifier(), core, o.Progress)
}

// upload sends an image with the library, and reports progress meanwhile.
func upload(ctx context.Context, repo *registry.Repository, identifier string, core *storedImage, progress func(Progress)) error {
	name, rt, err := repo.Upload(ctx, identifier)
	if err != nil {
		return err
	}
	image, err := partial.CompressedToImage(core)
	if err != nil {
		return err
	}
	updates, reported := make(chan v1.Update, 16), make(chan struct{})
	go func() {
		defer close(reported)
		for u := range updates {
			if progress != nil && u.Error == nil {
				progress(Progress{Done: u.Complete, Total: u.Total, State: "uploading"})
			}
		}
	}()
	err = remote.Write(name, image, remote.WithTransport(rt), remote.WithContext(ctx), remote.WithJobs(atOnce), remote.WithProgress(updates))
	<-reported // Write closes updates
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err != nil {
		return repo.Explain(err)
	}
	return nil
}

// storedImage shows an image of the store to the library.
type storedImage struct {
	s                *Store
	manifest, config []byte
	kind             types.MediaType
}

func (s *Store) storedImage(r record) (*storedImage, error) {
	manifest, err := os.ReadFile(s.blobPath(r.Digest))
	if err != nil {
		return nil, err
	}
	config, err := os.ReadFile(s.blobPath(r.ConfigDigest))
	if err != nil {
		return nil, err
	}
	kind, err := manifestType(s.blobPath(r.Digest))
	if kind == "" {
		kind = types.OCIManifestSchema1
	}
	return &storedImage{s, manifest, config, kind}, err
}

func (i *storedImage) RawConfigFile() ([]byte, error)      { return i.config, nil }
func (i *storedImage) RawManifest() ([]byte, error)        { return i.manifest, nil }
func (i *storedImage) MediaType() (types.MediaType, error) { return i.kind, nil }
func (i *storedImage) LayerByDigest(h v1.Hash) (partial.CompressedLayer, error) {
	m, err := partial.Manifest(i)
	if err != nil {
		return nil, err
	}
	for _, l := range append(m.Layers, m.Config) {
		if l.Digest == h {
			return storedBlob{i.s, l}, nil
		}
	}
	return nil, os.ErrNotExist
}

// storedBlob is a layer in the store.
type storedBlob struct {
	s *Store
	d v1.Descriptor
}

func (b storedBlob) Digest() (v1.Hash, error)            { return b.d.Digest, nil }
func (b storedBlob) Size() (int64, error)                { return b.d.Size, nil }
func (b storedBlob) MediaType() (types.MediaType, error) { return b.d.MediaType, nil }
func (b storedBlob) Compressed() (io.ReadCloser, error) {
	return os.Open(b.s.blobPath(b.d.Digest.String()))
}
