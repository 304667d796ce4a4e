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

	"hutch/internal/linux/subid"
)

// TreePath returns the path of the folder into which the EROFS file at path is unpacked, next to the file. Code that
// removes the file must remove that folder, too.
func TreePath(path string) string { return path + ".tree" }

// Unpack returns a folder with the content of the EROFS file at path, for a kernel that cannot mount the file. The
// first call makes the folder. Any number of processes can call Unpack at once.
//
// Root keeps owners and permissions except the bits that change a program's user. For an ordinary user all files are
// the user's own, and readable. Devices, pipes and sockets are left out.
func Unpack(path string) (string, error) {
	dir := TreePath(path)
	return dir, unpack(path, dir, nil)
}

// OwnedTreePath does the same as TreePath, for [UnpackOwned]. The folder with the content is inside of the returned
// folder, which only this user can enter, because programs in the content can have setuid bits.
func OwnedTreePath(path string, ids *subid.IDs) string {
	return fmt.Sprintf("%s-%d-%d", TreePath(path), ids.Users.First, ids.Groups.First)
}

// UnpackOwned does the same as Unpack, for an ordinary user with subordinate ids. Files have the owners and all
// permissions of the image, where user 0 is the first subordinate id. Only [subid.RemoveAll] can remove what it makes.
func UnpackOwned(path string, ids *subid.IDs) (string, error) {
	outer := OwnedTreePath(path, ids)
	return filepath.Join(outer, treeFolder), unpack(path, outer, ids)
}

const treeFolder = "tree"

// unpack makes the folder dir. The content is in dir or, if it belongs to ids, in a folder in dir.
func unpack(path, dir string, ids *subid.IDs) error {
	if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	content, err := erofs.Open(f)
	if err != nil {
		return fmt.Errorf("open the image file %s: %w", path, err)
	}
	sweepAbandoned(filepath.Dir(path))
	tmp, err := os.MkdirTemp(filepath.Dir(path), newPrefix)
	if err != nil {
		return err
	}
	defer subid.RemoveAll(tmp) // after the rename it is empty, or does not exist
	tree := filepath.Join(tmp, treeFolder)
	if err := unpackInto(tree, content, ids); err != nil {
		return fmt.Errorf("unpack the image file %s: %w", path, err)
	}
	if err := syncAll(tmp); err != nil {
		return err
	}
	made := tree
	if ids != nil {
		made = tmp
	}
	err = os.Rename(made, dir)
	if errors.Is(err, fs.ErrExist) || errors.Is(err, unix.ENOTEMPTY) {
		err = nil // another caller was first
	}
	return err
}

// unpacker writes files below a folder, and never outside of it.
type unpacker struct {
	content fs.FS
	to      *os.Root
	root    bool
	folders []string
	give    bool // collect the owners of the files, to set them later
	owners  []subid.Owner
}

func unpackInto(dir string, content fs.FS, ids *subid.IDs) error {
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	to, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer to.Close()
	u := &unpacker{content: content, to: to, root: os.Geteuid() == 0, give: ids != nil}
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
	if ids == nil {
		return nil
	}
	return ids.Give(dir, u.owners)
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
		if err == nil && u.give {
			info, err := entry.Info()
			if err != nil {
				return err
			}
			u.collect(name, info)
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
	mode := modeOf(info) & (fs.ModePerm | fs.ModeSticky)
	if u.root {
		uid, gid := owner(info)
		if err := u.to.Lchown(name, uid, gid); err != nil {
			return err
		}
	} else if u.give {
		u.collect(name, info)
	} else if mode |= 0o600; info.IsDir() { // without these permissions, this user could not remove it
		mode |= 0o700
	}
	return errors.Join(u.to.Chmod(name, mode), u.to.Chtimes(name, info.ModTime(), info.ModTime()))
}

// collect records the owner of a file, and the permissions that it must get after its owner.
func (u *unpacker) collect(name string, info fs.FileInfo) {
	uid, gid := owner(info)
	o := subid.Owner{Path: name, UID: uid, GID: gid}
	if m := modeOf(info); m&(fs.ModeSetuid|fs.ModeSetgid) != 0 {
		o.Mode = uint32(m.Perm())
		for bit, value := range map[fs.FileMode]uint32{fs.ModeSetuid: unix.S_ISUID, fs.ModeSetgid: unix.S_ISGID, fs.ModeSticky: unix.S_ISVTX} {
			if m&bit != 0 {
				o.Mode |= value
			}
		}
	}
	u.owners = append(u.owners, o)
}
