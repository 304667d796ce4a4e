package build

import (
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"hutch"
)

// node is a file, a folder or a link of a tree. Names that are hard links share one.
type node struct {
	mode     fs.FileMode
	uid, gid int
	mtime    time.Time
	size     int64
	offset   int64 // of its content in the file of the tree
	target   string
	sum      [sha256.Size]byte // of its content
}

// removed is the type of a name that a tree takes away from what is below it.
const removed = fs.ModeIrregular

func (n *node) isGone() bool { return n != nil && n.mode&removed != 0 }

// limits bound a tree.
type limits struct {
	bytes   int64
	entries int
	path    int
}

// tree is an index of paths, which begin with no slash, and a file with all contents.
type tree struct {
	limits limits
	what   string // for errors

	nodes    map[string]*node
	children map[string]map[string]bool // names in each folder
	opaque   map[string]bool            // folders that hide all that is below them

	contents *os.File
	unsaved  *bufio.Writer
	end      int64
}

func newTree(contents *os.File, what string, l limits) *tree {
	return &tree{
		limits: l, what: what, nodes: map[string]*node{}, children: map[string]map[string]bool{}, opaque: map[string]bool{},
		contents: contents, unsaved: bufio.NewWriterSize(contents, 256<<10),
	}
}

// add puts a node at a path, in place of what was there. Folders above it that the tree does not have get a name and no
// node: a layer need not have them.
func (t *tree) add(name string, n *node) error {
	if len(name) > t.limits.path {
		return hutch.Errorf(hutch.Exhausted, "%s has a path of %d bytes: at most %d are allowed", t.what, len(name), t.limits.path).With("limit", "path")
	}
	if old := t.nodes[name]; old != nil && old.mode.IsDir() && !n.mode.IsDir() {
		t.forget(name)
	}
	t.nodes[name] = n
	if len(t.nodes) > t.limits.entries {
		return hutch.Errorf(hutch.Exhausted, "%s has more than %d entries: make it smaller; a .dockerignore file leaves things out", t.what, t.limits.entries).With("limit", "image entries")
	}
	for ; name != "."; name = path.Dir(name) {
		dir, base := path.Dir(name), path.Base(name)
		if t.children[dir][base] {
			break
		}
		if t.children[dir] == nil {
			t.children[dir] = map[string]bool{}
		}
		t.children[dir][base] = true
	}
	return nil
}

// drop forgets a node, but not what is below it.
func (t *tree) drop(name string) {
	delete(t.nodes, name)
	if len(t.children[name]) == 0 {
		delete(t.children[path.Dir(name)], path.Base(name))
	}
}

// forget drops all that is below a folder.
func (t *tree) forget(dir string) {
	for name := range t.children[dir] {
		below := path.Join(dir, name)
		t.forget(below)
		delete(t.nodes, below)
	}
	delete(t.children, dir)
	delete(t.opaque, dir)
}

// keep appends the content of a file and fills in its size and digest.
func (t *tree) keep(n *node, content io.Reader) error {
	sum := sha256.New()
	left := t.limits.bytes - t.end
	size, err := io.Copy(struct{ io.Writer }{io.MultiWriter(t.unsaved, sum)}, io.LimitReader(content, left+1))
	if err != nil {
		return err
	}
	if size > left {
		return hutch.Errorf(hutch.Exhausted, "%s has more than %d MiB of files: make it smaller; a .dockerignore file leaves things out", t.what, t.limits.bytes>>20).With("limit", "image bytes")
	}
	n.offset, n.size = t.end, size
	t.end += size
	sum.Sum(n.sum[:0])
	return nil
}

// open reads the content of a file.
func (t *tree) open(n *node) (io.Reader, error) {
	if err := t.unsaved.Flush(); err != nil {
		return nil, err
	}
	return io.NewSectionReader(t.contents, n.offset, n.size), nil
}

// paths are in order, so that a folder comes before what is in it.
func (t *tree) paths() []string { return slices.Sorted(maps.Keys(t.nodes)) }

// digest is that of all that the tree says, but for times.
func (t *tree) digest() string { return t.digestOf(t.paths()) }

func (t *tree) digestOf(paths []string) string {
	sum := sha256.New()
	for _, name := range paths {
		n := t.nodes[name]
		fmt.Fprintf(sum, "%q %o %d %d %q %x %v\n", name, n.mode, n.uid, n.gid, n.target, n.sum, t.opaque[name])
	}
	return hex.EncodeToString(sum.Sum(nil))
}

// clean is a path of an archive or a Dockerfile as trees have it. Nothing leads out: a path that climbs over the root
// stays there.
func clean(name string) string {
	name = strings.TrimPrefix(path.Clean("/"+name), "/")
	if name == "" {
		return "."
	}
	return name
}
