package subid

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"hutch/internal/linux/clone"
)

// Owner is the owner that a file of a tree should have, as ids in an image: 0 is the first subordinate id.
type Owner struct {
	Path     string // relative to the tree
	UID, GID int
	// Mode has the permissions and the setuid and setgid bits of a file, because a change of the owner clears these
	// bits. It is 0 for a file without such bits, and for a link.
	Mode uint32
}

// batch is how many files are changed in one child process. While the child runs, for about a millisecond, no other
// goroutine of this process can run on the same processor.
const batch = 500

// Give gives the files of a tree, which belong to this process's user, to the subordinate ids. It skips files whose id
// in the image is outside of the range: inside, such a file belongs to no user.
func (i *IDs) Give(dir string, owners []Owner) error {
	ns, err := i.Namespace()
	if err != nil {
		return err
	}
	defer unix.Close(ns)
	tree, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return &os.PathError{Op: "open", Path: dir, Err: err}
	}
	defer unix.Close(tree)
	own, group := os.Getuid(), os.Getgid()
	var calls []clone.Call
	var paths []*byte
	flush := func() error {
		err := clone.CallInUsers(ns, calls, paths)
		calls, paths = nil, nil
		if err != nil {
			return fmt.Errorf("give the files of %s to subordinate ids: %w", dir, err)
		}
		return nil
	}
	for _, o := range owners {
		path, err := syscall.BytePtrFromString(o.Path)
		if err != nil {
			return err
		}
		paths = append(paths, path)
		at := uintptr(unsafe.Pointer(path))
		uid, gid := host(i.Users, o.UID, own), host(i.Groups, o.GID, group)
		calls = append(calls, clone.Call{Number: unix.SYS_FCHOWNAT, Args: [5]uintptr{uintptr(tree), at, uid, gid, unix.AT_SYMLINK_NOFOLLOW}})
		if o.Mode != 0 {
			calls = append(calls, clone.Call{Number: unix.SYS_FCHMODAT, Args: [5]uintptr{uintptr(tree), at, uintptr(o.Mode)}})
		}
		if len(calls) >= batch {
			if err := flush(); err != nil {
				return err
			}
		}
	}
	return flush()
}

// host returns the id on this host for an id of an image, or other if the range lacks that id. The last id of a range
// is for the agent.
func host(r Range, id, other int) uintptr {
	if id < 0 || id >= Apart(r.Size) {
		return uintptr(other)
	}
	return uintptr(r.First + id)
}

// Apart returns how many ids, counted from 0, commands have, if there are size ids for them and the agent.
func Apart(size int) int { return min(size-1, 1<<16) }

// RemoveAll removes a folder whose files can belong to subordinate ids of this user.
func RemoveAll(dir string) error {
	err := os.RemoveAll(dir)
	if os.Geteuid() == 0 || !errors.Is(err, fs.ErrPermission) {
		return err
	}
	ids, missing := Find()
	if missing != nil {
		return errors.Join(err, missing)
	}
	if err := ids.takeBack(dir); err != nil {
		return err
	}
	return os.RemoveAll(dir)
}

// takeBack gives all folders below dir to this process's user, from the top down, so that it can remove their content.
func (i *IDs) takeBack(dir string) error {
	ns, err := i.Namespace()
	if err != nil {
		return err
	}
	defer unix.Close(ns)
	for level := []string{dir}; len(level) > 0; {
		if err := takeFolders(ns, level); err != nil {
			return err
		}
		var next []string
		for _, d := range level {
			if err := os.Chmod(d, 0o700); err != nil {
				return err
			}
			entries, err := os.ReadDir(d)
			if err != nil {
				return err
			}
			for _, e := range entries {
				if e.IsDir() {
					next = append(next, filepath.Join(d, e.Name()))
				}
			}
		}
		level = next
	}
	return nil
}

func takeFolders(ns int, folders []string) error {
	const here = ^uintptr(99) // AT_FDCWD
	for len(folders) > 0 {
		some := folders[:min(batch, len(folders))]
		folders = folders[len(some):]
		var calls []clone.Call
		var paths []*byte
		for _, f := range some {
			path, err := syscall.BytePtrFromString(f)
			if err != nil {
				return err
			}
			paths = append(paths, path)
			calls = append(calls, clone.Call{Number: unix.SYS_FCHOWNAT, Args: [5]uintptr{
				here, uintptr(unsafe.Pointer(path)), uintptr(os.Getuid()), uintptr(os.Getgid()), unix.AT_SYMLINK_NOFOLLOW,
			}})
		}
		if err := clone.CallInUsers(ns, calls, paths); err != nil {
			return fmt.Errorf("take folders back from subordinate ids: %w", err)
		}
	}
	return nil
}
