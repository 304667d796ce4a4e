package native

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"hutch/internal/driver/native/place"
	"hutch/internal/image"
	"hutch/internal/linux/mount"
)

// reserved are the folders of a root file system that places make themselves.
var reserved = []string{"/proc", "/sys", "/dev", "/.hutch"}

// plan says how to put an image's root file system together: what is empty or
// above something writable is made anew in memory, the rest is bound.
func plan(c *place.Config, root image.Root) error {
	if root.Dir == "" { // a trial
		return nil
	}
	if err := planFolder(c, root, "/"); err != nil {
		return err
	}
	for _, b := range root.Binds {
		c.Binds = append(c.Binds, place.Bind{Source: b.Source, Target: b.Target})
	}
	return nil
}

func planFolder(c *place.Config, root image.Root, dir string) error {
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

func planEntry(c *place.Config, root image.Root, path string, e fs.DirEntry) error {
	host := filepath.Join(root.Dir, path)
	switch {
	case e.Type() == fs.ModeSymlink:
		target, err := os.Readlink(host)
		c.Links = append(c.Links, place.Link{Path: path, Target: target})
		return err
	case !e.IsDir():
		c.Files = append(c.Files, path)
		c.Binds = append(c.Binds, place.Bind{Source: host, Target: path})
		return nil
	case slices.Contains(image.Writable, path):
		return planWritable(c, path, e)
	}
	c.Folders = append(c.Folders, place.Folder{Path: path, Mode: 0o555})
	if slices.ContainsFunc(image.Writable, func(w string) bool { return strings.HasPrefix(w, path+"/") }) {
		return planFolder(c, root, path)
	}
	inside, err := os.ReadDir(host)
	if len(inside) > 0 {
		c.Binds = append(c.Binds, place.Bind{Source: host, Target: path})
	}
	return err
}

// planWritable makes a folder that is the user's. Those for temporary files are
// too, so that tar can set their times when it brings back what was in them.
func planWritable(c *place.Config, path string, e fs.DirEntry) error {
	info, err := e.Info()
	if err != nil {
		return err
	}
	f := place.Folder{Path: path, Mode: uint32(info.Mode().Perm()), User: true}
	if info.Mode()&fs.ModeSticky != 0 {
		f.Mode |= unix.S_ISVTX
	}
	c.Folders = append(c.Folders, f)
	return nil
}

// openTrees clones what is bound here, where root has a way to it, and passes
// on descriptors. The ids of a place have none to folders like /root.
func openTrees(binds []place.Bind) (trees []mount.Tree, err error) {
	for i, b := range binds {
		t, err := mount.Clone(b.Source, mount.ReadOnly|mount.NoSUID|mount.NoDev)
		if err != nil {
			closeTrees(trees)
			return nil, err
		}
		binds[i] = place.Bind{Target: b.Target, Tree: place.FirstTree + i}
		trees = append(trees, t)
	}
	return trees, nil
}

func closeTrees(trees []mount.Tree) {
	for _, t := range trees {
		t.Close()
	}
}
