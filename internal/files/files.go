// Package files implements file operations from inside a file system: [hutch.Files] on the root that its process sees.
// In a sandbox that is the sandbox's root, and the process is the agent, so a read costs a round trip and no process.
//
// Two rules keep it safe next to programs that change files at any moment. The kernel, with the rights of the user
// (As), decides what a path means: this package never decides by a path's text. And once it has found a file, it works
// by descriptor, so no program can replace the file. It opens only regular files and folders, and closes everything
// else at once: no operation here waits for a pipe.
package files

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"hutch"
)

// FS implements hutch.Files. It ignores the sandbox argument, because there is only one.
type FS struct {
	// Dir is the folder for relative paths.
	Dir string
	// As calls a function with the rights of the user; nil uses those of the process.
	As func(func() error) error
	// Secret, when set, names a folder that cannot be used, whatever its permissions: this process's own in /proc.
	// The same holds for the folders of its threads.
	Secret string
	// WalkTime is how long one list or search can take; 0 is 30 s. After that time, the results so far have been
	// passed on, and the error says that there can be more.
	WalkTime time.Duration
	// Most, when set, is how many bytes Unpack can write, where each entry and each folder counts as 4 KiB more. It is
	// for untrusted archives that are unpacked outside of a sandbox. Links that lead out of the folder are then left
	// out: opening a file of a sandbox must not open a file of this machine.
	Most int64
}

const walkTime = 30 * time.Second

var _ hutch.Files = (*FS)(nil)

func (f *FS) as(do func() error) error {
	if f.As == nil {
		return do()
	}
	return f.As(do)
}

// path makes a path absolute. It does not remove any .. from it, because the meaning of .. depends on links.
func (f *FS) path(p string) (string, error) {
	if err := hutch.CheckPath(p); err != nil {
		return "", err
	}
	if p[0] != '/' {
		p = f.Dir + "/" + p
	}
	if len(p) > hutch.MaxPath {
		return "", fail(unix.ENAMETOOLONG, p)
	}
	return p, nil
}

// open opens a regular file for reading.
func (f *FS) open(p string) (file *os.File, info hutch.FileInfo, err error) {
	if p, err = f.path(p); err != nil {
		return nil, info, err
	}
	err = f.as(func() error {
		fd, err := regular(unix.AT_FDCWD, p, unix.O_RDONLY)
		if err != nil {
			return fail(err, p)
		}
		file = os.NewFile(uintptr(fd), p)
		return nil
	})
	if err != nil {
		return nil, info, err
	}
	if info, err = f.describe(file, p); err != nil {
		file.Close()
	}
	return file, info, err
}

// describe returns the record of an open file, and refuses secret ones.
func (f *FS) describe(file *os.File, p string) (hutch.FileInfo, error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(file.Fd()), &st); err != nil {
		return hutch.FileInfo{}, fail(err, p)
	}
	if f.secret(int(file.Fd())) {
		return hutch.FileInfo{}, fail(unix.EACCES, p)
	}
	return info(path.Clean(p), &st, ""), nil
}

func (f *FS) secret(fd int) bool {
	var st unix.Statfs_t
	if f.Secret == "" || unix.Fstatfs(fd, &st) != nil || st.Type != unix.PROC_SUPER_MAGIC {
		return false
	}
	name, err := os.Readlink("/proc/self/fd/" + itoa(fd))
	return err != nil || name == f.Secret || strings.HasPrefix(name, f.Secret+"/") || ownThread(name)
}

// ownThread reports whether a name in /proc is the folder of a thread of this process. Those folders are not listed,
// but can be opened.
func ownThread(name string) bool {
	id, _, _ := strings.Cut(strings.TrimPrefix(name, "/proc/"), "/")
	if strings.Trim(id, "0123456789") != "" || id == "" {
		return false
	}
	var st unix.Stat_t
	return unix.Lstat("/proc/self/task/"+id, &st) == nil
}

// openAt opens a path, but never through a link of /proc to an open file or folder (/proc/self/exe, /proc/self/fd/3):
// such links lead to files without a name here, such as this program itself.
func openAt(dir int, name string, flags int, mode uint32) (int, error) {
	how := unix.OpenHow{Flags: uint64(flags | unix.O_CLOEXEC), Resolve: unix.RESOLVE_NO_MAGICLINKS}
	if flags&unix.O_CREAT != 0 {
		how.Mode = uint64(mode)
	}
	return retry(func() (int, error) {
		fd, err := unix.Openat2(dir, name, &how)
		if err == unix.ENOSYS { // before Linux 5.6
			return unix.Openat(dir, name, flags|unix.O_CLOEXEC, mode)
		}
		return fd, err
	})
}

const noWait = unix.O_NONBLOCK | unix.O_NOCTTY | unix.O_CLOEXEC | unix.O_LARGEFILE

// errIrregular is the error for a path that is neither a regular file nor a folder.
var errIrregular = errors.New("it is a pipe, a socket or a device")

// regular opens only a regular file. It checks before it opens, because opening a device can have effects, and again
// afterwards, to be sure.
func regular(dir int, name string, flags int) (fd int, err error) {
	var st unix.Stat_t
	follow := 0
	if flags&unix.O_NOFOLLOW != 0 {
		follow = unix.AT_SYMLINK_NOFOLLOW
	}
	if err := unix.Fstatat(dir, name, &st, follow); err == nil {
		if err := isRegular(&st); err != nil {
			return -1, err
		}
	}
	fd, err = openAt(dir, name, flags|noWait, 0o666)
	if err != nil {
		return -1, err
	}
	if err = unix.Fstat(fd, &st); err == nil {
		err = isRegular(&st)
	}
	if err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

func isRegular(st *unix.Stat_t) error {
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFREG:
		return nil
	case unix.S_IFDIR:
		return unix.EISDIR
	case unix.S_IFLNK:
		return unix.ELOOP
	}
	return errIrregular
}

// folder opens a folder. With O_NOFOLLOW, a link to a folder is an error. That flag is never combined with
// O_DIRECTORY, because gVisor then follows the link.
func folder(dir int, name string, flags int) (int, error) {
	if flags&unix.O_NOFOLLOW == 0 {
		flags |= unix.O_DIRECTORY
	}
	fd, err := openAt(dir, name, unix.O_RDONLY|noWait|flags, 0)
	if err != nil {
		return -1, err
	}
	var st unix.Stat_t
	if err = unix.Fstat(fd, &st); err == nil && st.Mode&unix.S_IFMT != unix.S_IFDIR {
		err = unix.ENOTDIR
	}
	if err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

func retry(call func() (int, error)) (int, error) {
	for {
		n, err := call()
		if err != unix.EINTR {
			return n, err
		}
	}
}

// info returns the record of a file from its attributes st.
func info(p string, st *unix.Stat_t, target string) hutch.FileInfo {
	t := hutch.OtherFile
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFREG:
		t = hutch.RegularFile
	case unix.S_IFDIR:
		t = hutch.Directory
	case unix.S_IFLNK:
		t = hutch.Symlink
	}
	return hutch.FileInfo{
		Path: p, Name: path.Base(p), Type: t, Size: st.Size, Mode: hutch.FileMode(st.Mode & 0o7777),
		UID: int(st.Uid), GID: int(st.Gid), Modified: modified(st), Target: target,
	}
}

// modified returns a time that JSON can represent: files can have any.
func modified(st *unix.Stat_t) time.Time {
	t := time.Unix(st.Mtim.Unix()).UTC()
	if y := t.Year(); y < 0 || y > 9999 {
		return time.Unix(0, 0).UTC()
	}
	return t
}

func itoa(n int) string {
	var b [20]byte
	i := len(b)
	for {
		i--
		b[i] = '0' + byte(n%10)
		if n /= 10; n == 0 {
			return string(b[i:])
		}
	}
}

// readlink reads a link, whose target can be any text.
func readlink(dir int, name string) (string, error) {
	var b [hutch.MaxPath + 1]byte
	n, err := unix.Readlinkat(dir, name, b[:])
	if err != nil {
		return "", err
	}
	return string(b[:n]), nil
}

// fail turns an error about a path into one for the caller.
func fail(err error, p string) error {
	if err == nil || errors.Is(err, context.Canceled) {
		return err
	}
	if _, ok := errors.AsType[*hutch.Error](err); ok {
		return err
	}
	kind, words := hutch.Internal, "cannot be used"
	if e, ok := errors.AsType[unix.Errno](err); ok {
		if r, known := reasons[e]; known {
			kind, words = r.kind, r.words
		}
	}
	switch {
	case errors.Is(err, errIrregular):
		kind, words = hutch.Invalid, "is a pipe, a socket or a device: only regular files can be read and written"
	case errors.Is(err, fs.ErrExist) && kind == hutch.Internal:
		kind, words = hutch.Conflict, "is there already"
	case kind == hutch.Internal:
		return hutch.Errorf(hutch.Internal, "%.200q %s", p, words).Because(err)
	}
	e := hutch.Errorf(kind, "%.200q %s", p, words).Naming(hutch.AboutFile, strings.ToValidUTF8(p, "\uFFFD")).Because(err)
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
		e = e.With("limit", "disk")
	}
	return e
}

// reasons are the meanings of error numbers, for a sentence that begins with a path.
var reasons = map[unix.Errno]struct {
	kind  hutch.Kind
	words string
}{
	unix.ENOENT:       {hutch.NotFound, "does not exist: list the folder to see what there is"},
	unix.ENOTDIR:      {hutch.Conflict, "is not a folder, or leads through something that is not a folder"},
	unix.EISDIR:       {hutch.Conflict, "is a folder, where a file is needed"},
	unix.EEXIST:       {hutch.Conflict, "is there already: replace it, or choose another name"},
	unix.ENOTEMPTY:    {hutch.Conflict, "is a folder that is not empty"},
	unix.EBUSY:        {hutch.Conflict, "is in use by the system"},
	unix.ETXTBSY:      {hutch.Conflict, "is a program that runs"},
	unix.EACCES:       {hutch.Denied, "is not open to this user: look at its permissions, and at those of its folder"},
	unix.EPERM:        {hutch.Denied, "cannot be changed in this way by the sandbox's user: it belongs to another user, or is protected"},
	unix.EROFS:        {hutch.Denied, "is on a file system that cannot be written to: use /workspace or /tmp"},
	unix.ENOSPC:       {hutch.Exhausted, "cannot be written: the sandbox's disk is full. Delete files, or create a sandbox with a higher limits.disk"},
	unix.EDQUOT:       {hutch.Exhausted, "cannot be written: the disk quota is used up. Delete files"},
	unix.EFBIG:        {hutch.Exhausted, "would become larger than a file may be"},
	unix.EMFILE:       {hutch.Exhausted, "cannot be opened: too many files are open. Try again when other calls have ended"},
	unix.ENFILE:       {hutch.Exhausted, "cannot be opened: too many files are open in the system"},
	unix.ENOMEM:       {hutch.Exhausted, "cannot be used: the sandbox is out of memory"},
	unix.ELOOP:        {hutch.Invalid, "is, or leads through, a link that leads to itself, or a link of /proc that stands for an open file: give the path of the file itself"},
	unix.ENAMETOOLONG: {hutch.Invalid, "is too long, in one name or in all"},
	unix.EINVAL:       {hutch.Invalid, "cannot be used for this: it may be a folder that would go into itself, or the root"},
	unix.ENXIO:        {hutch.Invalid, "is a pipe, a socket or a device: only regular files can be read and written"},
	unix.ENODEV:       {hutch.Invalid, "is a device that is not there"},
	unix.EOPNOTSUPP:   {hutch.Unsupported, "is on a file system that cannot do that"},
	unix.ENOSYS:       {hutch.Unsupported, "is on a system that cannot do that"},
}

// Stat implements hutch.Files.
func (f *FS) Stat(_ context.Context, _, p string) (fi hutch.FileInfo, err error) {
	if p, err = f.path(p); err != nil {
		return fi, err
	}
	err = f.as(func() error {
		fi, err = f.stat(p)
		return err
	})
	return fi, err
}

func (f *FS) stat(p string) (hutch.FileInfo, error) {
	fd, err := openAt(unix.AT_FDCWD, p, unix.O_PATH|unix.O_NOFOLLOW, 0)
	if err != nil {
		return hutch.FileInfo{}, fail(err, p)
	}
	defer unix.Close(fd)
	if f.secret(fd) {
		return hutch.FileInfo{}, fail(unix.EACCES, p)
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return hutch.FileInfo{}, fail(err, p)
	}
	var target string
	if st.Mode&unix.S_IFMT == unix.S_IFLNK {
		target, _ = readlink(fd, "")
	}
	fi := info(path.Clean(p), &st, target)
	if fi.Type == hutch.RegularFile || fi.Type == hutch.Directory {
		fi.Attributes = attributes(fd)
	}
	return fi, nil
}

// cancelled is a reader that fails when ctx is done.
type cancelled struct {
	ctx context.Context
	r   io.Reader
}

func (c cancelled) Read(b []byte) (int, error) {
	if c.ctx.Err() != nil {
		return 0, context.Cause(c.ctx)
	}
	return c.r.Read(b)
}
