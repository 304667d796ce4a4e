package build

import (
	"archive/tar"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"

	"hutch"
)

// Names in a layer that remove names of lower layers.
const (
	whiteout = ".wh."
	opaque   = ".wh..wh..opq"
)

// reading says how the entries of an archive become nodes.
type reading struct {
	// place returns the path for an entry, and whether to use the entry; nil uses the entry's own path.
	place func(name string, n *node) (string, bool)
	// layer is set for an archive that is a layer: whiteouts in it remove names. In other archives, they are files.
	layer bool
	// owned replaces the owner of all entries by root.
	owned bool
}

// read reads the entries of a tar stream, without devices and sockets.
func (t *tree) read(ctx context.Context, r io.Reader, how reading) error {
	for a := tar.NewReader(r); ; {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		h, err := a.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return t.bad(ctx, err)
		}
		if err := t.readEntry(h, until{ctx, a}, how); err != nil { // a hole can be endless without any data from the stream
			return t.bad(ctx, err)
		}
	}
}

// bad returns the error for an archive that cannot be read.
func (t *tree) bad(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	_, known := errors.AsType[*hutch.Error](err)
	if _, disk := errors.AsType[*os.PathError](err); known || disk {
		return err
	}
	return hutch.Errorf(hutch.Invalid, "%s is not a tar archive, or it is cut off: send it again", t.what).Because(err)
}

func (t *tree) readEntry(h *tar.Header, content io.Reader, how reading) error {
	n, ok := nodeOf(h)
	if !ok {
		return nil
	}
	name := clean(h.Name)
	if how.owned {
		n.uid, n.gid = 0, 0
	}
	if how.layer {
		if taken, err := t.readWhiteout(name); taken || err != nil {
			return err
		}
	}
	if how.place != nil {
		if name, ok = how.place(name, n); !ok {
			return nil
		}
	}
	if h.Typeflag == tar.TypeLink {
		return t.link(name, h, how)
	}
	if n.mode.IsRegular() {
		if err := t.checkRoom(h.Size, name); err != nil { // before its content arrives, which can take long
			return err
		}
		if err := t.keep(n, content); err != nil {
			return err
		}
	}
	return t.add(name, n)
}

// readWhiteout handles an entry that removes something, and reports whether this is such an entry.
func (t *tree) readWhiteout(name string) (taken bool, err error) {
	dir, base := path.Split(name)
	switch {
	case base == opaque:
		t.opaque[path.Clean(dir)] = true
	case strings.HasPrefix(base, whiteout):
		err = t.add(path.Join(dir, base[len(whiteout):]), &node{mode: removed})
	default:
		return false, nil
	}
	return true, err
}

// link adds a hard link. A link to a file outside of the archive is an error.
func (t *tree) link(name string, h *tar.Header, how reading) error {
	to := clean(h.Linkname)
	if how.place != nil {
		var ok bool
		if to, ok = how.place(to, &node{}); !ok {
			return nil
		}
	}
	n := t.nodes[to]
	if n == nil || n.mode.IsDir() || n.isGone() {
		return hutch.Errorf(hutch.Invalid, "%s has a hard link %.200q to %.200q, which is not a file in it", t.what, h.Name, h.Linkname)
	}
	return t.add(name, n)
}

// nodeOf describes an entry of an archive.
func nodeOf(h *tar.Header) (*node, bool) {
	n := &node{mode: h.FileInfo().Mode() & (fs.ModePerm | fs.ModeSetuid | fs.ModeSetgid | fs.ModeSticky), uid: h.Uid, gid: h.Gid, mtime: h.ModTime}
	switch h.Typeflag {
	case tar.TypeReg, tar.TypeGNUSparse, tar.TypeCont, tar.TypeLink:
	case tar.TypeDir:
		n.mode |= fs.ModeDir
	case tar.TypeSymlink:
		n.mode, n.target = fs.ModeSymlink|0o777, h.Linkname
	case tar.TypeFifo:
		n.mode |= fs.ModeNamedPipe
	default:
		return nil, false
	}
	return n, n.target != "" || n.mode&fs.ModeSymlink == 0
}

// write writes the tree as a layer.
func (t *tree) write(w io.Writer) error {
	out, first := tar.NewWriter(w), map[*node]string{}
	for _, name := range t.paths() {
		if err := t.writeNode(out, name, t.nodes[name], first); err != nil {
			return err
		}
	}
	return out.Close()
}

func (t *tree) writeNode(out *tar.Writer, name string, n *node, first map[*node]string) error {
	if n.isGone() {
		return out.WriteHeader(&tar.Header{Name: path.Join(path.Dir(name), whiteout+path.Base(name)), Typeflag: tar.TypeReg, Mode: 0o644, Format: tar.FormatPAX})
	}
	if strings.HasPrefix(path.Base(name), whiteout) {
		return hutch.Errorf(hutch.Invalid, "%.200q cannot be in an image, where a name that begins with .wh. removes a file: choose another name", "/"+name)
	}
	h := &tar.Header{Name: name, Mode: int64(n.mode.Perm()) | special(n.mode), Uid: n.uid, Gid: n.gid, ModTime: n.mtime, Format: tar.FormatPAX}
	switch {
	case n.mode.IsDir():
		h.Typeflag, h.Name = tar.TypeDir, name+"/"
		if err := out.WriteHeader(h); err != nil || !t.opaque[name] {
			return err
		}
		return out.WriteHeader(&tar.Header{Name: path.Join(name, opaque), Typeflag: tar.TypeReg, Mode: 0o644, Format: tar.FormatPAX})
	case n.mode&fs.ModeSymlink != 0:
		h.Typeflag, h.Linkname = tar.TypeSymlink, n.target
	case n.mode&fs.ModeNamedPipe != 0:
		h.Typeflag = tar.TypeFifo
	case first[n] != "":
		h.Typeflag, h.Linkname = tar.TypeLink, first[n]
	default:
		first[n] = name
		return t.writeFile(out, h, n)
	}
	return out.WriteHeader(h)
}

func (t *tree) writeFile(out *tar.Writer, h *tar.Header, n *node) error {
	h.Typeflag, h.Size = tar.TypeReg, n.size
	if err := out.WriteHeader(h); err != nil {
		return err
	}
	content, err := t.open(n)
	if err == nil {
		_, err = io.Copy(out, content)
	}
	return err
}

// special returns the bits of a mode that tar has at other positions than Go.
func special(m fs.FileMode) (bits int64) {
	for mode, bit := range map[fs.FileMode]int64{fs.ModeSetuid: 0o4000, fs.ModeSetgid: 0o2000, fs.ModeSticky: 0o1000} {
		if m&mode != 0 {
			bits |= bit
		}
	}
	return bits
}
