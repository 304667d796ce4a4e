package build

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"testing"
	"testing/iotest"

	"hutch"
	"hutch/internal/oci"
)

// atEnd records whether its reader has reached the end.
type atEnd struct {
	io.Reader
	ended bool
}

func (r *atEnd) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	r.ended = r.ended || errors.Is(err, io.EOF)
	return n, err
}

// The context of a build is read to the end of its stream, also when an archive is padded, as GNU tar and Python do it:
// only then a client can leave a build with detach.
func TestContextIsReadToItsEnd(t *testing.T) {
	t.Parallel()
	var plain, packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	a := tar.NewWriter(io.MultiWriter(&plain, z))
	err := errors.Join(a.WriteHeader(&tar.Header{Name: "a", Typeflag: tar.TypeReg, Mode: 0o644}), a.Close(), z.Close())
	if err != nil {
		t.Fatal(err)
	}
	padded := append(bytes.Clone(plain.Bytes()), make([]byte, 8192)...)
	store, err := oci.Open(t.TempDir(), oci.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	for name, archive := range map[string][]byte{"plain": plain.Bytes(), "padded": padded, "gzip": packed.Bytes()} {
		for how, in := range map[string]io.Reader{"at once": bytes.NewReader(archive), "in pieces": iotest.OneByteReader(bytes.NewReader(archive))} {
			r := &atEnd{Reader: in}
			s := New(Options{Store: store}).solver(t.Context(), "ada", hutch.BuildRequest{}, nil)
			if err := s.receive(t.Context(), r); err != nil || s.context.trees[0].tree.nodes["a"] == nil || !r.ended {
				t.Errorf("%s, %s: %v, end %v", name, how, err, r.ended)
			}
			s.release()
		}
	}
}
