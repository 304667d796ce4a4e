package inside

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"hutch/internal/linux/mount"
)

// The root of an instance of an image is an overlay. Its upper folder is filled before the overlay is mounted. At that
// time it has only our own files, so no link of the image is ever followed. In folders in which we create and mount
// more files, the image's content is hidden.

// Image is an image under the root of an instance.
type Image struct {
	// Tree is a folder with the image's files. If it is empty, the daemon attaches the image at AttachPoint before it
	// sends the configuration.
	Tree string `json:"tree,omitempty"`
	// Files replace those of the image. A folder comes before its content.
	Files []File `json:"files"`
}

// File is a file or a folder that an instance has over its image.
type File struct {
	Path    string `json:"path"`
	Folder  bool   `json:"folder,omitempty"`
	Mode    uint32 `json:"mode"`
	UID     int    `json:"uid,omitempty"`
	GID     int    `json:"gid,omitempty"`
	Content string `json:"content,omitempty"`
	// ModTime is the modification time, in seconds since 1970.
	ModTime int64 `json:"modTime,omitempty"`
}

// ours are the folders that Hutch mounts. The image's content in them is hidden.
var ours = []string{"/proc", "/sys", "/dev", own}

// opaque is the attribute of a folder that hides the folder in the layer below.
const opaque = "user.overlay.opaque"

// newImageRoot makes an overlay over the image, and attaches it at AttachPoint.
func newImageRoot(c Config) (mount.Tree, error) {
	if err := attachTree(c); err != nil {
		return -1, err
	}
	above, err := newMemory(c, "0700")
	if err != nil {
		return -1, err
	}
	defer above.Close()
	if err := above.AttachTo(benchPoint); err != nil {
		return -1, err
	}
	for _, dir := range []string{"upper", "work"} {
		if err := unix.Mkdirat(int(above), dir, 0o755); err != nil {
			return -1, fmt.Errorf("make the folder %s: %w", dir, err)
		}
	}
	if err := fillUpper(filepath.Join(benchPoint, "upper"), c); err != nil {
		return -1, err
	}
	attributes := mount.NoSUID | mount.NoDev
	if c.Apart > 0 {
		attributes = mount.NoDev // setuid is allowed: such a program runs as its owner inside
	}
	root, err := mount.New("overlay", attributes,
		[2]string{"lowerdir", AttachPoint}, [2]string{"upperdir", benchPoint + "/upper"}, [2]string{"workdir", benchPoint + "/work"},
		[2]string{"userxattr", ""})
	if err != nil {
		return -1, err
	}
	return root, root.AttachTo(AttachPoint)
}

// openImage clones the mount of a folder with the image's files. At that time, this process has the id of the server's
// user, because only that user can enter the parent folders.
func openImage(c Config) error {
	if c.Image == nil || c.Image.Tree == "" {
		return nil
	}
	t, err := mount.Clone(c.Image.Tree, mount.ReadOnly|mount.NoSUID|mount.NoDev)
	if err != nil {
		return err
	}
	defer t.Close()
	return os.NewSyscallError("dup3", unix.Dup3(int(t), FirstTree, unix.O_CLOEXEC))
}

func attachTree(c Config) error {
	if c.Image.Tree == "" {
		return nil
	}
	t := mount.Tree(FirstTree) // such an instance has no other trees
	defer t.Close()
	return t.AttachTo(AttachPoint)
}

// newMemory makes the file system for written files.
func newMemory(c Config, mode string) (mount.Tree, error) {
	return mount.New("tmpfs", mount.NoSUID|mount.NoDev, [][2]string{
		{"size", strconv.FormatInt(c.Size, 10)}, {"nr_inodes", strconv.FormatInt(c.Inodes, 10)}, {"mode", mode},
	}...)
}

func fillUpper(dir string, c Config) error {
	upper, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer upper.Close()
	for _, f := range c.Image.Files {
		if err := putFile(upper, f, c.Privileged); err != nil {
			return fmt.Errorf("put %s over the image: %w", f.Path, err)
		}
	}
	for _, f := range slices.Backward(c.Image.Files) { // making a file changes the time of its folder
		at := time.Unix(f.ModTime, 0)
		if err := upper.Chtimes(filepath.Join(".", f.Path), at, at); err != nil {
			return fmt.Errorf("set the time of %s: %w", f.Path, err)
		}
	}
	for _, name := range ours {
		if err := unix.Setxattr(filepath.Join(dir, name), opaque, []byte("y"), 0); err != nil {
			return fmt.Errorf("hide what the image has in %s, which needs Linux 6.6: %w", name, err)
		}
	}
	return nil
}

// putFile makes a file or folder. Without owners, everything belongs to the one user.
func putFile(upper *os.Root, f File, owners bool) error {
	name := filepath.Join(".", f.Path)
	var err error
	switch {
	case f.Folder && name != ".":
		err = upper.Mkdir(name, 0o700)
	case !f.Folder:
		err = upper.WriteFile(name, []byte(f.Content), 0o600)
	}
	if err == nil && owners {
		err = upper.Lchown(name, f.UID, f.GID)
	}
	mode := os.FileMode(f.Mode & 0o777)
	if f.Mode&unix.S_ISVTX != 0 {
		mode |= os.ModeSticky
	}
	if !owners && f.Folder {
		mode |= 0o700
	}
	return errors.Join(err, upper.Chmod(name, mode))
}
