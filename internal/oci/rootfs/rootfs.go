// Package rootfs makes one root file system, an EROFS file, from the layers of an image, and reads users from it.
//
// The layers are read once, from the base up. Names go into a tree in memory, contents into one temporary file, one
// after the other; then the tree is written as EROFS. Nothing is unpacked: a path, a link or a device of a layer is
// never given to the kernel, and owners and setuid bits are only numbers. The lowest layers can be a file that was made
// of them before.
//
// A layer has the same meaning as for an overlay file system. A file or a link hides everything that lower layers have
// at its path. A folder merges with a folder and hides anything else. `.wh.NAME` removes NAME of the lower layers, and
// `.wh..wh..opq` everything that they have in its folder, wherever the entry is in the layer. A character device with
// the number 0:0 removes its own name.
//
// The contents of every file begin at a new block. gVisor cannot map a file into memory whose contents share a block
// with names: a program that tried would be killed.
//
// Differences from the image: extended attributes are left out, because gVisor refuses them, so file capabilities are
// lost. Devices in /dev are left out, because each sandbox has its own /dev; others are refused. Each hard link becomes
// a copy, and counts as one.
package rootfs

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"os"

	"github.com/erofs/go-erofs"

	"hutch"
	"hutch/internal/pipe"
)

// Version changes whenever the same layers give another file.
const Version = "1"

// Limits bound the resources that the layers of one image can use. No field is zero.
type Limits struct {
	Bytes   int64 // contents of all files, and the layers as tar
	Entries int   // entries of all layers together
	Names   int64 // bytes of all paths, which are in memory
	Path    int   // bytes of one path
	Ratio   int64 // bytes of tar for each byte of the compressed layer, beyond the first freeRatio
}

// freeRatio is how many bytes a layer can unpack to, however small it is.
const freeRatio = 64 << 20

// Layer is one layer, as a tar stream: plain, or compressed by gzip or zstd.
type Layer struct {
	Name   string // for errors
	DiffID string // sha256:HEX of the plain stream
	Open   func() (io.ReadCloser, error)
}

// Options say how Write makes a file.
type Options struct {
	Limits Limits
	// Base is a file that Write has made of all layers below the given ones; nil for none.
	Base *os.File
	// Temp is the folder for a temporary file with the contents of the given layers.
	Temp string
}

// Write writes the EROFS file of the layers, which are given from the base up. It neither syncs nor closes out. Errors
// about the layers are of kind Invalid, Unsupported, or Exhausted when they break a limit. With ErrDamaged or ErrUnsealed,
// the base cannot be used, and the file can only be made of all layers.
func Write(ctx context.Context, out *os.File, layers []Layer, o Options) error {
	contents, err := os.CreateTemp(o.Temp, "contents-*")
	if err != nil {
		return err
	}
	defer contents.Close()
	if err := os.Remove(contents.Name()); err != nil {
		return err
	}
	t := newTree(o.Limits, contents)
	if o.Base != nil {
		if err := t.addBase(ctx, o.Base); err != nil {
			return err
		}
	}
	for _, l := range layers {
		if err := t.addLayer(ctx, l); err != nil {
			return err
		}
	}
	return writeEROFS(ctx, out, t)
}

func writeEROFS(ctx context.Context, out *os.File, t *tree) error {
	if err := t.flush(); err != nil {
		return err
	}
	b := &buffered{ctx, out, bufio.NewWriterSize(out, bufferSize)}
	w := erofs.Create(b, erofs.WithBuildTime(0, 0))
	if err := w.CopyFrom(files{t}); err != nil {
		return err
	}
	if err := w.Close(); err != nil {
		return err
	}
	if err := b.Flush(); err != nil {
		return err
	}
	if err := restoreSizes(ctx, out, t); err != nil {
		return err
	}
	return writeSeal(ctx, out, t.used())
}

const bufferSize = 256 << 10

// buffered gathers small writes to a file, until a context ends.
type buffered struct {
	ctx  context.Context
	file io.WriteSeeker
	*bufio.Writer
}

func (b *buffered) Write(p []byte) (int, error) {
	if b.ctx.Err() != nil {
		return 0, context.Cause(b.ctx)
	}
	return b.Writer.Write(p)
}

func (b *buffered) Seek(offset int64, whence int) (int64, error) {
	if err := b.Flush(); err != nil {
		return 0, err
	}
	return b.file.Seek(offset, whence)
}

// addLayer reads a layer into the tree and checks its digest.
func (t *tree) addLayer(ctx context.Context, l Layer) error {
	raw, err := l.Open()
	if err != nil {
		return err
	}
	defer raw.Close()
	plain, err := Decompress(ctx, raw, "layer "+l.Name, t.limits.Ratio)
	if err != nil {
		return err
	}
	defer plain.Close()
	sum := sha256.New()
	t.layer++
	err = pipe.Ahead(func(w io.Writer) error {
		_, err := io.Copy(w, plain)
		return err
	}, func(r io.Reader) error {
		stream := &tarStream{r: io.TeeReader(r, sum), left: &t.tarLeft, limit: t.limits.Bytes}
		if err := t.addEntries(stream); err != nil {
			return err
		}
		_, err := io.Copy(io.Discard, stream)
		return err
	})
	if err != nil {
		return layerError(ctx, l, err)
	}
	if got := "sha256:" + hex.EncodeToString(sum.Sum(nil)); got != l.DiffID {
		return hutch.Errorf(hutch.Invalid, "layer %s unpacks to %s, and the image says %s: the image is damaged; have it built or pushed again", l.Name, got, l.DiffID)
	}
	return nil
}

// layerError marks an error as the layer's fault, so that it is not reported as a fault of the server.
func layerError(ctx context.Context, l Layer, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if _, ok := errors.AsType[*hutch.Error](err); ok {
		return err
	}
	if _, ok := errors.AsType[*os.PathError](err); ok {
		return err // an error of our own disk, and not of the layer
	}
	return hutch.Errorf(hutch.Invalid, "layer %s cannot be read: %v; have the image built or pushed again", l.Name, err).Because(err)
}
