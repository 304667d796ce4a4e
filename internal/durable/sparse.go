package durable

import (
	"bytes"
	"errors"
	"io"
	"os"
)

var zeros [64 << 10]byte

// CopySparse writes the content of r to a new file, with holes instead of blocks of zeros, and returns the size.
func CopySparse(f *os.File, r io.Reader) (size int64, err error) {
	b := make([]byte, len(zeros))
	for {
		n, err := io.ReadFull(r, b)
		if n > 0 && !bytes.Equal(b[:n], zeros[:n]) {
			if _, err := f.WriteAt(b[:n], size); err != nil {
				return size, err
			}
		}
		size += int64(n)
		switch {
		case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
			return size, f.Truncate(size)
		case err != nil:
			return size, err
		}
	}
}
