// Package ociimages gives the engines of tests images other than the host's, in a store of images as servers have it.
package ociimages

import (
	"archive/tar"
	"context"
	"io"
	"testing"

	"hutch/internal/engine"
	"hutch/internal/hutchtest"
	"hutch/internal/hutchtest/debian"
	"hutch/internal/image"
	"hutch/internal/images"
	"hutch/internal/oci"
)

// Open returns images that have one image, whose files fill writes. All owners can use it.
func Open(t testing.TB, name string, fill func(*tar.Writer) error) *images.Images {
	t.Helper()
	store, err := oci.Open(hutchtest.Dir(t), oci.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	host := hutchtest.Image(t)
	i := images.New(images.Options{Store: store, Host: func(context.Context, string) (image.Root, error) { return host, nil }})
	r, w := io.Pipe()
	go func() { w.CloseWithError(debian.WriteArchive(w, name, fill)) }()
	if _, err := i.LoadImages(t.Context(), "", r); err != nil {
		t.Fatal(err)
	}
	return i
}

// Use makes an engine use these images.
func Use(o *engine.Options, i *images.Images) { o.Image, o.Resolve = i.Root, i.Resolve }
