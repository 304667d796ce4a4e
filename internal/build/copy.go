package build

import (
	"cmp"
	"errors"
	"io/fs"
	"path"
	"strings"

	"github.com/moby/buildkit/solver/pb"
	chmod "github.com/tonistiigi/dchapes-mode"

	"hutch"
	"hutch/internal/oci/rootfs"
)

func (v view) user(name string) (uid, gid int, err error) {
	u, err := rootfs.LookupIn(v, name)
	return int(u.UID), int(u.GID), err
}

func (v view) group(name string) (int, error) {
	u, err := rootfs.LookupIn(v, "0:"+name)
	return int(u.GID), err
}

// copying is one COPY or ADD: from one source, which can be a pattern, to one destination.
type copying struct {
	*fileWork
	from, to view
	a        *pb.FileActionCopy

	owned            bool // the owner is set
	uid, gid         int
	chmod            *chmod.Set
	include, exclude *pathPatterns
}

func (w *fileWork) copy(from, to view, a *pb.FileActionCopy) error {
	c := &copying{fileWork: w, from: from, to: to.over(w.out), a: a, owned: a.Owner != nil}
	if err := c.prepare(); err != nil {
		return err
	}
	if !a.AllowWildcard {
		return c.source(clean(a.Src))
	}
	names, err := from.glob(a.Src, a.FollowSymlink)
	if err != nil {
		return err
	}
	if len(names) == 0 && !a.AllowEmptyWildcard {
		return missing(a.Src)
	}
	for _, name := range names {
		if err := c.source(name); err != nil {
			return err
		}
	}
	return nil
}

func (c *copying) prepare() (err error) {
	if c.uid, c.gid, err = c.owner(c.to, c.a.Owner); err != nil {
		return err
	}
	if c.a.ModeStr != "" {
		set, err := chmod.ParseWithUmask(c.a.ModeStr, 0)
		if err != nil {
			return hutch.Errorf(hutch.Invalid, "--chmod=%.60s is not a mode: write it as 755 or u=rwX,go=rX", c.a.ModeStr)
		}
		c.chmod = &set
	}
	for to, patterns := range map[**pathPatterns][]string{&c.include: c.a.IncludePatterns, &c.exclude: c.a.ExcludePatterns} {
		if len(patterns) == 0 {
			continue
		}
		if *to, err = newPathPatterns(patterns, "a COPY or ADD"); err != nil {
			return err
		}
	}
	for _, name := range c.a.RequiredPaths {
		if at, err := c.from.resolve(name, true); err != nil {
			return err
		} else if _, ok := c.from.lookup(at); !ok {
			return missing(name)
		}
	}
	return nil
}

// source copies one file or folder, or unpacks it.
func (c *copying) source(name string) error {
	at, err := c.from.resolve(name, c.a.FollowSymlink)
	if err != nil {
		return err
	}
	f, ok := c.from.lookup(at)
	if !ok {
		return missing(name)
	}
	if c.a.AttemptUnpackDockerCompatibility && f.mode.IsRegular() {
		if done, err := c.unpack(f); done || err != nil {
			return err
		}
	}
	to, err := c.destination(f, name)
	if err != nil {
		return err
	}
	return c.files(at, to, f.mode.IsDir() && c.a.DirCopyContents)
}

// destination returns the target of a source. If the destination is an existing folder, or its path ends with a slash,
// a file is copied into that folder.
func (c *copying) destination(f found, name string) (string, error) {
	if strings.HasSuffix(c.a.Dest, "/") || path.Base(c.a.Dest) == "." {
		if err := c.folderAt(c.a.Dest); err != nil {
			return "", err
		}
	} else if err := c.folderAt(path.Dir(clean(c.a.Dest))); err != nil {
		return "", err
	}
	to, err := c.to.resolve(c.a.Dest, true)
	if err != nil {
		return "", err
	}
	there, ok := c.to.lookup(to)
	into := ok && (f.mode.IsDir() && !c.a.DirCopyContents || !f.mode.IsDir() && there.mode.IsDir())
	switch {
	case ok && f.mode.IsDir() && c.a.DirCopyContents && !there.mode.IsDir():
		return "", noFolder(to)
	case into:
		to = path.Join(to, path.Base(clean(name)))
	case f.mode.IsDir() && c.a.DirCopyContents && !ok:
		return to, c.folders(c.to, to, c.newFolder())
	}
	return to, c.folders(c.to, path.Dir(to), c.newFolder())
}

// folderAt makes a folder at the target of the path's links.
func (c *copying) folderAt(name string) error {
	at, err := c.to.resolve(name, true)
	if err != nil {
		return err
	}
	return c.folders(c.to, at, c.newFolder())
}

// newFolder returns the attributes of a folder that a copy has to make.
func (c *copying) newFolder() node {
	n := node{mode: 0o755, uid: c.uid, gid: c.gid}
	if c.a.ModeStr == "" && c.a.Mode != -1 {
		n.mode = fs.FileMode(c.a.Mode).Perm()
	}
	return n
}

// files copies the files at and below a path. When only contents are copied, an existing top folder keeps its
// attributes.
func (c *copying) files(from, to string, contents bool) error {
	return c.from.walk(from, func(name string, f found) error {
		below := strings.TrimPrefix(strings.TrimPrefix(name, from), "/")
		if from == "." {
			below = strings.TrimPrefix(name, "./")
			if name == "." {
				below = ""
			}
		}
		if c.ctx.Err() != nil {
			return c.ctx.Err()
		}
		if ok, err := c.chosen(below, f); err != nil || !ok {
			return err
		}
		at := path.Join(to, below)
		if below == "" && contents {
			if _, ok := c.to.lookup(at); ok {
				return nil
			}
		}
		if err := c.above(from, to, below); err != nil {
			return err
		}
		return c.file(f, at)
	})
}

// above creates the parent folders of files that patterns selected. They get the attributes of the source's folders.
func (c *copying) above(from, to, below string) error {
	dir := path.Dir(below)
	if c.include == nil || dir == "." || below == "" {
		return nil
	}
	at := path.Join(to, dir)
	if _, ok := c.to.lookup(at); ok {
		return nil
	}
	if err := c.above(from, to, dir); err != nil {
		return err
	}
	f, ok := c.from.lookup(path.Join(from, dir))
	if !ok || !f.mode.IsDir() {
		return nil
	}
	return c.file(f, at)
}

// chosen reports whether patterns select a path, which is relative to the source.
func (c *copying) chosen(below string, f found) (bool, error) {
	if below == "" {
		return c.include == nil, nil
	}
	if c.include != nil {
		if ok, err := c.include.match(c.ctx, below); err != nil || !ok {
			return false, err
		}
	}
	if c.exclude != nil {
		no, err := c.exclude.match(c.ctx, below)
		return !no, err
	}
	return true, nil
}

// file copies one file, link or folder, without its content.
func (c *copying) file(f found, to string) error {
	there, ok := c.to.lookup(to)
	switch {
	case ok && there.mode.IsDir() && !f.mode.IsDir():
		if !c.a.AlwaysReplaceExistingDestPaths {
			return isFolder(to)
		}
	case ok && !there.mode.IsDir() && f.mode.IsDir():
		if !c.a.AlwaysReplaceExistingDestPaths {
			return noFolder(to)
		}
	}
	n := *f.node
	if c.owned {
		n.uid, n.gid = c.uid, c.gid
	}
	n.mode = c.modeOf(n.mode)
	if n.mode.IsRegular() {
		content, err := c.from.open(f)
		if err != nil {
			return err
		}
		defer content.Close()
		if err := c.out.keep(&n, content); err != nil {
			return err
		}
	}
	return c.out.add(to, &n)
}

func (c *copying) modeOf(m fs.FileMode) fs.FileMode {
	switch {
	case m&fs.ModeSymlink != 0:
		return m
	case c.chmod != nil:
		return c.chmod.Apply(m)
	case c.a.Mode == -1:
		return m
	}
	given := int64(c.a.Mode)
	m = m.Type() | fs.FileMode(given).Perm()
	for mode, bit := range map[fs.FileMode]int64{fs.ModeSetuid: 0o4000, fs.ModeSetgid: 0o2000, fs.ModeSticky: 0o1000} {
		if given&bit != 0 {
			m |= mode
		}
	}
	return m
}

// unpack unpacks an archive below the destination. It reports false for a file that is not an archive.
func (c *copying) unpack(f found) (bool, error) {
	content, err := c.from.open(f)
	if err != nil {
		return false, err
	}
	defer content.Close()
	plain, kind, err := expand(c.ctx, content, f.size, c.max)
	if err != nil || plain == nil {
		return false, err
	}
	if err := c.folderAt(c.a.Dest); err != nil {
		return false, err
	}
	base, err := c.to.resolve(c.a.Dest, true)
	if err != nil {
		return false, err
	}
	err = c.out.read(c.ctx, plain, reading{place: func(name string, n *node) (string, bool) {
		if c.owned {
			n.uid, n.gid = c.uid, c.gid
		}
		return c.unpacked(base, name)
	}})
	if errors.Is(err, hutch.Invalid) {
		err = hutch.Errorf(hutch.Invalid, "the archive (%s) of ADD %.200q cannot be unpacked: use COPY to keep it as it is, or make it again", cmp.Or(kind, "tar"), c.a.Src).Because(err)
	}
	return true, err
}

// unpacked returns the target of an archive's entry: below the destination, whatever its links say.
func (c *copying) unpacked(base, name string) (string, bool) {
	dir, err := c.to.resolve(path.Join(base, path.Dir(name)), true)
	if err != nil || base != "." && dir != base && !strings.HasPrefix(dir, base+"/") {
		return "", false
	}
	return path.Join(dir, path.Base(name)), true
}
