package inside

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// The root of an instance is a new folder in memory, which is read only. Each top folder of the container is an overlay
// in it: the container's files, with ours above them. One overlay over the whole root is impossible, because the kernel
// shows nothing that is below a mount of the container, such as /etc/hosts. A folder with such mounts, /etc, is copied
// instead. The folders of the user are in another file system in memory, whose size is the limit of written files.
//
// From the pod, only the agent's program, /proc, /sys and /dev are visible below the new root.

// shown are the folders of the container that are visible unchanged.
var shown = []string{"proc", "sys", "dev"}

// renamed are the files that contain the host name. The agent, which is root, can change them.
var renamed = []string{"/etc/hostname", "/etc/hosts"}

// mostCopied bounds the files that are copied from the container, together with those that an instance has over them.
const mostCopied = "64m"

// makeRoot makes the root and enters it. It returns a descriptor of the file system for written files.
func makeRoot(b Boot) (memory int, err error) {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_SLAVE, ""); err != nil {
		return -1, fmt.Errorf("separate the mounts: %w", err)
	}
	for dir, size := range map[string]string{memoryDir: fmt.Sprintf("%d,nr_inodes=%d", b.Size, b.Inodes), layersDir: mostCopied} {
		if err := unix.Mount("tmpfs", dir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=0755,size="+size); err != nil {
			return -1, fmt.Errorf("make a file system in memory: %w", err)
		}
	}
	memory, err = unix.Open(memoryDir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	r := rootMaker{root: layersDir + "/root", upper: layersDir + "/upper", work: layersDir + "/work"}
	if err := r.make(b); err != nil {
		unix.Close(memory)
		return -1, err
	}
	return memory, nil
}

type rootMaker struct{ root, upper, work string }

func (r rootMaker) make(b Boot) error {
	for _, dir := range []string{r.root, r.upper, r.work} {
		if err := errors.Join(os.Mkdir(dir, 0o755), os.Chmod(dir, 0o755)); err != nil {
			return err
		}
	}
	entries, err := os.ReadDir("/")
	if err != nil {
		return err
	}
	layered := map[string]bool{}
	for _, e := range entries {
		if layered[e.Name()], err = r.show(e); err != nil {
			return err
		}
	}
	if err := r.put(b.Files, layered); err != nil {
		return err
	}
	for name, is := range layered {
		if is {
			if err := r.mountOverlay(name); err != nil {
				return err
			}
		}
	}
	if err := r.open(b); err != nil {
		return err
	}
	return r.enter()
}

// open makes the parts that can be written, or that differ between pods: the folders of the user, and the files with
// the host name and the memory.
func (r rootMaker) open(b Boot) error {
	for i, path := range b.Writable {
		at := slices.IndexFunc(b.Files, func(f File) bool { return f.Path == path && f.Mode.IsDir() })
		if at < 0 {
			return fmt.Errorf("the folder %s is not among the instance's", path)
		}
		f := b.Files[at]
		dir := fmt.Sprintf("%s/%d", memoryDir, i)
		if err := errors.Join(os.Mkdir(dir, 0o700), os.Lchown(dir, f.UID, f.GID), os.Chmod(dir, f.Mode&(fs.ModePerm|fs.ModeSticky)), bind(dir, r.root+path)); err != nil {
			return err
		}
	}
	for _, path := range renamed {
		copied := memoryDir + "/" + filepath.Base(path)
		if err := errors.Join(copyFile(r.root+path, copied), os.Chmod(copied, 0o644), bind(copied, r.root+path)); err != nil {
			return err
		}
	}
	return r.showLimit(b.Limit)
}

// show makes one top entry of the root for an entry of the container. It returns true if the entry must become an
// overlay, which show does not mount.
func (r rootMaker) show(e fs.DirEntry) (layered bool, err error) {
	from, to := "/"+e.Name(), filepath.Join(r.root, e.Name())
	switch {
	case from == Folder:
		return false, nil
	case e.Type() == fs.ModeSymlink, e.Type().IsRegular():
		return false, copyTree(from, to)
	case !e.IsDir():
		return false, nil
	}
	if slices.Contains(shown, e.Name()) {
		return false, errors.Join(os.Mkdir(to, 0o755), bind(from, to))
	}
	// Only a trial shows whether the kernel allows the overlay.
	trial := filepath.Join(r.work, "trial")
	if err := errors.Join(os.Mkdir(to, 0o755), os.MkdirAll(trial+"/upper", 0o755), os.MkdirAll(trial+"/work", 0o755)); err != nil {
		return false, err
	}
	defer os.RemoveAll(trial)
	if err := overlay(from, trial+"/upper", trial+"/work", to); errors.Is(err, unix.EINVAL) {
		return false, copyTree(from, to)
	} else if err != nil {
		return false, err
	}
	return true, errors.Join(unix.Unmount(to, 0), mirror(from, to), os.Mkdir(filepath.Join(r.upper, e.Name()), 0o755), mirror(from, filepath.Join(r.upper, e.Name())))
}

func bind(from, to string) error {
	if err := unix.Mount(from, to, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("show %s: %w", from, err)
	}
	return nil
}

func overlay(lower, upper, work, to string) error {
	options := "lowerdir=" + lower + ",upperdir=" + upper + ",workdir=" + work
	const flags = unix.MS_RDONLY | unix.MS_NOSUID | unix.MS_NODEV
	err := unix.Mount("overlay", to, "overlay", flags, options+",userxattr")
	if errors.Is(err, unix.EINVAL) { // gVisor does not know the last option
		err = unix.Mount("overlay", to, "overlay", flags, options)
	}
	if err != nil {
		return fmt.Errorf("lay the instance's files over %s: %w", lower, err)
	}
	return nil
}

// mountOverlay mounts the overlay of a top folder.
func (r rootMaker) mountOverlay(name string) error {
	work := filepath.Join(r.work, name)
	if err := os.Mkdir(work, 0o755); err != nil {
		return err
	}
	return overlay("/"+name, filepath.Join(r.upper, name), work, filepath.Join(r.root, name))
}

// put writes the instance's own files, which become upper files of overlays, or are put over copies. It follows no
// link.
func (r rootMaker) put(files []File, layered map[string]bool) error {
	root, err := os.OpenRoot(r.root)
	if err != nil {
		return err
	}
	defer root.Close()
	upper, err := os.OpenRoot(r.upper)
	if err != nil {
		return err
	}
	defer upper.Close()
	for _, f := range files {
		path := filepath.Clean("/" + f.Path)
		top, _, _ := strings.Cut(path[1:], "/")
		dir := root
		switch {
		case slices.Contains(shown, top):
			continue
		case layered[top]:
			dir = upper
		}
		if err := putFile(dir, filepath.Join(".", path), f); err != nil {
			return fmt.Errorf("put %s over the image: %w", path, err)
		}
	}
	return nil
}

// putFile writes a file in place of any other file with its name. A folder that exists keeps its content.
func putFile(dir *os.Root, name string, f File) error {
	info, err := dir.Lstat(name)
	kept := err == nil && info.IsDir() && f.Mode.IsDir()
	switch {
	case err == nil && !kept:
		err = dir.RemoveAll(name)
	case errors.Is(err, fs.ErrNotExist):
		err = nil
	}
	if err != nil {
		return err
	}
	if !f.Mode.IsDir() {
		err = dir.WriteFile(name, []byte(f.Content), 0o600)
	} else if !kept {
		err = dir.Mkdir(name, 0o700)
	}
	if err != nil {
		return err
	}
	return errors.Join(dir.Lchown(name, f.UID, f.GID), dir.Chmod(name, f.Mode&(fs.ModePerm|fs.ModeSticky)))
}

// mirror copies the owner and the mode of a file or folder to another one.
func mirror(from, to string) error {
	var st unix.Stat_t
	if err := unix.Lstat(from, &st); err != nil {
		return err
	}
	if err := unix.Lchown(to, int(st.Uid), int(st.Gid)); err != nil {
		return err
	}
	if st.Mode&unix.S_IFMT == unix.S_IFLNK {
		return nil
	}
	return unix.Chmod(to, st.Mode&0o1777) // an instance has no setuid programs
}

// copyTree copies files, folders and links, and leaves out everything else. If something is mounted over a file, it
// copies that.
func copyTree(from, to string) error {
	return filepath.WalkDir(from, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		target := to + path[len(from):]
		switch {
		case e.IsDir():
			if err = os.Mkdir(target, 0o700); errors.Is(err, fs.ErrExist) {
				err = nil
			}
		case e.Type() == fs.ModeSymlink:
			var link string
			if link, err = os.Readlink(path); err == nil {
				err = os.Symlink(link, target)
			}
		case e.Type().IsRegular():
			err = copyFile(path, target)
		default:
			return nil
		}
		if err == nil {
			err = mirror(path, target)
		}
		if err != nil {
			return fmt.Errorf("copy %s, which has mounts of the container: %w", path, err)
		}
		return nil
	})
}

func copyFile(from, to string) error {
	in, err := os.OpenFile(from, os.O_RDONLY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}

// enter makes the folder the root of this process.
func (r rootMaker) enter() error {
	program := filepath.Join(r.root, agentProgram)
	if err := unix.Mount(agentProgram, program, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("show the agent's program: %w", err)
	}
	// The root must be a mount.
	if err := unix.Mount(r.root, rootDir, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("make the root: %w", err)
	}
	const old = Folder + "/old"
	if err := os.Mkdir(rootDir+old, 0o700); err != nil {
		return err
	}
	if err := unix.PivotRoot(rootDir, rootDir+old); err != nil {
		return fmt.Errorf("enter the root: %w", err)
	}
	if err := errors.Join(unix.Chdir("/"), unix.Unmount(old, unix.MNT_DETACH)); err != nil {
		return fmt.Errorf("leave the container's root: %w", err)
	}
	if err := os.Remove(old); err != nil {
		return err
	}
	return unix.Mount("", "/", "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY|unix.MS_NOSUID|unix.MS_NODEV, "")
}
