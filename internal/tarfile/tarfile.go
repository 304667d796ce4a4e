// Package tarfile copies files into tar archives while other programs can write to them.
package tarfile

import (
	"archive/tar"
	"io"
	"os"
)

// Add writes a regular file with the header h, whose type and size it sets. The size is the file's size at the time of
// the call: data that is added later is left out. If the file shrinks, the error is io.ErrUnexpectedEOF.
func Add(out *tar.Writer, f *os.File, h tar.Header) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	h.Typeflag, h.Size = tar.TypeReg, info.Size()
	if err := out.WriteHeader(&h); err != nil {
		return err
	}
	n, err := io.Copy(out, io.NewSectionReader(f, 0, h.Size))
	if err == nil && n < h.Size {
		err = io.ErrUnexpectedEOF
	}
	return err
}

// AddPath does the same as Add, for the file at a path.
func AddPath(out *tar.Writer, path string, h tar.Header) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	return Add(out, f, h)
}
