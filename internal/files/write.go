package files

import (
	"bytes"
	"context"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"hutch"
)

// hidden begins the names of files that are being written.
const hidden = ".hutch-"

// hiddenName returns an unused name. It uses the random numbers of Go's runtime: they cannot be predicted, and the
// agent can do without package crypto.
func hiddenName() string {
	return hidden + strconv.FormatUint(rand.Uint64(), 36) + strconv.FormatUint(rand.Uint64(), 36)
}

// WriteFile implements hutch.Files.
func (f *FS) WriteFile(ctx context.Context, _ string, req hutch.WriteRequest, r io.Reader) (hutch.FileInfo, error) {
	if err := req.Check(); err != nil {
		return hutch.FileInfo{}, err
	}
	if req.Append {
		return f.appendTo(ctx, req, r)
	}
	d, err := f.begin(req)
	if err != nil {
		return hutch.FileInfo{}, err
	}
	return d.write(cancelled{ctx, r})
}

func (f *FS) appendTo(ctx context.Context, req hutch.WriteRequest, r io.Reader) (hutch.FileInfo, error) {
	p, err := f.path(req.Path)
	if err != nil {
		return hutch.FileInfo{}, err
	}
	var file *os.File
	err = f.as(func() error {
		if req.Parents {
			if err := mkdirs(path.Dir(p)); err != nil {
				return err
			}
		}
		fd, err := regular(unix.AT_FDCWD, p, unix.O_WRONLY|unix.O_APPEND|unix.O_CREAT)
		if err != nil {
			return fail(err, p)
		}
		file = os.NewFile(uintptr(fd), p)
		if req.Mode == 0 {
			return nil
		}
		if err := file.Chmod(fs.FileMode(req.Mode)); err != nil {
			file.Close()
			return withPath(err, p)
		}
		return nil
	})
	if err != nil {
		return hutch.FileInfo{}, err
	}
	defer file.Close()
	if f.secret(int(file.Fd())) {
		return hutch.FileInfo{}, fail(unix.EACCES, p)
	}
	if err := copyGrowing(file, cancelled{ctx, r}); err != nil {
		return hutch.FileInfo{}, withPath(err, p)
	}
	return f.describe(file, p)
}

// copyGrowing copies data in pieces that grow: a system call for many bytes takes no longer, and most files are small.
func copyGrowing(w io.Writer, r io.Reader) error {
	for buf := make([]byte, piece/8); ; {
		n, err := r.Read(buf)
		if n > 0 {
			if _, err := w.Write(buf[:n]); err != nil {
				return err
			}
		}
		switch {
		case err == io.EOF:
			return nil
		case err != nil:
			return err
		case n > len(buf)/2 && len(buf) < 2*piece:
			buf = make([]byte, 4*len(buf))
		}
	}
}

// draft is a file that is being written: it has another name in the same folder until it is complete.
type draft struct {
	fs     *FS
	path   string // the requested path
	dir    int
	name   string
	temp   string
	file   *os.File
	mode   fs.FileMode
	fresh  bool // no file has the name
	create bool // fail if a file has the name already

	attributes map[string]string
	like       *os.File // file whose attributes the draft also gets; nil for none
}

// begin resolves the path of a file, following links, and opens a draft for it.
func (f *FS) begin(req hutch.WriteRequest) (*draft, error) {
	p, err := f.path(req.Path)
	if err != nil {
		return nil, err
	}
	d := &draft{fs: f, path: p, dir: -1, mode: fs.FileMode(req.Mode), create: req.Create, attributes: req.Attributes}
	err = f.as(func() error {
		if req.Parents {
			if err := mkdirs(path.Dir(p)); err != nil {
				return err
			}
		}
		err := d.find()
		if err == nil {
			err = d.open()
		}
		if err != nil {
			unix.Close(d.dir)
			if d.dir < 0 { // its folder could not be opened
				return failIn(err, p, ", or let the write make it (parents)")
			}
			return fail(err, p)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return d, nil
}

const maxLinks = 40 // as in the kernel

// find follows the links at the end of the path, and opens the folder of the last one's target.
func (d *draft) find() error {
	at := d.path
	for range maxLinks {
		dir, name := path.Split(at)
		if name == "" || name == "." || name == ".." {
			return unix.EISDIR
		}
		if d.dir >= 0 {
			unix.Close(d.dir)
		}
		var err error
		if d.dir, err = retry(func() (int, error) {
			return openAt(unix.AT_FDCWD, dir, unix.O_PATH|unix.O_DIRECTORY, 0)
		}); err != nil {
			return err
		}
		d.name = name
		to, err := readlink(d.dir, name)
		if err != nil {
			return nil // not a link, or it does not exist yet
		}
		if d.create {
			return unix.EEXIST
		}
		if !strings.HasPrefix(to, "/") {
			to = dir + to
		}
		at = to
	}
	return unix.ELOOP
}

// open opens the draft with the mode of the file that it will replace, which must be writable.
func (d *draft) open() error {
	var st unix.Stat_t
	err := unix.Fstatat(d.dir, d.name, &st, unix.AT_SYMLINK_NOFOLLOW)
	switch {
	case err == unix.ENOENT:
		d.fresh = true
		if d.mode == 0 {
			d.mode = 0o644
		}
	case err != nil:
		return err
	case d.create:
		return unix.EEXIST
	default:
		fd, err := regular(d.dir, d.name, unix.O_WRONLY|unix.O_NOFOLLOW)
		if err == nil {
			unix.Close(fd)
		} else if err != unix.ETXTBSY { // a running program keeps the old file
			return err
		}
		if d.mode == 0 {
			d.mode = fs.FileMode(st.Mode) & fs.ModePerm
		}
	}
	d.temp = hiddenName()
	fd, err := unix.Openat(d.dir, d.temp, unix.O_RDWR|unix.O_CREAT|unix.O_EXCL|unix.O_CLOEXEC|unix.O_LARGEFILE, 0o600)
	if err != nil {
		return err
	}
	d.file = os.NewFile(uintptr(fd), d.temp)
	return nil
}

// write fills the draft and renames it; on failure nothing of it is left.
func (d *draft) write(r io.Reader) (hutch.FileInfo, error) {
	defer unix.Close(d.dir)
	defer d.file.Close()
	err := copyGrowing(d.file, r)
	if err == nil {
		err = d.fs.as(d.commit)
	}
	if err != nil {
		d.fs.as(func() error { return unix.Unlinkat(d.dir, d.temp, 0) })
		if errno, ok := err.(unix.Errno); ok {
			err = fail(errno, d.path)
		}
		return hutch.FileInfo{}, withPath(err, d.path)
	}
	fi, err := d.fs.describe(d.file, d.path)
	fi.Attributes = d.attributes
	return fi, err
}

// commit gives the draft its attributes while its user can still write to it, and then its mode and name.
func (d *draft) commit() error {
	if d.like != nil {
		copyAttributes(int(d.like.Fd()), int(d.file.Fd()))
	}
	if err := setAttributes(int(d.file.Fd()), d.attributes); err != nil {
		return err
	}
	if err := unix.Fchmod(int(d.file.Fd()), uint32(d.mode)); err != nil {
		return err
	}
	if d.fresh {
		if err := publish(d.dir, d.temp, d.name); err != unix.EEXIST || d.create {
			return err
		}
	}
	return unix.Renameat(d.dir, d.temp, d.dir, d.name)
}

// publish renames a hidden file to an unused name. If possible it uses a link, which watchers report as a new file.
func publish(dir int, temp, name string) error {
	err := unix.Linkat(dir, temp, dir, name, 0)
	if err == nil {
		return unix.Unlinkat(dir, temp, 0)
	}
	if err == unix.EEXIST {
		return err
	}
	return place(dir, temp, dir, name)
}

// place renames to an unused name.
func place(fromDir int, from string, toDir int, to string) error {
	err := unix.Renameat2(fromDir, from, toDir, to, unix.RENAME_NOREPLACE)
	if err != unix.EINVAL && err != unix.ENOSYS {
		return err
	}
	var st unix.Stat_t // not every file system supports that: then check and rename
	if unix.Fstatat(toDir, to, &st, unix.AT_SYMLINK_NOFOLLOW) == nil {
		return unix.EEXIST
	}
	return unix.Renameat(fromDir, from, toDir, to)
}

// maxEdit is the largest file that can be edited, in bytes, because it is in memory twice.
const maxEdit = 16 << 20

// EditFile implements hutch.Files.
func (f *FS) EditFile(ctx context.Context, _ string, req hutch.EditRequest) (hutch.Edit, error) {
	if err := req.Check(); err != nil {
		return hutch.Edit{}, err
	}
	was, info, err := f.wholeFile(ctx, req.Path, maxEdit)
	if err != nil {
		return hutch.Edit{}, err
	}
	n := bytes.Count(was, []byte(req.Old))
	if n == 0 || n > 1 && !req.All {
		return hutch.Edit{}, mismatch(n, info.Path, was, req.Old)
	}
	edit := hutch.Edit{Replacements: n, Line: 1 + bytes.Count(was[:bytes.Index(was, []byte(req.Old))], []byte("\n"))}
	old, _, err := f.open(req.Path)
	if err != nil {
		return hutch.Edit{}, err
	}
	defer old.Close()
	d, err := f.begin(hutch.WriteRequest{Path: req.Path})
	if err != nil {
		return hutch.Edit{}, err
	}
	d.like = old
	edit.File, err = d.write(&unchanged{
		Reader: bytes.NewReader(bytes.ReplaceAll(was, []byte(req.Old), []byte(req.New))),
		check:  func() error { return f.same(ctx, req.Path, info) },
	})
	return edit, err
}

// unchanged is a reader that checks at its end that the original file did not change.
type unchanged struct {
	*bytes.Reader
	check func() error
}

func (u *unchanged) Read(b []byte) (int, error) {
	n, err := u.Reader.Read(b)
	if err == io.EOF {
		if err := u.check(); err != nil {
			return n, err
		}
	}
	return n, err
}

func (f *FS) same(_ context.Context, p string, was hutch.FileInfo) error {
	file, now, err := f.open(p)
	if err != nil {
		return err
	}
	file.Close()
	if now.Size != was.Size || !now.Modified.Equal(was.Modified) {
		return hutch.Errorf(hutch.Conflict, "%.200q was changed during the edit by another program or caller: read it again", was.Path)
	}
	return nil
}

// mismatch says how often the text occurs, and what is probably wrong.
func mismatch(n int, p string, content []byte, old string) error {
	if n > 1 {
		return hutch.Errorf(hutch.Conflict, "the text to be replaced is in %.200q %d times, and must be there once: give more of the lines around it, or replace all", p, n).With("matches", n)
	}
	hint := "read it again"
	squeezed := bytes.Join(bytes.Fields(content), []byte(" "))
	if text := strings.Join(strings.Fields(old), " "); text != "" && bytes.Contains(squeezed, []byte(text)) {
		hint = "it is there with other white space: copy it exactly, without line numbers"
	}
	return hutch.Errorf(hutch.Conflict, "the text to be replaced is not in %.200q: %s", p, hint).With("matches", 0)
}

// mkdirs makes a folder and its parents.
func mkdirs(p string) error {
	fd, err := openAt(unix.AT_FDCWD, p, unix.O_PATH|unix.O_DIRECTORY, 0)
	if err == nil {
		return unix.Close(fd)
	}
	if err != unix.ENOENT {
		return fail(err, p)
	}
	p = strings.TrimRight(p, "/")
	if parent, _ := path.Split(p); parent != "" && parent != p {
		if err := mkdirs(parent); err != nil {
			return err
		}
	}
	if err := mkdir(p); err != nil && (err != unix.EEXIST || !isDir(unix.AT_FDCWD, p)) {
		return fail(err, p)
	}
	return nil
}

// mkdir makes a folder that belongs to the user.
func mkdir(p string) error {
	dir, name := path.Split(strings.TrimRight(p, "/"))
	if name == "" {
		return unix.EEXIST
	}
	fd, err := openAt(unix.AT_FDCWD, dir, unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return unix.Mkdirat(fd, name, 0o755)
}
