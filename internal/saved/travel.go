package saved

import (
	archive "archive/tar" // tar is a function here
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"hutch/internal/durable"
	"hutch/internal/tarfile"
)

// A sleeping sandbox travels as a tar archive. The archive contains either the archive of the sandbox's files, as
// archiveEntry, or the files of the folder with its memory.

const archiveEntry = "files.tar.zst"

// Send writes the saved state of a sleeping sandbox.
func (d *Dir) Send(key string, memory bool, w io.Writer) error {
	if memory {
		return SendFolder(d.Memory(key), w)
	}
	out := archive.NewWriter(w)
	return errors.Join(sendFile(out, d.Archive(key), archiveEntry), out.Close())
}

// SendFolder writes a folder with the memory of a sandbox, so that Receive can read it.
func SendFolder(dir string, w io.Writer) error {
	out := archive.NewWriter(w)
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		if err == nil {
			err = sendFile(out, filepath.Join(dir, e.Name()), e.Name())
		}
	}
	return errors.Join(err, out.Close())
}

func sendFile(out *archive.Writer, path, name string) error {
	return tarfile.AddPath(out, path, archive.Header{Name: name, Mode: 0o600})
}

// Receive saves the data that Send wrote on another machine. Before it commits a folder, it calls check with the
// folder.
func (d *Dir) Receive(key string, r io.Reader, check func(dir string) error) error {
	in := archive.NewReader(r)
	h, err := in.Next()
	if err != nil {
		return fmt.Errorf("read the saved state of a sandbox: %w", err)
	}
	if h.Name == archiveEntry {
		return d.receiveArchive(key, h, in)
	}
	return d.WriteMemory(key, func(dir string) error {
		if err := receive(dir, h, in); err != nil {
			return err
		}
		return errors.Join(check(dir), durable.Sync(dir))
	})
}

func (d *Dir) receiveArchive(key string, h *archive.Header, in *archive.Reader) error {
	half := d.Archive(key) + ".new"
	if err := receiveFile(half, h, in); err != nil {
		return errors.Join(err, os.RemoveAll(half))
	}
	if err := os.Rename(half, d.Archive(key)); err != nil {
		return err
	}
	return durable.Sync(d.files())
}

// receive writes the files of an archive to a folder. h is the header of the first file, which the caller has read. All
// paths must be in that folder.
func receive(dir string, h *archive.Header, in *archive.Reader) (err error) {
	for ; err == nil; h, err = in.Next() {
		if filepath.Base(h.Name) != h.Name || !filepath.IsLocal(h.Name) {
			return fmt.Errorf("%.80q cannot be in the saved state of a sandbox", h.Name)
		}
		if err := receiveFile(filepath.Join(dir, h.Name), h, in); err != nil {
			return err
		}
	}
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// receiveFile writes a new file, with holes where there are only zeros.
func receiveFile(path string, h *archive.Header, in io.Reader) error {
	if h.Typeflag != archive.TypeReg {
		return fmt.Errorf("%.80q is not a regular file, and cannot be in the saved state of a sandbox", h.Name)
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	n, err := durable.CopySparse(f, in)
	if err == nil && n != h.Size {
		err = io.ErrUnexpectedEOF
	}
	return errors.Join(err, f.Sync(), f.Close())
}
