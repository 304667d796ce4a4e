package native

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"hutch/internal/driver/native/inside"
	"hutch/internal/image"
	"hutch/internal/linux/mount"
)

// reserved are the folders of a root file system that instances create themselves.
var reserved = []string{"/proc", "/sys", "/dev", "/.hutch"}

// plan decides how to build an image's root file system. Writable folders, their parents, empty folders and links are
// created in memory. Everything else is bound, except the reserved folders.
func plan(c *inside.Config, root image.Root) error {
	if root.Dir == "" { // the spec is for a trial
		return nil
	}
	if err := planFolder(c, root, "/"); err != nil {
		return err
	}
	return planBinds(c, root)
}

// planBinds plans the host's folders that the image shows. It leaves out the image's own covers of masked paths,
// because the instance hides those paths itself.
func planBinds(c *inside.Config, root image.Root) error {
	for _, b := range root.Binds {
		if slices.Contains(root.Masks, b.Target) {
			continue
		}
		info, err := os.Stat(b.Source)
		if err != nil {
			return err
		}
		c.Binds = append(c.Binds, inside.Bind{Source: b.Source, Target: b.Target, Folder: info.IsDir()})
	}
	for _, path := range root.Masks {
		for i := len(c.Binds) - 1; i >= 0; i-- { // if several binds have the same target, the last one counts
			if rel, ok := strings.CutPrefix(path, c.Binds[i].Target+"/"); ok {
				c.Binds[i].Hidden = append(c.Binds[i].Hidden, rel)
				break
			}
		}
	}
	return nil
}

// withMounts adds, after each folder, the mounts below that folder on the host, because an overlay does not show them.
func withMounts(binds []inside.Bind) ([]inside.Bind, error) {
	mounts, err := mount.Points()
	if err != nil {
		return nil, err
	}
	var all []inside.Bind
	for _, b := range binds {
		all = append(all, b)
		for _, point := range mounts {
			rel, below := strings.CutPrefix(point, b.Source+"/")
			if !b.Folder || !below || slices.ContainsFunc(b.Hidden, func(h string) bool { return rel == h || strings.HasPrefix(rel, h+"/") }) {
				continue
			}
			info, err := os.Stat(point)
			if err != nil {
				return nil, err
			}
			all = append(all, inside.Bind{Source: point, Target: filepath.Join(b.Target, rel), Folder: info.IsDir()})
		}
	}
	return all, nil
}

func planFolder(c *inside.Config, root image.Root, dir string) error {
	entries, err := os.ReadDir(filepath.Join(root.Dir, dir))
	if err != nil {
		return err
	}
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		if slices.Contains(reserved, path) {
			continue
		}
		if err := planEntry(c, root, path, e); err != nil {
			return err
		}
	}
	return nil
}

func planEntry(c *inside.Config, root image.Root, path string, e fs.DirEntry) error {
	host := filepath.Join(root.Dir, path)
	switch {
	case e.Type() == fs.ModeSymlink:
		target, err := os.Readlink(host)
		c.Links = append(c.Links, inside.Link{Path: path, Target: target})
		return err
	case !e.IsDir():
		c.Files = append(c.Files, path)
		c.Binds = append(c.Binds, inside.Bind{Source: host, Target: path}) // a file
		return nil
	case slices.Contains(image.Writable, path):
		return planWritable(c, path, e)
	}
	c.Folders = append(c.Folders, inside.Folder{Path: path, Mode: 0o555})
	if slices.ContainsFunc(image.Writable, func(w string) bool { return strings.HasPrefix(w, path+"/") }) {
		return planFolder(c, root, path)
	}
	entries, err := os.ReadDir(host)
	if len(entries) > 0 {
		c.Binds = append(c.Binds, inside.Bind{Source: host, Target: path, Folder: true})
	}
	return err
}

// planWritable creates a folder that belongs to the user. Folders for temporary files belong to the user too, so that
// tar can set their times when it restores their content.
func planWritable(c *inside.Config, path string, e fs.DirEntry) error {
	info, err := e.Info()
	if err != nil {
		return err
	}
	f := inside.Folder{Path: path, Mode: uint32(info.Mode().Perm()), User: true}
	if info.Mode()&fs.ModeSticky != 0 {
		f.Mode |= unix.S_ISVTX
	}
	c.Folders = append(c.Folders, f)
	return nil
}

// openTrees clones the bound folders in this process, as root, and returns descriptors. With its ids, an instance could
// not reach folders like /root. The last tree has the devices.
func openTrees(config *inside.Config) (trees []mount.Tree, err error) {
	defer func() {
		if err != nil {
			closeTrees(trees)
		}
	}()
	if config.Binds, err = withMounts(config.Binds); err != nil {
		return nil, err
	}
	for i := range config.Binds {
		b := &config.Binds[i]
		t, err := mount.CloneOne(b.Source, mount.ReadOnly|mount.NoSUID|mount.NoDev)
		if err != nil {
			return trees, err
		}
		b.Source, b.Tree = "", inside.FirstTree+i
		trees = append(trees, t)
	}
	t, err := makeDevices()
	if errors.Is(err, unix.EPERM) { // in a container without CAP_MKNOD, use the host's nodes
		return trees, nil
	}
	if err != nil {
		return trees, err
	}
	config.Devices = inside.FirstTree + len(trees)
	return append(trees, t), nil
}

// makeDevices creates device nodes for one instance. Nodes of the host cannot be used, because every program could
// watch and lock them.
func makeDevices() (mount.Tree, error) {
	t, err := mount.New("tmpfs", mount.NoSUID|mount.NoExec, [2]string{"mode", "0755"}, [2]string{"size", "64k"})
	if err != nil {
		return -1, err
	}
	for _, d := range inside.Devices {
		err := unix.Mknodat(int(t), d.Name, unix.S_IFCHR|0o666, int(unix.Mkdev(d.Major, d.Minor)))
		if err == nil {
			err = unix.Fchmodat(int(t), d.Name, 0o666, 0) // regardless of the umask
		}
		if err != nil {
			t.Close()
			return -1, fmt.Errorf("make the device %s: %w", d.Name, err)
		}
	}
	return t, nil
}

func closeTrees(trees []mount.Tree) {
	for _, t := range trees {
		t.Close()
	}
}
