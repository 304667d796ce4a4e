// Package testimage makes container images for tests and benchmarks.
package testimage

import (
	"archive/tar"
	"bytes"
	"io"
	"runtime"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// Image makes an image for this machine's processor.
func Image(config v1.Config, layers ...v1.Layer) (v1.Image, error) {
	image, err := mutate.AppendLayers(empty.Image, layers...)
	if err != nil {
		return nil, err
	}
	file, err := image.ConfigFile()
	if err != nil {
		return nil, err
	}
	file = file.DeepCopy()
	file.OS, file.Architecture, file.Config = "linux", runtime.GOARCH, config
	return mutate.ConfigFile(image, file)
}

// Layer makes a layer of files that every user can execute. The arguments are names and contents in turn.
func Layer(files ...string) (v1.Layer, error) {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for i := 0; i < len(files); i += 2 {
		if err := w.WriteHeader(&tar.Header{Name: files[i], Typeflag: tar.TypeReg, Mode: 0o755, Size: int64(len(files[i+1]))}); err != nil {
			return nil, err
		}
		if _, err := io.WriteString(w, files[i+1]); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(b.Bytes())), nil })
}

// Push pushes an image to a registry without TLS, such as one in this process.
func Push(registry, as string, image v1.Image) error {
	ref, err := name.ParseReference(registry+"/"+as, name.Insecure)
	if err != nil {
		return err
	}
	return remote.Write(ref, image)
}
