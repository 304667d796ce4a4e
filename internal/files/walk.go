package files

import (
	"cmp"
	"context"
	"errors"
	"io"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/bmatcuk/doublestar/v4"
	"golang.org/x/sys/unix"

	"hutch"
)

const (
	// maxDepth is the deepest nesting that is walked: each level holds a descriptor.
	maxDepth = 500
	// maxNames is how many bytes of names of one folder can be sorted.
	maxNames = 64 << 20
)

// entry is a file, folder or other object in a tree.
type entry struct {
	dir  int    // the folder that contains it
	name string // in that folder
	path string // relative to the start of the walk
	st   unix.Stat_t
}

func (e *entry) isDir() bool { return e.st.Mode&unix.S_IFMT == unix.S_IFDIR }

// errSkip, returned by a visit, skips the content of a folder.
var errSkip = errors.New("skip")

// walk calls visit for everything in a folder, in the order of names, and for a folder's content after the folder. It
// closes dir. It skips files that vanish meanwhile, and the content of unreadable and of secret folders.
func (f *FS) walk(ctx context.Context, dir int, below string, depth int, visit func(*entry) error) error {
	d := os.NewFile(uintptr(dir), below)
	defer d.Close()
	if f.secret(dir) {
		return nil
	}
	if depth > maxDepth {
		return hutch.Errorf(hutch.Exhausted, "%.200q lies more than %d folders deep, the limit: use a program for such a tree", below, maxDepth)
	}
	names, err := namesOf(d)
	if err != nil {
		return err
	}
	for _, name := range names {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		e := entry{dir: dir, name: name, path: path.Join(below, name)}
		if unix.Fstatat(dir, name, &e.st, unix.AT_SYMLINK_NOFOLLOW) != nil {
			continue
		}
		err := visit(&e)
		if err == errSkip {
			continue
		}
		if err != nil {
			return err
		}
		if !e.isDir() {
			continue
		}
		if sub, err := folder(dir, name, unix.O_NOFOLLOW); err == nil {
			err = f.walk(ctx, sub, e.path, depth+1, visit)
			if err != nil {
				return err
			}
		}
	}
	return nil
}

func namesOf(d *os.File) ([]string, error) {
	var all []string
	size := 0
	for {
		names, err := d.Readdirnames(1024)
		for _, name := range names {
			size += len(name) + 16
		}
		if size > maxNames {
			return nil, hutch.Errorf(hutch.Exhausted, "%.200q has more entries than can be sorted: use a program to look into it", d.Name())
		}
		all = append(all, names...)
		if err == io.EOF {
			slices.Sort(all)
			return all, nil
		}
		if err != nil {
			return nil, withPath(err, d.Name())
		}
	}
}

// walkPath walks everything below a path, as the user.
func (f *FS) walkPath(ctx context.Context, p string, visit func(*entry) error) error {
	return f.as(func() error {
		dir, err := folder(unix.AT_FDCWD, p, 0)
		if err != nil {
			return fail(err, p)
		}
		if f.secret(dir) {
			unix.Close(dir)
			return fail(unix.EACCES, p)
		}
		return f.walk(ctx, dir, "", 0, visit)
	})
}

// bounded returns the context of a list or a search below p. On gVisor a walk over everything can take longer than a
// caller waits.
func (f *FS) bounded(ctx context.Context, p string) (context.Context, context.CancelFunc) {
	limit := cmp.Or(f.WalkTime, walkTime)
	return context.WithTimeoutCause(ctx, limit, hutch.Errorf(hutch.Exhausted,
		"what is below %.200q could not be looked through within %v, the limit: what was found until then is not all. Look in a folder further down, list less deep, or use a program such as find", p, limit).With("limit", "time"))
}

// choice says which entries the caller wants.
type choice struct {
	glob   string
	byName bool
	hidden bool
	flat   bool // only the folder's own entries
	depth  int
}

func choose(glob string, hidden bool) (choice, error) {
	if len(glob) <= hutch.MaxPath && alternatives(glob) > maxAlternatives {
		return choice{}, hutch.Errorf(hutch.Invalid, "the pattern %.200q stands for more than %d others by its braces, the limit: list once for each of some", glob, maxAlternatives).Naming(hutch.AboutField, "glob")
	}
	if glob != "" && !doublestar.ValidatePattern(glob) || len(glob) > hutch.MaxPath {
		return choice{}, hutch.Errorf(hutch.Invalid, "the pattern %.200q is not closed somewhere: use * ? [a-z] {a,b} and ** for any folders", glob).Naming(hutch.AboutField, "glob")
	}
	return choice{glob: glob, byName: !strings.Contains(glob, "/"), hidden: hidden}, nil
}

// maxAlternatives limits the number of patterns without braces that one pattern with braces expands to. Each of them
// can be compared with each name, and that cannot be cancelled.
const maxAlternatives = 256

// alternatives counts the patterns without braces that a pattern expands to. It stops soon after the limit.
func alternatives(glob string) int {
	type group struct{ before, sum int }
	var open []group
	n := 1
	for i := 0; i < len(glob); i++ {
		switch c := glob[i]; {
		case c == '\\':
			i++
		case c == '{':
			open = append(open, group{before: n})
			n = 1
		case len(open) == 0:
		case c == ',':
			open[len(open)-1].sum += n
			n = 1
		case c == '}':
			last := open[len(open)-1]
			open = open[:len(open)-1]
			n = min((last.sum+n)*last.before, maxAlternatives+1)
		}
	}
	for _, g := range open {
		n = min(n*max(g.before, 1)*(g.sum+1), maxAlternatives+1)
	}
	return n
}

// takes reports whether e matches, and whether its content can.
func (c choice) takes(e *entry) (it, inside bool) {
	if !c.hidden && e.name[0] == '.' {
		return false, false
	}
	inside = !c.flat && (c.depth == 0 || strings.Count(e.path, "/")+1 < c.depth)
	if c.glob == "" {
		return true, inside
	}
	subject := e.path
	if c.byName {
		subject = e.name
	}
	it, _ = doublestar.Match(c.glob, subject)
	return it, inside
}

// ListFiles implements hutch.Files.
func (f *FS) ListFiles(ctx context.Context, _ string, req hutch.ListRequest, out func(hutch.FileInfo) error) error {
	if err := req.Check(); err != nil {
		return err
	}
	p, err := f.path(req.Path)
	if err != nil {
		return err
	}
	c, err := choose(req.Glob, req.Hidden)
	if err != nil {
		return err
	}
	c.flat, c.depth = !req.Recursive && req.Glob == "", req.Depth
	limit, n := req.Most(), 0
	base := path.Clean(p)
	ctx, cancel := f.bounded(ctx, base)
	defer cancel()
	return f.walkPath(ctx, p, func(e *entry) error {
		it, inside := c.takes(e)
		if it {
			if n++; n > limit {
				return hutch.Errorf(hutch.Exhausted, "there are more than %d files below %.200q, the limit of this list: narrow it, or raise the limit", limit, base).With("limit", "files")
			}
			var target string
			if e.st.Mode&unix.S_IFMT == unix.S_IFLNK {
				target, _ = readlink(e.dir, e.name)
			}
			fi := info(path.Join(base, e.path), &e.st, target)
			if req.Attributes && (fi.Type == hutch.RegularFile || fi.Type == hutch.Directory) {
				fi.Attributes = e.attributes()
			}
			if err := out(fi); err != nil {
				return err
			}
		}
		if !inside {
			return errSkip
		}
		return nil
	})
}
