package native

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"

	"hutch"
	"hutch/internal/driver"
	"hutch/internal/driver/native/inside"
	"hutch/internal/image"
	"hutch/internal/linux/clone"
	"hutch/internal/linux/mount"
	"hutch/internal/linux/subid"
	"hutch/internal/tarball"
	"hutch/internal/wire"
)

// An instance of an image that is an EROFS file has an overlay as its root: the image as base layer, and its own file
// system in memory above. As root, the daemon mounts the file, and shows the owners of its files as ids of the
// instance, which has a range of ids for that. If the kernel cannot mount the file, and without root, a folder with the
// unpacked content replaces it. The instances of an ordinary user share that user's subordinate ids, and the folder
// belongs to these ids. Without subordinate ids, there is only one id, to which all files belong.

// mostImageIDs is how many ids an instance of an image has for the image, if the daemon is root. rangeIDs is one more,
// for the agent's id.
const (
	mostImageIDs = 1 << 16
	rangeIDs     = mostImageIDs + 1
)

// imageIDs returns how many ids, counted from 0, an instance of an image has for its commands. If all its files and
// commands have the same id, it returns 0, and an error with the reason.
func (d *Driver) imageIDs() (int, error) {
	if d.root {
		return mostImageIDs, nil
	}
	ids, err := d.subordinate()
	if err != nil {
		return 0, err
	}
	return subid.Apart(min(ids.Users.Size, ids.Groups.Size)), nil
}

// noImageLayer refuses a layer over an image: the kernel stacks at most two overlays, and the image needs one of them.
var noImageLayer = hutch.Errorf(hutch.Unsupported, "native sandboxes of an image cannot share the files that they have written")

// checkImage refuses options that an instance of an image cannot have.
func (d *Driver) checkImage(spec driver.Spec) error {
	if spec.Layer != nil {
		return noImageLayer
	}
	user := spec.Root.Account()
	most, _ := d.imageIDs()
	if most == 0 {
		most = mostImageIDs
	}
	for _, id := range append([]int{user.UID, user.GID}, user.Groups...) {
		if id < 0 || id >= most {
			return hutch.Errorf(hutch.Unsupported, "the runtime native has the ids 0 to %d, and the image's user needs %d: use the runtime gvisor", most-1, id)
		}
	}
	return nil
}

// planImage describes the files that the instance has over the image.
func planImage(c *inside.Config, root image.Root) {
	c.Image = &inside.Image{}
	for _, f := range root.Files {
		c.Image.Files = append(c.Image.Files, inside.File{
			Path: f.Path, Folder: f.Mode.IsDir(), Mode: unixMode(f.Mode), UID: f.UID, GID: f.GID, Content: f.Content, ModTime: tarball.Untouched(f.Path).Unix(),
		})
	}
}

func unixMode(m fs.FileMode) uint32 {
	mode := uint32(m.Perm())
	if m&fs.ModeSticky != 0 {
		mode |= unix.S_ISVTX
	}
	return mode
}

// attachImage attaches the image at the place where the instance, which waits for its configuration, expects it.
func (i *instance) attachImage(root image.Root, c *inside.Config) error {
	if !i.driver.root {
		dir, err := i.unpack(root.EROFS, c.Apart > 0)
		c.Image.Tree = dir
		return err
	}
	tree, release, err := i.driver.mountImage(root.EROFS)
	if err != nil {
		return err
	}
	i.releaseImage = release
	defer tree.Close()
	users, err := os.Open(fmt.Sprintf("/proc/%d/ns/user", i.record.PID))
	if err != nil {
		return err
	}
	defer users.Close()
	if err := tree.MapIDs(int(users.Fd())); err != nil {
		return fmt.Errorf("show the image's owners as ids of the instance: %w", err)
	}
	return mount.Apart(func() error {
		if err := i.process.With(func(fd int) error { return unix.Setns(fd, unix.CLONE_NEWNS) }); err != nil {
			return fmt.Errorf("enter the mounts of an instance: %w", err)
		}
		return tree.AttachTo(inside.AttachPoint)
	})
}

// unpack unpacks the image for an ordinary user.
func (i *instance) unpack(path string, owners bool) (string, error) {
	if !owners {
		return image.Unpack(path)
	}
	ids, err := i.driver.subordinate()
	if err != nil {
		return "", err
	}
	return image.UnpackOwned(path, ids)
}

// mountImage mounts an EROFS file without a loop device. This needs Linux 6.12. If the kernel refuses the mount,
// mountImage mounts the unpacked content. Call release when the instance is gone.
func (d *Driver) mountImage(path string) (tree mount.Tree, release func(), err error) {
	if onOverlay(path) {
		return -1, nil, hutch.Errorf(hutch.Unsupported, "the file of the image is on an overlay file system, as that of a container is, and the kernel can put no sandbox of the runtime native over it: keep the data folder on a volume or a disk, or use the runtime gvisor")
	}
	tree, release, err = d.images.take(path)
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		return tree, release, err
	}
	dir, err := image.Unpack(path)
	if err != nil {
		return -1, nil, err
	}
	tree, err = mount.CloneOne(dir, imageAttributes)
	return tree, func() {}, err
}

const imageAttributes = mount.ReadOnly | mount.NoSUID | mount.NoDev

func mountFile(path string) (mount.Tree, error) {
	return mount.New("erofs", imageAttributes, [2]string{"source", path})
}

// onOverlay reports whether a file is on an overlay. A file system mounted from such a file, with an overlay over it,
// would be one level more than the kernel stacks. The kernel also cannot show the owners of files on an overlay as
// other ids.
func onOverlay(path string) bool {
	var st unix.Statfs_t
	return unix.Statfs(path, &st) == nil && st.Type == unix.OVERLAYFS_SUPER_MAGIC
}

// mapIDs gives an instance its ids, inside and on this host.
func (i *instance) mapIDs(pid int, c inside.Config) error {
	var users []clone.ID
	switch {
	case !i.driver.root && c.Apart > 0:
		ids, err := i.driver.subordinate()
		if err != nil {
			return err
		}
		return ids.Map(pid, apartIDs(ids.Users.First, c.Apart), apartIDs(ids.Groups.First, c.Apart))
	case !i.driver.root:
		return clone.MapIDs(pid, []clone.ID{{Inside: c.User, Outside: os.Geteuid()}}, []clone.ID{{Inside: c.Group, Outside: os.Getegid()}})
	case c.Image != nil:
		users = apartIDs(i.record.UID, c.Apart)
	default:
		users = []clone.ID{{Inside: 0, Outside: i.record.UID}, {Inside: image.UID, Outside: i.record.UID + 1}}
	}
	return clone.MapIDs(pid, users, users)
}

// apartIDs returns the ids of commands, counted from 0, and after them the agent's id.
func apartIDs(first, commands int) []clone.ID {
	return []clone.ID{{Inside: 0, Outside: first, Size: commands}, {Inside: wire.AgentID, Outside: first + commands}}
}
