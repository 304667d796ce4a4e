package build

import (
	"archive/tar"
	"bufio"
	"bytes"
	"compress/bzip2"
	"context"
	"io"

	"hutch"
	"hutch/internal/oci/rootfs"
)

// expand returns the tar stream in a file, or nil if the file is not an archive. size is the size of the file.
func expand(ctx context.Context, r io.Reader, size, ratio int64) (plain io.Reader, kind string, err error) {
	head := bufio.NewReaderSize(r, 64<<10)
	magic, _ := head.Peek(6)
	kind = kindOf(magic)
	switch kind {
	case "bzip2":
		plain = &unpacking{until{ctx, bzip2.NewReader(head)}, freeRatio + size*ratio, ratio}
	case "":
		plain = head
	default:
		z, err := rootfs.Decompress(ctx, head, "the archive", ratio)
		if err != nil {
			return nil, kind, nil // it only begins like an archive: copy it as a file
		}
		plain = z
	}
	again := bufio.NewReaderSize(plain, 64<<10)
	if !beginsTar(again) {
		return nil, kind, nil
	}
	return again, kind, nil
}

func kindOf(magic []byte) string {
	for kind, begin := range map[string]string{"gzip": "\x1f\x8b", "zstd": "\x28\xb5\x2f\xfd", "bzip2": "BZh", "xz": "\xfd7zXZ\x00"} {
		if bytes.HasPrefix(magic, []byte(begin)) {
			return kind
		}
	}
	return ""
}

// beginsTar reports whether a stream begins with the header of a tar archive.
func beginsTar(r *bufio.Reader) bool {
	block, err := r.Peek(512)
	if err != nil {
		return false
	}
	_, err = tar.NewReader(bytes.NewReader(append(bytes.Clone(block), make([]byte, 1024)...))).Next()
	return err == nil && string(block[257:262]) == "ustar"
}

// until is a reader that fails when ctx has ended.
type until struct {
	ctx context.Context
	io.Reader
}

func (u until) Read(p []byte) (int, error) {
	if u.ctx.Err() != nil {
		return 0, context.Cause(u.ctx)
	}
	return u.Reader.Read(p)
}

// freeRatio is how many bytes an archive can unpack to, however small it is.
const freeRatio = 64 << 20

// unpacking is a reader that fails when an archive unpacks to far more than the size of its file.
type unpacking struct {
	until
	left, ratio int64
}

func (u *unpacking) Read(p []byte) (int, error) {
	n, err := u.until.Read(p)
	if u.left -= int64(n); u.left < 0 {
		return 0, hutch.Errorf(hutch.Exhausted, "the archive unpacks to more than %d times its size: an archive like that is not taken", u.ratio).With("limit", "ratio")
	}
	return n, err
}
