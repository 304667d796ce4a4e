package files

import (
	"context"
	"errors"
	"os"
	"path"
	"strings"

	"golang.org/x/sys/unix"

	"hutch"
)

// Mkdir implements hutch.Files.
func (f *FS) Mkdir(_ context.Context, _, p string, parents bool) error {
	p, err := f.path(p)
	if err != nil {
		return err
	}
	return f.as(func() error {
		if parents {
			return mkdirs(p)
		}
		return failIn(mkdir(p), p, ", or make all folders of the path (parents; hutch fs mkdir -p)")
	})
}

// failIn does the same as fail, for something new at p. If the folder of p is missing, the error says so, and ends with
// the hint.
func failIn(err error, p, hint string) error {
	if errors.Is(err, unix.ENOENT) {
		p = strings.TrimRight(p, "/")
		return hutch.Errorf(hutch.NotFound, "%.200q cannot be made, because its folder does not exist: make %.200q first%s", p, path.Dir(p), hint).
			Naming(hutch.AboutFile, strings.ToValidUTF8(p, "\uFFFD")).Because(err)
	}
	return fail(err, p)
}

// Chmod implements hutch.Files.
func (f *FS) Chmod(_ context.Context, _, p string, mode hutch.FileMode) error {
	if err := mode.Check(); err != nil {
		return err
	}
	p, err := f.path(p)
	if err != nil {
		return err
	}
	return f.as(func() error {
		return fail(f.chmod(p, uint32(mode)), p)
	})
}

func (f *FS) chmod(p string, mode uint32) error {
	fd, err := openAt(unix.AT_FDCWD, p, unix.O_PATH, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if f.secret(fd) {
		return unix.EACCES
	}
	return unix.Chmod("/proc/self/fd/"+itoa(fd), mode) // fchmod does not accept such a descriptor
}

// Delete implements hutch.Files.
func (f *FS) Delete(ctx context.Context, _, p string, recursive bool) error {
	s, err := f.location(p)
	if err != nil {
		return err
	}
	defer s.close()
	return f.as(func() error {
		err := unix.Unlinkat(s.dir, s.name, 0)
		if err == unix.EISDIR || err == unix.EPERM && isDir(s.dir, s.name) {
			err = unix.EISDIR
			if recursive {
				return fail(remove(ctx, s.dir, s.name, 0), s.path)
			}
			return hutch.Errorf(hutch.Conflict, "%.200q is a folder: delete it recursively, with all that is in it", s.path).Because(err)
		}
		return fail(err, s.path)
	})
}

func isDir(dir int, name string) bool {
	var st unix.Stat_t
	return unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW) == nil && st.Mode&unix.S_IFMT == unix.S_IFDIR
}

// remove deletes a folder and its content, as far as possible.
func remove(ctx context.Context, dir int, name string, depth int) error {
	if depth > maxDepth {
		return hutch.Errorf(hutch.Exhausted, "there are more than %d folders within each other, the limit: use rm -r", maxDepth)
	}
	if err := context.Cause(ctx); err != nil {
		return err
	}
	var first error
	if err := empty(ctx, dir, name, depth); err != nil {
		first = err
	}
	err := unix.Unlinkat(dir, name, unix.AT_REMOVEDIR)
	if err == nil || err == unix.ENOENT {
		return nil
	}
	if first != nil {
		return first
	}
	return err
}

// empty deletes the content of a folder.
func empty(ctx context.Context, dir int, name string, depth int) error {
	fd, err := folder(dir, name, unix.O_NOFOLLOW)
	if err != nil {
		return err
	}
	d := os.NewFile(uintptr(fd), name)
	defer d.Close()
	var first error
	for {
		names, _ := d.Readdirnames(1024)
		if len(names) == 0 {
			return first
		}
		for _, name := range names {
			err := unix.Unlinkat(fd, name, 0)
			if err == unix.EISDIR || err == unix.EPERM && isDir(fd, name) {
				err = remove(ctx, fd, name, depth+1)
			}
			if err != nil && err != unix.ENOENT && first == nil {
				first = err
			}
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
		}
	}
}

// location is a name in a folder, whether or not something has that name.
type location struct {
	path string
	dir  int
	name string
}

// location finds the folder of a path. It does not follow a link at the end of the path.
func (f *FS) location(p string) (*location, error) {
	p, err := f.path(p)
	if err != nil {
		return nil, err
	}
	for len(p) > 1 && p[len(p)-1] == '/' {
		p = p[:len(p)-1]
	}
	dir, name := path.Split(p)
	if name == "" || name == "." || name == ".." {
		return nil, hutch.Errorf(hutch.Invalid, "%.200q names no entry of a folder: give the path with its name at the end", p)
	}
	s := &location{path: p, name: name}
	return s, f.as(func() (err error) {
		s.dir, err = openAt(unix.AT_FDCWD, dir, unix.O_PATH|unix.O_DIRECTORY, 0)
		if err == nil && f.secret(s.dir) {
			unix.Close(s.dir)
			err = unix.EACCES
		}
		return fail(err, p)
	})
}

func (s *location) close() { unix.Close(s.dir) }

// Move implements hutch.Files.
func (f *FS) Move(ctx context.Context, _, from, to string, replace bool) error {
	a, b, err := f.locations(from, to)
	if err != nil {
		return err
	}
	defer a.close()
	defer b.close()
	return f.as(func() error {
		var st unix.Stat_t
		if err := unix.Fstatat(a.dir, a.name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
			return fail(err, a.path)
		}
		if err := inTheWay(&st, b); err != nil && (!replace || err != unix.EEXIST) {
			return fail(err, b.path)
		}
		err := replacing(ctx, b, replace, func() error { return place(a.dir, a.name, b.dir, b.name) })
		if err != unix.EXDEV {
			return fail(err, b.path)
		}
		if err := f.copyTo(ctx, a, b, replace); err != nil {
			return err
		}
		if !isDir(a.dir, a.name) {
			return fail(unix.Unlinkat(a.dir, a.name, 0), a.path)
		}
		return fail(remove(ctx, a.dir, a.name, 0), a.path)
	})
}

// Copy implements hutch.Files.
func (f *FS) Copy(ctx context.Context, _, from, to string, replace bool) error {
	a, b, err := f.locations(from, to)
	if err != nil {
		return err
	}
	defer a.close()
	defer b.close()
	return f.as(func() error { return f.copyTo(ctx, a, b, replace) })
}

func (f *FS) locations(from, to string) (a, b *location, err error) {
	if a, err = f.location(from); err != nil {
		return nil, nil, err
	}
	if b, err = f.location(to); err != nil {
		a.close()
	}
	if b != nil && err != nil {
		err = failIn(err, b.path, "")
	}
	return a, b, err
}

// inTheWay returns the error for an existing target: EEXIST, or another one if source and target are the same file.
func inTheWay(st *unix.Stat_t, b *location) error {
	var at unix.Stat_t
	switch err := unix.Fstatat(b.dir, b.name, &at, unix.AT_SYMLINK_NOFOLLOW); {
	case err == nil && at.Ino == st.Ino && at.Dev == st.Dev:
		return hutch.Errorf(hutch.Conflict, "%.200q is the same file", b.path)
	case err == nil:
		return unix.EEXIST
	}
	return nil
}

// replacing calls put, which gives b's name to something new. With replace, the file with that name is moved aside
// first, and moved back if put fails.
func replacing(ctx context.Context, b *location, replace bool, put func() error) error {
	err := put()
	if !replace || err != unix.EEXIST && err != unix.ENOTEMPTY {
		return err
	}
	aside := hiddenName()
	if err := unix.Renameat(b.dir, b.name, b.dir, aside); err != nil {
		return err
	}
	if err := put(); err != nil {
		return errors.Join(err, place(b.dir, aside, b.dir, b.name))
	}
	return discard(ctx, b.dir, aside)
}

// discard removes a file that was moved to a hidden name.
func discard(ctx context.Context, dir int, name string) error {
	if isDir(dir, name) {
		return remove(context.WithoutCancel(ctx), dir, name, 0)
	}
	if err := unix.Unlinkat(dir, name, 0); err != unix.ENOENT {
		return err
	}
	return nil
}

// copyTo copies a to a hidden name next to b, and then renames it to b.
func (f *FS) copyTo(ctx context.Context, a, b *location, replace bool) error {
	var st unix.Stat_t
	if err := unix.Fstatat(a.dir, a.name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return fail(err, a.path)
	}
	if err := inTheWay(&st, b); err != nil && (!replace || err != unix.EEXIST) {
		return fail(err, b.path)
	}
	temp := hiddenName()
	c := &copying{fs: f, ctx: ctx}
	err := c.copy(&entry{dir: a.dir, name: a.name, st: st}, b.dir, temp, 0)
	if err == nil {
		err = replacing(ctx, b, replace, func() error { return publish(b.dir, temp, b.name) })
	}
	if err != nil {
		discard(ctx, b.dir, temp)
		if _, ok := errors.AsType[*os.PathError](err); ok {
			return withPath(err, a.path)
		}
		return fail(err, b.path)
	}
	return nil
}

// copying is a copy of a tree.
type copying struct {
	fs   *FS
	ctx  context.Context
	root unix.Stat_t // the folder that is being created
}

func (c *copying) copy(e *entry, dir int, name string, depth int) error {
	switch e.st.Mode & unix.S_IFMT {
	case unix.S_IFREG:
		return c.file(e, dir, name)
	case unix.S_IFDIR:
		return c.folder(e, dir, name, depth)
	case unix.S_IFLNK:
		to, err := readlink(e.dir, e.name)
		if err != nil {
			return err
		}
		return unix.Symlinkat(to, dir, name)
	}
	if depth == 0 {
		return errIrregular
	}
	return nil
}

func (c *copying) file(e *entry, dir int, name string) error {
	from, err := regular(e.dir, e.name, unix.O_RDONLY|unix.O_NOFOLLOW)
	if err != nil {
		return err
	}
	in := os.NewFile(uintptr(from), e.name)
	defer in.Close()
	if c.fs.secret(from) {
		return unix.EACCES
	}
	to, err := unix.Openat(dir, name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_CLOEXEC|unix.O_LARGEFILE, 0o600)
	if err != nil {
		return err
	}
	out := os.NewFile(uintptr(to), name)
	defer out.Close()
	if err := c.content(out, in); err != nil {
		return err
	}
	copyAttributes(from, to)
	unix.Futimes(to, []unix.Timeval{unix.NsecToTimeval(e.st.Mtim.Nano()), unix.NsecToTimeval(e.st.Mtim.Nano())})
	return unix.Fchmod(to, e.st.Mode&0o777)
}

// content copies a file, with the kernel's help if possible, piece by piece.
func (c *copying) content(out, in *os.File) error {
	for copied := false; ; copied = true {
		if c.ctx.Err() != nil {
			return context.Cause(c.ctx)
		}
		n, err := retry(func() (int, error) {
			return unix.CopyFileRange(int(in.Fd()), nil, int(out.Fd()), nil, 8<<20, 0)
		})
		switch {
		case err == nil && n > 0:
		case err == nil && copied:
			return nil
		case err == unix.ENOSPC || err == unix.EDQUOT:
			return err
		default: // not supported, or the file has no size
			return copyGrowing(out, cancelled{c.ctx, in})
		}
	}
}

func (c *copying) folder(e *entry, dir int, name string, depth int) error {
	if err := unix.Mkdirat(dir, name, 0o700); err != nil {
		return err
	}
	to, err := folder(dir, name, unix.O_NOFOLLOW)
	if err != nil {
		return err
	}
	defer unix.Close(to)
	if depth == 0 {
		if err := unix.Fstat(to, &c.root); err != nil {
			return err
		}
	}
	from, err := folder(e.dir, e.name, unix.O_NOFOLLOW)
	if err != nil {
		return err
	}
	if c.fs.secret(from) {
		unix.Close(from)
		return unix.EACCES
	}
	copyAttributes(from, to)
	err = c.fs.walk(c.ctx, from, "", depth, func(sub *entry) error {
		if sub.st.Ino == c.root.Ino && sub.st.Dev == c.root.Dev {
			return hutch.Errorf(hutch.Invalid, "a folder cannot be copied into itself")
		}
		if err := c.copy(sub, to, sub.name, depth+1); err != nil {
			return err
		}
		return errSkip
	})
	if err != nil {
		return err
	}
	return unix.Fchmod(to, e.st.Mode&0o777)
}
