package recipe

import (
	"archive/tar"
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"path"
	"strings"

	"hutch"
)

// maxContext is how many unpacked bytes of all archives are read. A build has its own limits; this limit is for data
// that never reaches a build: a small archive can unpack to any number of bytes, and each COPY reads an archive.
const maxContext = 32 << 30

// archives are the archives of one build, kept as long as its context.
type archives struct {
	ctx   context.Context
	files Files
	left  int64 // bytes that can still be read
}

func open(ctx context.Context, files Files) *archives { return &archives{ctx, files, maxContext} }

// copied are the files of one COPY.
type copied struct {
	hash   string
	folder string // in the context
	base   string // path of the file or folder in the archive
	single bool   // base is a file or a link, not a folder
	link   bool
	name   string // name of the file in the context, with single
}

// look finds the files of an archive that match a source. The client sends the pattern unchanged, and only files that
// match it.
func (c *copied) look(source string, from *archives) error {
	c.base = clean(source)
	meta := strings.IndexAny(source, `*?[{\`)
	if meta >= 0 {
		c.base = clean(path.Dir(source[:meta] + "x"))
	}
	found := false
	err := from.each(c.hash, func(h *tar.Header, _ io.Reader) error {
		switch name := clean(h.Name); {
		case name == c.base && h.Typeflag != tar.TypeDir && meta < 0:
			c.single, c.link = true, h.Typeflag == tar.TypeSymlink
		case !c.has(name):
			return nil
		}
		found = true
		return io.EOF
	})
	if err == nil && !found {
		err = hutch.Errorf(hutch.NotFound, "the files that came for %.200q do not have it: upload them again", source)
	}
	return err
}

func (c *copied) has(name string) bool {
	return c.base == "." || name == c.base || strings.HasPrefix(name, c.base+"/")
}

// place returns the path of an archive's file in the context.
func (c *copied) place(name string) (string, bool) {
	name = clean(name)
	switch {
	case !c.has(name):
		return "", false
	case c.single:
		return c.folder + "/" + c.name, name == c.base
	case c.base == ".":
		return path.Join(c.folder, name), true
	}
	return path.Join(c.folder, strings.TrimPrefix(name, c.base)), true
}

// clean returns a path relative to the root of an archive, which it never leaves.
func clean(name string) string {
	if name = path.Clean("/" + name)[1:]; name == "" {
		return "."
	}
	return name
}

// Context writes the context of the build: a tar archive.
func (r Recipe) Context(ctx context.Context, w io.Writer, files Files) error {
	out, from := tar.NewWriter(w), open(ctx, files)
	for _, c := range r.copies {
		if err := out.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: c.folder + "/", Mode: 0o755}); err != nil {
			return err
		}
		if err := from.each(c.hash, func(h *tar.Header, content io.Reader) error { return c.add(out, h, content) }); err != nil {
			return err
		}
	}
	return out.Close()
}

// add writes a file of an archive to its path, if it belongs to the COPY.
func (c *copied) add(out *tar.Writer, h *tar.Header, content io.Reader) error {
	at, ok := c.place(h.Name)
	if !ok || at == c.folder {
		return nil
	}
	to := &tar.Header{Typeflag: h.Typeflag, Name: at, Mode: h.Mode & 0o7777, ModTime: h.ModTime, Linkname: h.Linkname}
	switch h.Typeflag {
	case tar.TypeDir:
		to.Name += "/"
	case tar.TypeReg:
		to.Size = h.Size
	case tar.TypeSymlink:
	case tar.TypeLink:
		if to.Linkname, ok = c.place(h.Linkname); !ok {
			return hutch.Errorf(hutch.Invalid, "%.200q is a hard link to a file that is not copied: copy both, or neither", h.Name)
		}
	default:
		return nil // pipes and devices are in no build
	}
	if err := out.WriteHeader(to); err != nil {
		return hutch.Errorf(hutch.Invalid, "%.200q cannot be in an archive: %v", h.Name, err)
	}
	_, err := io.Copy(out, unbroken{content})
	return err
}

// unbroken reads an archive. An error in the archive is the client's fault.
type unbroken struct{ io.Reader }

func (u unbroken) Read(b []byte) (int, error) {
	n, err := u.Reader.Read(b)
	if err != nil && !errors.Is(err, io.EOF) {
		err = broken(err)
	}
	return n, err
}

// each passes the entries of an archive, plain or compressed with gzip, to do. An error [io.EOF] from do ends it
// without an error.
func (a *archives) each(hash string, do func(*tar.Header, io.Reader) error) error {
	f, err := a.files(hash)
	if err != nil {
		return err
	}
	defer f.Close()
	in := bufio.NewReader(f)
	plain := unpacked{a, in}
	if magic, _ := in.Peek(2); bytes.Equal(magic, []byte{0x1f, 0x8b}) {
		if plain.Reader, err = gzip.NewReader(in); err != nil {
			return broken(err)
		}
	}
	for t := tar.NewReader(plain); ; {
		h, err := t.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return broken(err)
		}
		if err := do(h, t); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
	}
}

// unpacked is the part of an archive's content that was read.
type unpacked struct {
	*archives
	io.Reader
}

func (u unpacked) Read(b []byte) (int, error) {
	if u.ctx.Err() != nil {
		return 0, context.Cause(u.ctx)
	}
	n, err := u.Reader.Read(b)
	if u.left -= int64(n); u.left < 0 {
		return 0, hutch.Errorf(hutch.Exhausted, "the uploaded files are more than %d GiB together: copy less", maxContext>>30).With("limit", "files of the build")
	}
	return n, err
}

// broken returns the error for an archive that cannot be read, unless err already has a message.
func broken(err error) error {
	if _, known := errors.AsType[*hutch.Error](err); known || errors.Is(err, context.Canceled) {
		return err
	}
	return hutch.Errorf(hutch.Invalid, "the uploaded files are not a tar archive, plain or with gzip: %v", err)
}
