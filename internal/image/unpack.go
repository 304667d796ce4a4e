package image

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/erofs/go-erofs"
	"golang.org/x/sys/unix"
)

// TreePath is the folder into which the EROFS file at path is unpacked, next to the file. Code that removes the file
// must remove that folder, too.
func TreePath(path string) string { return path + ".tree" }

// Unpack returns the folder with the content of the EROFS file at path, which it makes once, for a kernel that cannot
// mount the file. Any number of processes may call it at once.
//
// Root keeps owners and permissions except the bits that change a program's user. For an ordinary user all files are
// the user's own, and readable. Devices, pipes and sockets are left out.
func Unpack(path string) (string, error) {
	dir := TreePath(path)
	if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
		return dir, err
	}
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	content, err := erofs.Open(f)
	if err != nil {
		return "", fmt.Errorf("open the image file %s: %w", path, err)
	}
	sweepAbandoned(filepath.Dir(path))
	tmp, err := os.MkdirTemp(filepath.Dir(path), newPrefix)
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(tmp) // after the rename it does not exist
	if err := unpackInto(filepath.Join(tmp, "tree"), content); err != nil {
		return "", fmt.Errorf("unpack the image file %s: %w", path, err)
	}
	if err := syncAll(tmp); err != nil {
		return "", err
	}
	err = os.Rename(filepath.Join(tmp, "tree"), dir)
	if errors.Is(err, fs.ErrExist) || errors.Is(err, unix.ENOTEMPTY) {
		err = nil // another caller was first
	}
	return dir, err
}

// unpacker writes files below a folder, and never outside of it.
type unpacker struct {
	content fs.FS
	to      *os.Root
	root    bool
	folders []string
}

func unpackInto(dir string, content fs.FS) error {
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	to, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer to.Close()
	u := &unpacker{content: content, to: to, root: os.Geteuid() == 0}
	if err := fs.WalkDir(content, ".", u.visit); err != nil {
		return err
	}
	for _, name := range slices.Backward(u.folders) { // now that nothing more is written into them
		info, err := fs.Stat(content, name)
		if err == nil {
			err = u.finish(name, info)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (u *unpacker) visit(name string, entry fs.DirEntry, err error) error {
	if err != nil {
		return err
	}
	switch entry.Type() {
	case fs.ModeDir:
		u.folders = append(u.folders, name)
		if name == "." {
			return nil
		}
		return u.to.Mkdir(name, 0o700)
	case fs.ModeSymlink:
		target, err := fs.ReadLink(u.content, name)
		if err == nil {
			err = u.to.Symlink(target, name)
		}
		return err
	case 0:
		return u.copy(name)
	}
	return nil
}

func (u *unpacker) copy(name string) error {
	in, err := u.content.Open(name)
	if err != nil {
		return err
	}
	defer in.Close()
	info, err := in.Stat()
	if err != nil {
		return err
	}
	out, err := u.to.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close(), u.finish(name, info))
}

// finish sets the owner, the permissions and the time of a file or folder.
func (u *unpacker) finish(name string, info fs.FileInfo) error {
	mode := info.Mode() & (fs.ModePerm | fs.ModeSticky)
	if u.root {
		uid, gid := owner(info)
		if err := u.to.Lchown(name, uid, gid); err != nil {
			return err
		}
	} else if mode |= 0o600; info.IsDir() { // else it could not be removed either
		mode |= 0o700
	}
	return errors.Join(u.to.Chmod(name, mode), u.to.Chtimes(name, info.ModTime(), info.ModTime()))
}
