// Package ociimages gives the engines of tests images other than the host image, from a store of images like that of a
// server.
package ociimages

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"os"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"hutch/internal/engine"
	"hutch/internal/hutchtest"
	"hutch/internal/hutchtest/testimage"
	"hutch/internal/image"
	"hutch/internal/images"
	"hutch/internal/oci"
)

// Open returns a store with one image, which has a configuration and the files that fill writes. All owners can use the
// image.
func Open(t testing.TB, name string, c v1.Config, fill func(*tar.Writer) error) *images.Images {
	t.Helper()
	store, err := oci.Open(hutchtest.Dir(t), oci.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	host := hutchtest.Image(t)
	i := images.New(images.Options{Store: store, Host: func(context.Context, string) (image.Root, error) { return host, nil }})
	r, w := io.Pipe()
	go func() { w.CloseWithError(writeArchive(w, c, fill)) }()
	if _, err := i.LoadImages(t.Context(), name, r); err != nil {
		t.Fatal(err)
	}
	return i
}

// writeArchive writes an image with one layer, in the format of docker save.
func writeArchive(to io.Writer, c v1.Config, fill func(*tar.Writer) error) error {
	file, err := os.CreateTemp("", "hutch-layer-*")
	if err != nil {
		return err
	}
	defer os.Remove(file.Name())
	defer file.Close()
	w := tar.NewWriter(file)
	if err := errors.Join(fill(w), w.Close()); err != nil {
		return err
	}
	layer, err := tarball.LayerFromFile(file.Name(), tarball.WithCompressionLevel(gzip.NoCompression))
	if err != nil {
		return err
	}
	img, err := testimage.Image(c, layer)
	if err != nil {
		return err
	}
	return tarball.Write(nil, img, to)
}

// Use makes an engine use a store of images.
func Use(o *engine.Options, i *images.Images) { o.Image, o.Resolve = i.Root, i.Resolve }
