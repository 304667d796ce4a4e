package rootfs

import (
	"bufio"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"hutch"
)

// tree is the merged names of the layers that were read so far.
type tree struct {
	limits   Limits
	root     *node
	layer    int // the number of the layer that is being read, from 1
	contents *os.File
	unsaved  *bufio.Writer // to contents
	buffer   []byte
	end      int64 // end of contents
	// How much is left until the limits.
	tarLeft, bytesLeft, namesLeft int64
	entriesLeft                   int
}

// node is a name in a folder. Names that are hard links share an inode.
type node struct {
	*inode
	name     string
	layer    int // layer that named it last
	children map[string]*node
}

type inode struct {
	mode         fs.FileMode
	uid, gid     uint32
	mtime        time.Time
	target       string      // target of a symbolic link
	in           io.ReaderAt // has the content: the contents of the tree, or its base
	offset, size int64       // of the content
}

func newTree(l Limits, contents *os.File) *tree {
	t := &tree{
		limits: l, contents: contents, unsaved: bufio.NewWriterSize(contents, bufferSize),
		buffer: make([]byte, bufferSize), tarLeft: l.Bytes, bytesLeft: l.Bytes, namesLeft: l.Names,
		entriesLeft: l.Entries,
	}
	t.root = newNode("", folderInode())
	return t
}

// flush makes contents complete.
func (t *tree) flush() error { return t.unsaved.Flush() }

func newNode(name string, i *inode) *node {
	n := &node{inode: i, name: name}
	if i.mode.IsDir() {
		n.children = map[string]*node{}
	}
	return n
}

// folderInode returns an inode for a folder that no layer describes.
func folderInode() *inode { return &inode{mode: fs.ModeDir | 0o755, mtime: time.Unix(0, 0)} }

// split returns the names of a path. A leading slash means nothing: all paths begin at the root of the image.
func (t *tree) split(p string) ([]string, error) {
	if len(p) > t.limits.Path {
		return nil, hutch.Errorf(hutch.Exhausted, "the image has a path of %d bytes, %.60q…: at most %d are allowed", len(p), p, t.limits.Path).With("limit", "image path")
	}
	var names []string
	for name := range strings.SplitSeq(p, "/") {
		switch {
		case name == "" || name == ".":
			continue
		case name == "..":
			return nil, hutch.Errorf(hutch.Invalid, "the image has the path %.200q, which leads out of its folder: it is not taken", p)
		case len(name) > 255 || strings.Contains(name, "\x00"):
			return nil, hutch.Errorf(hutch.Invalid, "the image has the name %.60q, which no file can have: at most 255 bytes without NUL are allowed", name)
		}
		names = append(names, name)
	}
	return names, nil
}

// folder returns the folder at a path, and creates missing folders. It follows links of the current layer, within the
// image. Any other file on the path is replaced by a folder.
func (t *tree) folder(names []string) (*node, error) {
	at, trail := t.root, []*node{}
	for hops := 0; len(names) > 0; {
		name := names[0]
		names = names[1:]
		next := at.children[name]
		switch {
		case name == "..": // of a link
			if at = t.root; len(trail) > 0 {
				at, trail = trail[len(trail)-1], trail[:len(trail)-1]
			}
			continue
		case next != nil && next.mode.IsDir():
		case next != nil && next.mode.Type() == fs.ModeSymlink && next.layer == t.layer && hops < maxHops:
			if hops++; path.IsAbs(next.target) {
				at, trail = t.root, nil
			}
			names = append(linkNames(next.target), names...)
			continue
		default:
			made, err := t.put(at, name, len(trail), folderInode())
			if err != nil {
				return nil, err
			}
			next = made
		}
		at, trail = next, append(trail, at)
	}
	return at, nil
}

// maxHops is how many symbolic links are followed in one path.
const maxHops = 40

// linkNames returns the names in the target of a link, in which `..` is allowed.
func linkNames(target string) []string {
	names := strings.Split(target, "/")
	return slices.DeleteFunc(names, func(name string) bool { return name == "" || name == "." })
}

// put gives an inode a name in a folder, and replaces anything that has the name already.
func (t *tree) put(dir *node, name string, depth int, i *inode) (*node, error) {
	if depth >= t.limits.Path/2 {
		return nil, hutch.Errorf(hutch.Exhausted, "the image has more than %d folders within each other: at most that many are allowed", t.limits.Path/2).With("limit", "image path")
	}
	if t.entriesLeft--; t.entriesLeft < 0 {
		return nil, hutch.Errorf(hutch.Exhausted, "the image has more than %d files, folders and links: make it smaller, or have the administrator raise the limit for image entries", t.limits.Entries).With("limit", "image entries")
	}
	n := newNode(name, i)
	n.layer = t.layer
	dir.children[name] = n
	return n, nil
}

// find returns the entry at a path, without following links.
func (t *tree) find(names []string) *node {
	at := t.root
	for _, name := range names {
		if at = at.children[name]; at == nil {
			return nil
		}
	}
	return at
}

// hide removes a name of lower layers from a folder.
func (t *tree) hide(dir *node, name string) {
	if n := dir.children[name]; n != nil && !t.hideLower(n) {
		delete(dir.children, name)
	}
}

// hideLower removes from a node everything that lower layers named, and reports whether anything is left.
func (t *tree) hideLower(n *node) bool {
	for name := range n.children {
		t.hide(n, name)
	}
	return n.layer == t.layer || len(n.children) > 0
}
