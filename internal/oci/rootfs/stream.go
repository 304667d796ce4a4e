package rootfs

import (
	"bufio"
	"bytes"
	"compress/bzip2"
	"context"
	"io"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
	"github.com/mikelolasagasti/xz"

	"hutch"
)

// zstdWindow is the memory that a zstd stream can ask for; zstd(1) itself stops at 128 MiB without --long.
const zstdWindow = 128 << 20

// xzDictionary is the largest dictionary that an xz stream can request: the dictionary of xz -9.
const xzDictionary = 64 << 20

// counter counts the bytes that are read, until its context ends.
type counter struct {
	ctx context.Context
	r   io.Reader
	n   int64
}

func (c *counter) Read(p []byte) (int, error) {
	if err := context.Cause(c.ctx); err != nil {
		return 0, err
	}
	n, err := c.r.Read(p)
	c.n += int64(n)
	return n, err
}

// Decompress reads a stream that is plain, or compressed by gzip, zstd, xz or bzip2, as its first bytes say. Reading
// ends with an error of kind Exhausted when far more comes out than went in. The name is for errors.
func Decompress(ctx context.Context, r io.Reader, name string, ratio int64) (io.ReadCloser, error) {
	in := &counter{ctx: ctx, r: r}
	head := bufio.NewReaderSize(in, 256<<10)
	magic, _ := head.Peek(10) // a shorter stream is an error of its reader
	var plain io.ReadCloser
	switch {
	case bytes.HasPrefix(magic, []byte{0x1f, 0x8b}):
		z, err := gzip.NewReader(head)
		if err != nil {
			return nil, badStream(name, err)
		}
		plain = z
	case bytes.HasPrefix(magic, []byte{0x28, 0xb5, 0x2f, 0xfd}):
		z, err := zstd.NewReader(head, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(zstdWindow))
		if err != nil {
			return nil, badStream(name, err)
		}
		plain = z.IOReadCloser()
	case bytes.HasPrefix(magic, []byte("\xfd7zXZ\x00")):
		z, err := xz.NewReader(head, xzDictionary)
		if err != nil {
			return nil, badStream(name, err)
		}
		plain = io.NopCloser(z)
	case bytes.HasPrefix(magic, []byte("BZh")) && bytes.HasSuffix(magic, []byte("1AY&SY")):
		plain = io.NopCloser(bzip2.NewReader(head))
	default:
		plain = io.NopCloser(head)
	}
	return &ratioReader{plain, in, name, ratio, 0}, nil
}

func badStream(layer string, err error) error {
	return hutch.Errorf(hutch.Invalid, "%s cannot be decompressed: have the image built or pushed again", layer).Because(err)
}

// ratioReader ends a stream that unpacks to far more than was received.
type ratioReader struct {
	io.ReadCloser
	in    *counter
	layer string
	ratio int64
	n     int64
}

func (r *ratioReader) Read(p []byte) (int, error) {
	n, err := r.ReadCloser.Read(p)
	if r.n += int64(n); r.n > freeRatio && (r.n-freeRatio)/r.ratio > r.in.n {
		return 0, hutch.Errorf(hutch.Exhausted, "%s unpacks to more than %d times its size: an image like that is not taken", r.layer, r.ratio).With("limit", "ratio")
	}
	return n, err
}

// tarStream counts the bytes that are read against the limit that all layers share.
type tarStream struct {
	r     io.Reader
	left  *int64
	limit int64
}

func (s *tarStream) Read(p []byte) (int, error) {
	n, err := s.r.Read(p)
	if *s.left -= int64(n); *s.left < 0 {
		return 0, tooManyBytes(s.limit)
	}
	return n, err
}

func tooManyBytes(limit int64) error {
	return hutch.Errorf(hutch.Exhausted, "the image unpacks to more than %d MiB: make it smaller, or have the administrator raise the limit for image bytes", limit>>20).With("limit", "image bytes")
}
