// Package mount builds mount trees from file descriptors.
//
// No path is looked up twice: exactly the file that was opened and checked is mounted, and the target is a descriptor
// as well. It needs Linux 5.12.
package mount

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// These are attributes of mounts that show parts of the host.
const (
	ReadOnly = unix.MOUNT_ATTR_RDONLY
	NoSUID   = unix.MOUNT_ATTR_NOSUID
	NoDev    = unix.MOUNT_ATTR_NODEV
	NoExec   = unix.MOUNT_ATTR_NOEXEC
)

// Tree is a tree of mounts that is not attached yet, or the root of an attached tree. If it was not attached, it
// disappears with its last descriptor.
type Tree int

// Clone copies the tree of mounts at path, including all mounts below. The copy takes no part in mount propagation,
// and has the given attributes in addition to those of the original.
func Clone(path string, attributes uint64) (Tree, error) {
	return clone(path, attributes, unix.AT_RECURSIVE)
}

// CloneOne does the same as Clone, without the mounts below.
func CloneOne(path string, attributes uint64) (Tree, error) { return clone(path, attributes, 0) }

func clone(path string, attributes uint64, recursive uint) (Tree, error) {
	t, err := cloneAt(unix.AT_FDCWD, path, recursive)
	if err != nil {
		return -1, fmt.Errorf("clone the mount of %s: %w", path, err)
	}
	attr := unix.MountAttr{Attr_set: attributes, Propagation: unix.MS_PRIVATE}
	if err := unix.MountSetattr(int(t), "", unix.AT_EMPTY_PATH|recursive, &attr); err != nil {
		t.Close()
		return -1, fmt.Errorf("change the mount of %s: %w", path, err)
	}
	return t, nil
}

// Device clones one device node. It checks the device numbers, so that it never mounts another file at that path.
func Device(path string, major, minor uint32) (Tree, error) {
	t, err := cloneAt(unix.AT_FDCWD, path, unix.AT_SYMLINK_NOFOLLOW)
	if err != nil {
		return -1, fmt.Errorf("clone the mount of %s: %w", path, err)
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(t), &st); err != nil {
		t.Close()
		return -1, fmt.Errorf("stat %s: %w", path, err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFCHR || uint64(st.Rdev) != unix.Mkdev(major, minor) {
		t.Close()
		return -1, fmt.Errorf("%s is not the device %d:%d", path, major, minor)
	}
	return t, nil
}

// Sub copies the mount at path below t, an attached tree, without mounts on top of it.
func (t Tree) Sub(path string, attributes uint64) (Tree, error) {
	sub, err := cloneAt(int(t), path[1:], unix.AT_SYMLINK_NOFOLLOW)
	if err != nil || attributes == 0 {
		return sub, err
	}
	attr := unix.MountAttr{Attr_set: attributes}
	if err := unix.MountSetattr(int(sub), "", unix.AT_EMPTY_PATH, &attr); err != nil {
		sub.Close()
		return -1, err
	}
	return sub, nil
}

func cloneAt(dir int, path string, flags uint) (Tree, error) {
	fd, err := unix.OpenTree(dir, path, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|flags)
	return Tree(fd), err
}

// New makes a file system. An option is a name and a value; the value of a flag is empty.
func New(kind string, attributes int, options ...[2]string) (Tree, error) {
	fd, err := unix.Fsopen(kind, unix.FSOPEN_CLOEXEC)
	if err != nil {
		return -1, fmt.Errorf("open a %s: %w", kind, err)
	}
	defer unix.Close(fd)
	for _, o := range options {
		set := unix.FsconfigSetString
		if o[1] == "" {
			set = func(fd int, key, _ string) error { return unix.FsconfigSetFlag(fd, key) }
		}
		if err := set(fd, o[0], o[1]); err != nil {
			return -1, fmt.Errorf("set %s=%s of a %s: %w", o[0], o[1], kind, err)
		}
	}
	if err := unix.FsconfigCreate(fd); err != nil {
		return -1, fmt.Errorf("make a %s: %w", kind, err)
	}
	t, err := unix.Fsmount(fd, unix.FSMOUNT_CLOEXEC, attributes)
	if err != nil {
		return -1, fmt.Errorf("mount a %s: %w", kind, err)
	}
	return Tree(t), nil
}

// Copy copies an attached tree without mounts below it.
func (t Tree) Copy() (Tree, error) { return cloneAt(int(t), "", unix.AT_EMPTY_PATH) }

// Root copies the mount that is the root of this process, without the mounts below it.
func Root() (Tree, error) { return cloneAt(unix.AT_FDCWD, "/", 0) }

// MapIDs makes a tree show its files with the ids of a user namespace, given by a descriptor. The tree must not be
// attached yet. MapIDs needs the host's root, and not every file system supports it.
func (t Tree) MapIDs(users int) error {
	attr := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_IDMAP, Userns_fd: uint64(users)}
	return os.NewSyscallError("mount_setattr", unix.MountSetattr(int(t), "", unix.AT_EMPTY_PATH, &attr))
}

// AttachTo attaches t at a path of this process.
func (t Tree) AttachTo(path string) error {
	err := unix.MoveMount(int(t), "", unix.AT_FDCWD, path, unix.MOVE_MOUNT_F_EMPTY_PATH)
	return wrap("attach to", path, err)
}

// Attach attaches child at path below t, an attached tree. Symbolic links in path are followed, but cannot lead
// outside of t.
func (t Tree) Attach(child Tree, path string) error {
	at, err := t.Open(path, unix.O_PATH)
	if err != nil {
		return err
	}
	defer unix.Close(at)
	err = unix.MoveMount(int(child), "", at, "", unix.MOVE_MOUNT_F_EMPTY_PATH|unix.MOVE_MOUNT_T_EMPTY_PATH)
	return wrap("attach to", path, err)
}

// Open opens a path below t in the same way as a program whose root is t.
func (t Tree) Open(path string, flags int) (int, error) {
	how := unix.OpenHow{Flags: uint64(flags | unix.O_CLOEXEC), Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS}
	fd, err := unix.Openat2(int(t), path, &how)
	return fd, wrap("open", path, err)
}

// Pivot makes t, which is attached, the root of this process and of its mount namespace, and detaches everything
// else.
func (t Tree) Pivot() error {
	if err := unix.Fchdir(int(t)); err != nil {
		return err
	}
	// The old root is mounted over the new one, and detached there.
	if err := unix.PivotRoot(".", "."); err != nil {
		return wrap("pivot to", "the new root", err)
	}
	return errors.Join(
		wrap("let go of", "the old root", unix.Unmount(".", unix.MNT_DETACH)),
		unix.Chdir("/"))
}

// Close closes the descriptor.
func (t Tree) Close() error { return unix.Close(int(t)) }

func wrap(what, path string, err error) error {
	if err != nil {
		return fmt.Errorf("%s %s: %w", what, path, err)
	}
	return nil
}
