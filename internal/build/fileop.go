package build

import (
	"context"
	"io/fs"
	"path"
	"strings"
	"time"

	"github.com/moby/buildkit/solver/pb"

	"hutch"
)

// fileWork does the file operations of one operation. It reads from views and writes to a tree, which becomes the
// layer.
type fileWork struct {
	ctx context.Context
	out *tree
	now time.Time
	max int64 // highest ratio of the content of an archive to its size
}

// mkdir makes a folder and, on request, its parents.
func (w *fileWork) mkdir(on view, a *pb.FileActionMkDir) error {
	name, err := on.resolve(a.Path, true)
	if err != nil {
		return err
	}
	uid, gid, err := w.owner(on, a.Owner)
	if err != nil {
		return err
	}
	if !a.MakeParents {
		if up, ok := on.lookup(path.Dir(name)); !ok || !up.mode.IsDir() {
			return noFolder(path.Dir(name))
		}
	}
	return w.folders(on, name, node{mode: fs.FileMode(a.Mode).Perm(), uid: uid, gid: gid})
}

// folders makes a folder, and its parents, where they are missing. The path is resolved already.
func (w *fileWork) folders(on view, name string, like node) error {
	if f, ok := on.lookup(name); ok {
		if !f.mode.IsDir() {
			return noFolder(name)
		}
		return nil
	}
	if err := w.folders(on, path.Dir(name), like); err != nil {
		return err
	}
	like.mode, like.mtime = like.mode.Perm()|fs.ModeDir, w.now
	return w.out.add(name, &like)
}

func noFolder(name string) error {
	return hutch.Errorf(hutch.Invalid, "/%s is not a folder in the image: choose another path, or make the folder in an earlier step", strings.TrimPrefix(name, "./"))
}

// mkfile writes a file.
func (w *fileWork) mkfile(on view, a *pb.FileActionMkFile) error {
	name, err := on.resolve(a.Path, true)
	if err != nil {
		return err
	}
	if f, ok := on.lookup(name); ok && f.mode.IsDir() {
		return isFolder(name)
	}
	n := &node{mode: fs.FileMode(a.Mode).Perm(), mtime: w.now}
	if n.uid, n.gid, err = w.owner(on, a.Owner); err == nil {
		err = w.out.keep(n, strings.NewReader(string(a.Data)))
	}
	if err != nil {
		return err
	}
	return w.out.add(name, n)
}

func isFolder(name string) error {
	return hutch.Errorf(hutch.Invalid, "/%s is a folder in the image, and no file can take its place: choose another path", name)
}

// symlink makes a link.
func (w *fileWork) symlink(on view, a *pb.FileActionSymlink) error {
	name, err := on.resolve(a.Newpath, false)
	if err != nil {
		return err
	}
	n := &node{mode: fs.ModeSymlink | 0o777, target: a.Oldpath, mtime: w.now}
	if n.uid, n.gid, err = w.owner(on, a.Owner); err != nil {
		return err
	}
	return w.out.add(name, n)
}

// remove removes a path, or all paths that match a pattern.
func (w *fileWork) remove(on view, a *pb.FileActionRm) error {
	names := []string{a.Path}
	if a.AllowWildcard {
		var err error
		if names, err = on.glob(a.Path, false); err != nil {
			return err
		}
	}
	for _, given := range names {
		name, err := on.resolve(given, false)
		if err != nil {
			return err
		}
		if _, ok := on.lookup(name); !ok || name == "." {
			if a.AllowNotFound {
				continue
			}
			return missing(given)
		}
		w.out.forget(name)
		if err := w.out.add(name, &node{mode: removed}); err != nil {
			return err
		}
	}
	return nil
}

func missing(name string) error {
	return hutch.Errorf(hutch.NotFound, "%q is not there: check the path, and whether .dockerignore leaves it out", "/"+strings.TrimPrefix(name, "/"))
}

// owner finds the user and the group of a new file. Names are looked up in /etc/passwd and /etc/group of the image.
func (w *fileWork) owner(in view, o *pb.ChownOpt) (uid, gid int, err error) {
	if o == nil {
		return 0, 0, nil
	}
	switch u := o.GetUser().GetUser().(type) {
	case *pb.UserOpt_ByID:
		uid, gid = int(u.ByID), int(u.ByID) // as Docker does without a group
	case *pb.UserOpt_ByName:
		if uid, gid, err = in.user(u.ByName.Name); err != nil {
			return 0, 0, err
		}
	}
	switch g := o.GetGroup().GetUser().(type) {
	case *pb.UserOpt_ByID:
		gid = int(g.ByID)
	case *pb.UserOpt_ByName:
		gid, err = in.group(g.ByName.Name)
	}
	return uid, gid, err
}
