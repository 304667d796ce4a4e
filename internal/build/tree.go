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

// node is a file, a folder or a link of a tree. Names that are hard links share a node.
type node struct {
	mode     fs.FileMode
	uid, gid int
	mtime    time.Time
	size     int64
	offset   int64 // offset of its content in the tree's file
	target   string
	sum      [sha256.Size]byte // sum of its content
}

// removed is the type of a name that a tree removes from lower layers.
const removed = fs.ModeIrregular

func (n *node) isGone() bool { return n != nil && n.mode&removed != 0 }

// limits bound a tree, and shared all trees of a build together.
type limits struct {
	bytes   int64
	entries int // also folders that are only part of other paths
	path    int
	shared  *budget
}

// budget is the amount that all trees of a build together can still use: all of them exist until the build ends.
type budget struct {
	bytes   int64
	entries int
}

// tree is an index of paths, which begin with no slash, and a file with all contents.
type tree struct {
	limits limits
	what   string // for errors

	nodes    map[string]*node
	children map[string]map[string]bool // names in each folder
	names    int                        // in all folders
	opaque   map[string]bool            // folders that hide everything in lower layers

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

// add puts a node at a path, and replaces an existing one. Missing parent folders get a name and no node: a layer need
// not have them.
func (t *tree) add(name string, n *node) error {
	if long := max(len(name), len(n.target)); long > t.limits.path {
		return hutch.Errorf(hutch.Exhausted, "%s has a path or a link of %d bytes: at most %d are allowed", t.what, long, t.limits.path).With("limit", "path")
	}
	if old := t.nodes[name]; old != nil && old.mode.IsDir() && !n.mode.IsDir() {
		t.forget(name)
	}
	t.nodes[name] = n
	for ; name != "."; name = path.Dir(name) {
		dir, base := path.Dir(name), path.Base(name)
		if t.children[dir][base] {
			break
		}
		if err := t.count(1); err != nil {
			return err
		}
		if t.children[dir] == nil {
			t.children[dir] = map[string]bool{}
		}
		t.children[dir][base] = true
	}
	return nil
}

// count adds to the number of names, or subtracts if more is negative, and checks the limits.
func (t *tree) count(more int) error {
	if t.names+more > t.limits.entries {
		return hutch.Errorf(hutch.Exhausted, "%s has more than %d entries: make it smaller; a .dockerignore file leaves things out", t.what, t.limits.entries).With("limit", "image entries")
	}
	if t.limits.shared.entries < more {
		return hutch.Errorf(hutch.Exhausted, "the context and the steps of the build have too many entries together: make them smaller, or make several images; a .dockerignore file leaves things out").With("limit", "image entries")
	}
	t.names += more
	t.limits.shared.entries -= more
	return nil
}

// drop removes a node, but not the nodes below it.
func (t *tree) drop(name string) {
	delete(t.nodes, name)
	if dir, base := path.Dir(name), path.Base(name); len(t.children[name]) == 0 && t.children[dir][base] {
		delete(t.children[dir], base)
		t.count(-1)
	}
}

// forget drops everything below a folder.
func (t *tree) forget(dir string) {
	for name := range t.children[dir] {
		below := path.Join(dir, name)
		t.forget(below)
		delete(t.nodes, below)
	}
	t.count(-len(t.children[dir]))
	delete(t.children, dir)
	delete(t.opaque, dir)
}

// keep appends the content of a file and fills in its size and digest.
func (t *tree) keep(n *node, content io.Reader) error {
	sum := sha256.New()
	size, err := io.Copy(struct{ io.Writer }{io.MultiWriter(t.unsaved, sum)}, io.LimitReader(content, t.room()+1))
	if err != nil {
		return err
	}
	if err := t.checkRoom(size, ""); err != nil {
		return err
	}
	t.limits.shared.bytes -= size
	n.offset, n.size = t.end, size
	t.end += size
	sum.Sum(n.sum[:0])
	return nil
}

// room returns how many bytes more the files of the tree can have.
func (t *tree) room() int64 { return min(t.limits.bytes-t.end, t.limits.shared.bytes) }

// checkRoom refuses a file that is larger than the room. name is its path, if it is known.
func (t *tree) checkRoom(size int64, name string) error {
	room := t.room()
	if size <= room {
		return nil
	}
	with := ""
	if name != "" {
		with = fmt.Sprintf(" with %.200q, which has %d MiB", name, size>>20)
	}
	if room < t.limits.bytes-t.end {
		return hutch.Errorf(hutch.Exhausted, "the files of the context and of the steps of the build take more room than there is%s: make them smaller, or make room with `hutch image prune`; a .dockerignore file leaves things out", with).With("limit", "image bytes")
	}
	return hutch.Errorf(hutch.Exhausted, "%s has more than %d MiB of files%s: make it smaller; a .dockerignore file leaves things out", t.what, t.limits.bytes>>20, with).With("limit", "image bytes")
}

// open reads the content of a file.
func (t *tree) open(n *node) (io.Reader, error) {
	if err := t.unsaved.Flush(); err != nil {
		return nil, err
	}
	return io.NewSectionReader(t.contents, n.offset, n.size), nil
}

// paths returns the paths in order, so that a folder comes before its content.
func (t *tree) paths() []string { return slices.Sorted(maps.Keys(t.nodes)) }

// digest returns the digest of everything in the tree, without times.
func (t *tree) digest() string { return t.digestOf(t.paths()) }

func (t *tree) digestOf(paths []string) string {
	sum := sha256.New()
	for _, name := range paths {
		n := t.nodes[name]
		fmt.Fprintf(sum, "%q %o %d %d %q %x %v\n", name, n.mode, n.uid, n.gid, n.target, n.sum, t.opaque[name])
	}
	return hex.EncodeToString(sum.Sum(nil))
}

// clean returns a path of an archive or a Dockerfile in the form of trees. It never leads out: a path that climbs over
// the root stays there.
func clean(name string) string {
	name = strings.TrimPrefix(path.Clean("/"+name), "/")
	if name == "" {
		return "."
	}
	return name
}
