package image

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"
)

// WriteTar writes the root of an EROFS file, with a sandbox's files over it, as a tar archive: for a runtime that
// cannot read EROFS. Owners and permissions are kept, except the bits that change a program's user. Devices, pipes and
// sockets are left out.
func (r Root) WriteTar(out io.Writer) error {
	content, f, err := openEROFS(r.EROFS)
	if err != nil {
		return err
	}
	defer f.Close()
	p := tarWriter{w: tar.NewWriter(out), content: content, over: map[string]File{}}
	for _, file := range r.Files {
		p.over[file.Path] = file
	}
	if err := fs.WalkDir(content, ".", p.visit); err != nil {
		return fmt.Errorf("pack the image file %s: %w", r.EROFS, err)
	}
	for _, file := range r.Files {
		if _, left := p.over[file.Path]; left {
			err = errors.Join(err, p.file(file))
		}
	}
	return errors.Join(err, p.w.Close())
}

type tarWriter struct {
	w       *tar.Writer
	content linkFS
	over    map[string]File // files that are not written yet, by their paths
}

func (p *tarWriter) visit(name string, entry fs.DirEntry, err error) error {
	if err != nil {
		return err
	}
	file, replaced := p.over[fromRoot(name)]
	switch {
	case name == ".":
		delete(p.over, "/")
		return nil
	case replaced && entry.IsDir() && file.Mode.IsDir(): // the folder keeps its content
		delete(p.over, file.Path)
		return p.file(file)
	case replaced && entry.IsDir():
		return fs.SkipDir
	case replaced:
		return nil
	}
	return p.entry(name, entry)
}

// entry writes a file of the image.
func (p *tarWriter) entry(name string, entry fs.DirEntry) error {
	info, err := p.content.Lstat(name)
	if err != nil {
		return err
	}
	h := &tar.Header{Name: name, Mode: mode(info.Mode()), ModTime: info.ModTime(), Format: tar.FormatPAX}
	h.Uid, h.Gid = owner(info)
	switch entry.Type() {
	case fs.ModeDir:
		h.Typeflag, h.Name = tar.TypeDir, name+"/"
	case fs.ModeSymlink:
		h.Typeflag = tar.TypeSymlink
		if h.Linkname, err = p.content.ReadLink(name); err != nil {
			return err
		}
	case 0:
		h.Typeflag, h.Size = tar.TypeReg, info.Size()
	default:
		return nil
	}
	if err := p.w.WriteHeader(h); err != nil || h.Typeflag != tar.TypeReg {
		return err
	}
	in, err := p.content.Open(name)
	if err != nil {
		return err
	}
	defer in.Close()
	_, err = io.Copy(p.w, in)
	return err
}

// file writes a sandbox's file over the image.
func (p *tarWriter) file(f File) error {
	h := &tar.Header{Typeflag: tar.TypeReg, Name: strings.TrimPrefix(f.Path, "/"), Mode: mode(f.Mode), Uid: f.UID, Gid: f.GID, Size: int64(len(f.Content)), Format: tar.FormatPAX}
	if f.Mode.IsDir() {
		h.Typeflag, h.Name, h.Size = tar.TypeDir, h.Name+"/", 0
	}
	if err := p.w.WriteHeader(h); err != nil || f.Mode.IsDir() {
		return err
	}
	_, err := io.WriteString(p.w, f.Content)
	return err
}

// mode returns the permissions in tar's form.
func mode(m fs.FileMode) int64 {
	bits := int64(m.Perm())
	if m&fs.ModeSticky != 0 {
		bits |= 0o1000
	}
	return bits
}
