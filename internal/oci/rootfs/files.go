package rootfs

import (
	"io"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/erofs/go-erofs"
)

// files shows a tree to the writer of EROFS.
type files struct{ t *tree }

func (f files) node(op, path string) (*node, error) {
	if path == "." {
		return f.t.root, nil
	}
	if n := f.t.find(strings.Split(path, "/")); n != nil {
		return n, nil
	}
	return nil, &fs.PathError{Op: op, Path: path, Err: fs.ErrNotExist}
}

// Open opens a file; folders are read by ReadDir.
func (f files) Open(path string) (fs.File, error) {
	n, err := f.node("open", path)
	if err != nil {
		return nil, err
	}
	content := io.NewSectionReader(n.in, n.offset, n.size)
	return file{io.MultiReader(content, io.LimitReader(zeros{}, shownSize(n)-n.size)), info{n}}, nil
}

// Stat does not follow links.
func (f files) Stat(path string) (fs.FileInfo, error) {
	n, err := f.node("stat", path)
	return info{n}, err
}

// ReadDir returns the entries of a folder by name.
func (f files) ReadDir(path string) ([]fs.DirEntry, error) {
	n, err := f.node("readdir", path)
	if err != nil {
		return nil, err
	}
	entries := make([]fs.DirEntry, 0, len(n.children))
	for _, name := range slices.Sorted(maps.Keys(n.children)) {
		entries = append(entries, fs.FileInfoToDirEntry(info{n.children[name]}))
	}
	return entries, nil
}

// ReadLink returns the target of a symbolic link.
func (f files) ReadLink(path string) (string, error) {
	n, err := f.node("readlink", path)
	if err != nil {
		return "", err
	}
	return n.target, nil
}

type file struct {
	io.Reader
	info info
}

func (f file) Stat() (fs.FileInfo, error) { return f.info, nil }
func (f file) Close() error               { return nil }

// info describes a node. The writer of EROFS takes owners and times from Sys.
type info struct{ n *node }

func (i info) Name() string       { return i.n.name }
func (i info) Size() int64        { return shownSize(i.n) }
func (i info) Mode() fs.FileMode  { return i.n.mode }
func (i info) ModTime() time.Time { return i.n.mtime }
func (i info) IsDir() bool        { return i.n.mode.IsDir() }

func (i info) Sys() any {
	return &erofs.Stat{
		UID: i.n.uid, GID: i.n.gid, Nlink: i.links(),
		Mtime: uint64(i.n.mtime.Unix()), MtimeNs: uint32(i.n.mtime.Nanosecond()),
	}
}

// links returns the number in stat(2): a folder is named by its parent, by itself and by its subfolders.
func (i info) links() int {
	if !i.IsDir() {
		return 1
	}
	n := 2
	for _, c := range i.n.children {
		if c.mode.IsDir() {
			n++
		}
	}
	return n
}
