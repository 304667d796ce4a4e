package build

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/erofs/go-erofs"

	"hutch"
)

// view shows trees over each other, the last one on top, over the file system of an image. Its paths must be clean and
// lead over folders only; resolve makes such paths.
type view struct {
	ctx   context.Context // of the build, which also ends the search for a path
	root  fs.FS           // nil for none
	file  *os.File
	trees []*tree
}

// openRoot reads the EROFS file of an image.
func openRoot(path string) (fs.FS, *os.File, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, nil, err
	}
	root, err := erofs.Open(f)
	if err != nil {
		f.Close()
		return nil, nil, err
	}
	return root, f, nil
}

func (v view) over(t *tree) view {
	v.trees = append(slices.Clip(v.trees), t)
	return v
}

// found is a node, and the tree that has its content. Without a tree, the image has the content.
type found struct {
	*node
	in   *tree
	path string
}

// lookup returns the node at a path. It follows no link.
func (v view) lookup(name string) (found, bool) {
	for _, t := range slices.Backward(v.trees) {
		if n := t.nodes[name]; n != nil {
			return found{n, t, name}, !n.isGone()
		}
		if t.hides(name) {
			return found{}, false
		}
	}
	if name == "." && v.root == nil {
		return found{node: &node{mode: fs.ModeDir | 0o755}}, true
	}
	if len(v.trees) > 0 && v.implied(name) {
		return found{node: &node{mode: fs.ModeDir | 0o755}}, true
	}
	if v.root == nil {
		return found{}, false
	}
	n, err := statRoot(v.root, name)
	return found{n, nil, name}, err == nil
}

// implied reports whether a folder exists only because a tree has a path below it, and no layer has the folder itself.
func (v view) implied(name string) bool {
	if v.root != nil {
		if _, err := statRoot(v.root, name); err == nil {
			return false
		}
	}
	for _, t := range v.trees {
		for child := range t.children[name] {
			if !t.nodes[path.Join(name, child)].isGone() {
				return true
			}
		}
	}
	return false
}

// hides reports whether a tree removes, or replaces by something else, a folder above a path. It looks from the top,
// because most trees have nothing below the first folders.
func (t *tree) hides(name string) bool {
	for dir, i := ".", 0; ; dir, i = name[:i], i+1 {
		n := t.nodes[dir]
		if n != nil && !n.mode.IsDir() || t.opaque[dir] {
			return true
		}
		next := strings.IndexByte(name[i:], '/')
		if next < 0 || n == nil && t.children[dir] == nil && len(t.opaque) == 0 {
			return false
		}
		i += next
	}
}

// statRoot describes a file of the image.
func statRoot(root fs.FS, name string) (*node, error) {
	info, err := fs.Lstat(root, name)
	if err != nil {
		return nil, err
	}
	st, ok := info.Sys().(*erofs.Stat)
	if !ok {
		return nil, fmt.Errorf("the file system of the image describes %q as %T", name, info.Sys())
	}
	n := &node{mode: st.Mode, size: info.Size(), mtime: time.Unix(int64(st.Mtime), int64(st.MtimeNs)), uid: int(st.UID), gid: int(st.GID)} // info.Mode has no setuid bits
	if info.Mode()&fs.ModeSymlink != 0 {
		n.target, err = fs.ReadLink(root, name)
	}
	return n, err
}

// open reads the content of a file.
func (v view) open(f found) (io.ReadCloser, error) {
	if f.in != nil {
		r, err := f.in.open(f.node)
		return io.NopCloser(r), err
	}
	return v.root.Open(f.path)
}

// names returns the names in a folder, in order.
func (v view) names(dir string) []string {
	all := map[string]bool{}
	if v.root != nil {
		if entries, err := fs.ReadDir(v.root, dir); err == nil {
			for _, e := range entries {
				all[e.Name()] = true
			}
		}
	}
	for _, t := range v.trees {
		if t.opaque[dir] || t.hides(dir) || t.nodes[dir] != nil && !t.nodes[dir].mode.IsDir() {
			clear(all)
		}
		for name := range t.children[dir] {
			if t.nodes[path.Join(dir, name)].isGone() {
				delete(all, name)
			} else {
				all[name] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(all))
}

const (
	mostLinks = 255 // most links that a path can follow
	// mostParts bounds the parts of a path and of all links in it. Each part is looked up in each tree and below each
	// of its folders, so a path of 255 links with 2000 parts each would take hours.
	mostParts = 4096
)

// resolve follows the links in a path, within the view: a link to / or to .. leads to the root of the view at most.
// Missing parts are kept as written. The last part is followed if last is set.
func (v view) resolve(name string, last bool) (string, error) {
	at, rest := ".", strings.Split(clean(name), "/")
	for links, parts := 0, 0; len(rest) > 0; parts++ {
		if v.ctx.Err() != nil {
			return "", context.Cause(v.ctx)
		}
		if parts+len(rest) > mostParts {
			return "", hutch.Errorf(hutch.Invalid, "the path %.200q leads over more than %d folders, with those in its links: name the file itself", name, mostParts)
		}
		part := rest[0]
		rest = rest[1:]
		switch part {
		case "", ".":
			continue
		case "..":
			at = clean(path.Dir(at))
			continue
		}
		next := path.Join(at, part)
		n, ok := v.lookup(next)
		if !ok || n.mode&fs.ModeSymlink == 0 || len(rest) == 0 && !last {
			at = next
			continue
		}
		if links++; links > mostLinks {
			return "", hutch.Errorf(hutch.Invalid, "the path %.200q leads over more than %d links: they may lead in a circle", name, mostLinks)
		}
		if strings.HasPrefix(n.target, "/") {
			at = "."
		}
		rest = append(strings.Split(n.target, "/"), rest...)
	}
	return at, nil
}

// Open lets the view be read for users and groups.
func (v view) Open(name string) (fs.File, error) {
	at, err := v.resolve(name, true)
	if err != nil {
		return nil, err
	}
	f, ok := v.lookup(at)
	if !ok || !f.mode.IsRegular() {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
	}
	r, err := v.open(f)
	return readOnly{r}, err
}

type readOnly struct{ io.ReadCloser }

func (readOnly) Stat() (fs.FileInfo, error) { return nil, errors.ErrUnsupported }

// walk calls do for every path at and below a path, folders first.
func (v view) walk(name string, do func(name string, f found) error) error {
	f, ok := v.lookup(name)
	if !ok {
		return nil
	}
	if err := do(name, f); err != nil || !f.mode.IsDir() {
		return err
	}
	for _, child := range v.names(name) {
		if err := v.walk(path.Join(name, child), do); err != nil {
			return err
		}
	}
	return nil
}
