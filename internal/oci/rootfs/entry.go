package rootfs

import (
	"archive/tar"
	"errors"
	"io"
	"io/fs"
	"strings"
	"time"

	"hutch"
)

const (
	whiteout = ".wh."
	opaque   = ".wh..wh..opq"
	aufs     = ".wh..wh." // AUFS's own files
)

// addEntries reads the entries of one layer.
func (t *tree) addEntries(r io.Reader) error {
	for archive := tar.NewReader(r); ; {
		h, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if h.Typeflag == tar.TypeXGlobalHeader {
			continue
		}
		if err := t.addEntry(h, archive); err != nil {
			return err
		}
	}
}

func (t *tree) addEntry(h *tar.Header, content io.Reader) error {
	if t.namesLeft -= int64(len(h.Name)); t.namesLeft < 0 {
		return hutch.Errorf(hutch.Exhausted, "the paths in the image take more than %d MiB together: make it smaller", t.limits.Names>>20).With("limit", "image names")
	}
	names, err := t.split(h.Name)
	if err != nil {
		return err
	}
	if len(names) == 0 {
		return t.describeRoot(h)
	}
	last := len(names) - 1
	if isDevice(h) && !isWhiteout(h) {
		return refuseDevice(h, names)
	}
	dir, err := t.folder(names[:last])
	if err != nil {
		return err
	}
	switch name := names[last]; {
	case name == opaque:
		for child := range dir.children {
			t.hide(dir, child)
		}
		return nil
	case strings.HasPrefix(name, aufs):
		return nil
	case strings.HasPrefix(name, whiteout):
		t.hide(dir, strings.TrimPrefix(name, whiteout))
		return nil
	case isWhiteout(h):
		delete(dir.children, name)
		return nil
	default:
		return t.addNode(dir, name, last, h, content)
	}
}

// addNode adds an entry that is neither a whiteout nor a device.
func (t *tree) addNode(dir *node, name string, depth int, h *tar.Header, content io.Reader) error {
	i := describe(h)
	switch h.Typeflag {
	case tar.TypeDir:
		i.mode |= fs.ModeDir
		if old := dir.children[name]; old != nil && old.mode.IsDir() {
			old.inode, old.layer = i, t.layer
			return nil
		}
	case tar.TypeReg, tar.TypeGNUSparse, tar.TypeCont:
		if err := t.keep(i, h.Size, content); err != nil {
			return err
		}
	case tar.TypeSymlink:
		if h.Linkname == "" || len(h.Linkname) > 4095 {
			return hutch.Errorf(hutch.Invalid, "the link %.200q of the image leads to a path of %d bytes: 1 to 4095 are allowed", h.Name, len(h.Linkname))
		}
		i.mode, i.target = fs.ModeSymlink|0o777, h.Linkname
	case tar.TypeLink:
		linked, err := t.linked(h)
		if err != nil {
			return err
		}
		i = linked
	case tar.TypeFifo:
		i.mode |= fs.ModeNamedPipe
	default:
		return hutch.Errorf(hutch.Unsupported, "%.200q of the image is of the kind %q, which is not a file, folder, link or pipe", h.Name, h.Typeflag)
	}
	_, err := t.put(dir, name, depth, i)
	return err
}

// describeRoot sets the owner and the mode of the root folder from an entry.
func (t *tree) describeRoot(h *tar.Header) error {
	if h.Typeflag != tar.TypeDir {
		return hutch.Errorf(hutch.Invalid, "the image has an entry %.60q in place of its root folder", h.Name)
	}
	t.root.inode = describe(h)
	t.root.mode |= fs.ModeDir
	return nil
}

// describe returns the inode of an entry, without its type.
func describe(h *tar.Header) *inode {
	i := &inode{mode: fs.FileMode(h.Mode & 0o777), uid: id32(h.Uid), gid: id32(h.Gid), mtime: h.ModTime}
	for bit, mode := range map[int64]fs.FileMode{0o4000: fs.ModeSetuid, 0o2000: fs.ModeSetgid, 0o1000: fs.ModeSticky} {
		if h.Mode&bit != 0 {
			i.mode |= mode
		}
	}
	if i.mtime.Unix() < 0 {
		i.mtime = time.Unix(0, 0)
	}
	return i
}

// id32 returns the id of a user or a group; an id that no kernel can have becomes that of the user nobody.
func id32(id int) uint32 {
	if id < 0 || int64(id) >= 1<<32-1 {
		return 65534
	}
	return uint32(id)
}

// keep appends the content of a file to contents.
func (t *tree) keep(i *inode, size int64, content io.Reader) error {
	if size < 0 || size > t.bytesLeft {
		return tooManyBytes(t.limits.Bytes)
	}
	i.in, i.offset, i.size = t.contents, t.end, size
	n, err := io.CopyBuffer(struct{ io.Writer }{t.unsaved}, contentReader{t, content}, t.buffer)
	t.end += n
	if err == nil && n != size {
		err = io.ErrUnexpectedEOF
	}
	return err
}

// contentReader counts bytes that are read of a file against the limit.
type contentReader struct {
	t *tree
	r io.Reader
}

func (c contentReader) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	if limit := c.t.take(int64(n)); limit != nil {
		return 0, limit
	}
	return n, err
}

// take counts bytes of a file against the limit. Sparse files and hard links can produce far more bytes than the layers
// have.
func (t *tree) take(size int64) error {
	if t.bytesLeft -= size; t.bytesLeft < 0 {
		return tooManyBytes(t.limits.Bytes)
	}
	files, read := t.limits.Bytes-t.bytesLeft, t.limits.Bytes-t.tarLeft
	if (files-freeRatio)/t.limits.Ratio > read {
		return hutch.Errorf(hutch.Exhausted, "the files of the image, with their holes and hard links, are more than %d times as large as its layers: an image like that is not taken", t.limits.Ratio).With("limit", "ratio")
	}
	return nil
}

// linked returns the target of a hard link.
func (t *tree) linked(h *tar.Header) (*inode, error) {
	names, err := t.split(h.Linkname)
	if err != nil {
		return nil, err
	}
	n := t.find(names)
	if n == nil || n.mode.IsDir() {
		return nil, hutch.Errorf(hutch.Invalid, "%.200q of the image is a hard link to %.200q, which is not a file in it", h.Name, h.Linkname)
	}
	return n.inode, t.take(n.size)
}

func isDevice(h *tar.Header) bool { return h.Typeflag == tar.TypeChar || h.Typeflag == tar.TypeBlock }

// isWhiteout reports whether a device removes its name, as an overlay file system has it on disk.
func isWhiteout(h *tar.Header) bool {
	return h.Typeflag == tar.TypeChar && h.Devmajor == 0 && h.Devminor == 0
}

func refuseDevice(h *tar.Header, names []string) error {
	if names[0] == "dev" {
		return nil
	}
	return hutch.Errorf(hutch.Unsupported, "the image has the device %.200q (%d:%d) outside of /dev: build it without", h.Name, h.Devmajor, h.Devminor)
}
