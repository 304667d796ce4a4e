// Package export reads an archive of an image, and writes the image's files to a folder or as one tar stream.
package export

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"

	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"hutch"
)

// Tar writes an image's file system to w as a tar archive, with all layers merged. archive is the image's own archive.
func Tar(archive string, w io.Writer) error {
	out := tar.NewWriter(w)
	err := each(archive, func(h *tar.Header, content io.Reader) error {
		if err := out.WriteHeader(h); err != nil {
			return err
		}
		_, err := io.Copy(out, content)
		return err
	})
	return errors.Join(err, out.Close())
}

// Folder writes the files into a folder, which is created if it is missing. All files belong to the caller, and no name
// and no link leads out of the folder. Devices, and other files that only root can make, are left out.
func Folder(archive, dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	modes := map[string]fs.FileMode{} // modes of folders, whose content has to be written first
	if err := each(archive, func(h *tar.Header, content io.Reader) error {
		if h.Typeflag == tar.TypeDir {
			modes[h.Name] = h.FileInfo().Mode().Perm()
			return root.MkdirAll(h.Name, 0o755)
		}
		return write(root, h, content)
	}); err != nil {
		return err
	}
	for name, mode := range modes {
		if err := root.Chmod(name, mode|0o700); err != nil {
			return err
		}
	}
	return nil
}

func write(root *os.Root, h *tar.Header, content io.Reader) error {
	if err := root.MkdirAll(path.Dir(h.Name), 0o755); err != nil {
		return err
	}
	if err := root.Remove(h.Name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	switch h.Typeflag {
	case tar.TypeSymlink:
		return root.Symlink(h.Linkname, h.Name)
	case tar.TypeLink:
		return root.Link(h.Linkname, h.Name)
	case tar.TypeReg:
		f, err := root.OpenFile(h.Name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		if err != nil {
			return err
		}
		_, err = io.Copy(f, content)
		return errors.Join(err, f.Chmod(h.FileInfo().Mode().Perm()), f.Close())
	}
	return nil
}

// each calls do for every visible file of the layers, with a clean name. It reads the upper layers first, so that it
// knows which names they hide.
func each(archive string, do func(*tar.Header, io.Reader) error) error {
	img, err := tarball.ImageFromPath(archive, nil)
	if err != nil {
		return fmt.Errorf("the image that the server sent: %w", err)
	}
	layers, err := img.Layers()
	if err != nil {
		return err
	}
	above := hidden{}
	for i := len(layers) - 1; i >= 0; i-- {
		r, err := layers[i].Uncompressed()
		if err != nil {
			return err
		}
		if above, err = layer(r, above, do); err != nil {
			return errors.Join(err, r.Close())
		}
		r.Close()
	}
	return nil
}

// hidden are the paths that upper layers show or remove. A value is true if everything below its path is hidden, too.
type hidden map[string]bool

func (h hidden) covers(name string) bool {
	if _, ok := h[name]; ok {
		return true
	}
	for dir := path.Dir(name); ; dir = path.Dir(dir) {
		if h[dir] {
			return true
		}
		if dir == "." {
			return false
		}
	}
}

// layer reads one layer, and returns the names that it hides from lower layers.
func layer(r io.Reader, above hidden, do func(*tar.Header, io.Reader) error) (hidden, error) {
	own, in := hidden{}, tar.NewReader(r)
	for {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			for name, all := range above {
				own[name] = own[name] || all
			}
			return own, nil
		}
		if err != nil {
			return nil, err
		}
		h.Name = clean(h.Name)
		dir, base := path.Split(h.Name)
		switch {
		case base == ".wh..wh..opq":
			own[path.Clean(dir)] = true
			continue
		case strings.HasPrefix(base, ".wh."):
			own[path.Join(dir, base[len(".wh."):])] = true
			continue
		case h.Name == "." || above.covers(h.Name):
			continue
		}
		if h.Typeflag == tar.TypeLink {
			if h.Linkname = clean(h.Linkname); above.covers(h.Linkname) {
				return nil, hutch.Errorf(hutch.Unsupported, "/%.300s is a hard link to a file that a later step replaces: write the image with --output FILE", h.Name)
			}
		}
		own[h.Name] = own[h.Name] || h.Typeflag != tar.TypeDir
		if err := do(h, in); err != nil {
			return nil, err
		}
	}
}

func clean(name string) string {
	if name = strings.TrimPrefix(path.Clean("/"+name), "/"); name == "" {
		return "."
	}
	return name
}
