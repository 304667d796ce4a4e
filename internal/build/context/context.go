// Package context packs the folder of a build as the tar archive that a server expects, without files that its
// .dockerignore names.
package context

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/moby/patternmatcher"
	"github.com/moby/patternmatcher/ignorefile"
)

// Pack writes the files of a folder. A link is written as a link: no file outside of the folder is read. ignore is the
// path of the file with the patterns of excluded files; if it is missing, all files are packed.
func Pack(w io.Writer, dir, ignore string) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	m, err := patterns(ignore)
	if err != nil {
		return err
	}
	p := &packer{tar.NewWriter(w), root, m}
	if err := fs.WalkDir(root.FS(), ".", p.add); err != nil {
		return err
	}
	return p.out.Close()
}

func patterns(file string) (*patternmatcher.PatternMatcher, error) {
	f, err := os.Open(file)
	if errors.Is(err, fs.ErrNotExist) {
		return patternmatcher.New(nil)
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	list, err := ignorefile.ReadAll(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return patternmatcher.New(list)
}

type packer struct {
	out    *tar.Writer
	root   *os.Root
	ignore *patternmatcher.PatternMatcher
}

func (p *packer) add(path string, d fs.DirEntry, err error) error {
	if err != nil || path == "." {
		return err
	}
	if out, err := p.ignore.MatchesOrParentMatches(path); err != nil || out {
		if err == nil && d.IsDir() && !p.ignore.Exclusions() {
			return filepath.SkipDir
		}
		return err
	}
	info, err := d.Info()
	if errors.Is(err, fs.ErrNotExist) {
		return nil // it vanished
	}
	if err != nil || info.Mode()&(fs.ModeSocket|fs.ModeDevice) != 0 {
		return err
	}
	return p.write(path, info)
}

func (p *packer) write(path string, info fs.FileInfo) (err error) {
	link := ""
	if info.Mode()&fs.ModeSymlink != 0 {
		if link, err = p.root.Readlink(path); err != nil {
			return err
		}
	}
	h, err := tar.FileInfoHeader(info, link)
	if err != nil {
		return err
	}
	h.Name, h.Uid, h.Gid, h.Uname, h.Gname, h.Format = path, 0, 0, "", "", tar.FormatPAX
	if info.IsDir() {
		h.Name += "/"
	}
	if !info.Mode().IsRegular() {
		return p.out.WriteHeader(h)
	}
	f, err := p.root.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	if now, err := f.Stat(); err == nil && now.Mode().IsRegular() {
		h.Size = now.Size()
	}
	if err := p.out.WriteHeader(h); err != nil {
		return err
	}
	if n, err := io.Copy(p.out, io.LimitReader(f, h.Size)); err != nil || n < h.Size {
		return errors.Join(err, checkShrunk(n, h.Size, path))
	}
	return nil
}

func checkShrunk(has, had int64, path string) error {
	if has == had {
		return nil
	}
	return fmt.Errorf("%s became shorter while it was read: try again", strings.TrimPrefix(path, "./"))
}
