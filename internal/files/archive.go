package files

import (
	"archive/tar"
	"archive/zip"
	"bufio"
	"compress/flate"
	"compress/gzip"
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

	"golang.org/x/sys/unix"

	"hutch"
)

// Pack implements hutch.Files.
func (f *FS) Pack(ctx context.Context, _ string, req hutch.PackRequest, w io.Writer) error {
	if err := req.Check(); err != nil {
		return err
	}
	p, err := f.path(req.Dir)
	if err != nil {
		return err
	}
	a, err := newArchive(req.Format, w)
	if err != nil {
		return err
	}
	k := &packing{fs: f, ctx: ctx, to: a}
	err = f.as(func() error {
		dir, err := folder(unix.AT_FDCWD, p, 0)
		if err != nil {
			return fail(err, p)
		}
		if len(req.Paths) == 0 {
			return f.walk(ctx, dir, "", 0, k.add)
		}
		defer unix.Close(dir)
		for _, name := range req.Paths {
			if err := k.path(dir, path.Clean(name)); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	return a.close()
}

// archive is an archive that is being written.
type archive interface {
	add(name string, e *entry, link string, body io.Reader) error
	close() error
}

func newArchive(format hutch.ArchiveFormat, w io.Writer) (archive, error) {
	out := bufio.NewWriterSize(w, piece)
	switch format {
	case hutch.Tar, "":
		return &tarball{tar.NewWriter(out), nil, out}, nil
	case hutch.TarGz:
		gz, _ := gzip.NewWriterLevel(out, gzip.BestSpeed)
		return &tarball{tar.NewWriter(gz), gz, out}, nil
	case hutch.Zip:
		z := zip.NewWriter(out)
		z.RegisterCompressor(zip.Deflate, func(w io.Writer) (io.WriteCloser, error) { return flate.NewWriter(w, flate.BestSpeed) })
		return &zipfile{z, out}, nil
	}
	return nil, format.Check()
}

type tarball struct {
	*tar.Writer
	gz  *gzip.Writer
	out *bufio.Writer
}

func (t *tarball) add(name string, e *entry, link string, body io.Reader) error {
	h := &tar.Header{Name: name, Mode: int64(e.st.Mode & 0o777), ModTime: modified(&e.st).Truncate(1e9), Linkname: link, Format: tar.FormatPAX}
	switch {
	case link != "":
		h.Typeflag = tar.TypeSymlink
	case e.isDir():
		h.Typeflag, h.Name = tar.TypeDir, name+"/"
	default:
		h.Typeflag, h.Size = tar.TypeReg, e.st.Size
	}
	if err := t.WriteHeader(h); err != nil {
		return err
	}
	if h.Size == 0 {
		return nil
	}
	if n, err := io.CopyBuffer(onlyWriter{t}, io.LimitReader(body, h.Size), make([]byte, 64<<10)); err != nil {
		return err
	} else if n < h.Size {
		return errShorter
	}
	return nil
}

func (t *tarball) close() error {
	err := t.Close()
	if t.gz != nil {
		err = errors.Join(err, t.gz.Close())
	}
	return errors.Join(err, t.out.Flush())
}

type zipfile struct {
	*zip.Writer
	out *bufio.Writer
}

func (z *zipfile) add(name string, e *entry, link string, body io.Reader) error {
	h := &zip.FileHeader{Name: name, Method: zip.Deflate, Modified: modified(&e.st)}
	mode := fs.FileMode(e.st.Mode & 0o777)
	switch {
	case link != "":
		mode |= fs.ModeSymlink
		h.Method, body = zip.Store, strings.NewReader(link)
	case e.isDir():
		mode |= fs.ModeDir
		h.Name, h.Method = name+"/", zip.Store
	}
	h.SetMode(mode)
	w, err := z.CreateHeader(h)
	if err != nil || body == nil {
		return err
	}
	_, err = io.CopyBuffer(onlyWriter{w}, onlyReader{body}, make([]byte, 64<<10))
	return err
}

func (z *zipfile) close() error { return errors.Join(z.Close(), z.out.Flush()) }

// packing puts a tree into an archive.
type packing struct {
	fs  *FS
	ctx context.Context
	to  archive
}

// path adds one path below dir, and everything below that path.
func (k *packing) path(dir int, name string) error {
	e := &entry{dir: dir, name: name, path: name}
	if err := unix.Fstatat(dir, name, &e.st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return fail(err, name)
	}
	if name != "." {
		if err := k.add(e); err != nil || !e.isDir() {
			return err
		}
	}
	sub, err := folder(dir, name, unix.O_NOFOLLOW)
	if err != nil {
		return fail(err, name)
	}
	if name == "." {
		name = ""
	}
	return k.fs.walk(k.ctx, sub, name, 0, k.add)
}

func (k *packing) add(e *entry) error {
	switch e.st.Mode & unix.S_IFMT {
	case unix.S_IFREG:
		return k.file(e)
	case unix.S_IFDIR:
		return k.to.add(e.path, e, "", nil)
	case unix.S_IFLNK:
		to, err := readlink(e.dir, e.name)
		if err != nil {
			return nil // the file no longer exists
		}
		return k.to.add(e.path, e, to, nil)
	}
	return nil
}

func (k *packing) file(e *entry) error {
	if strings.HasPrefix(e.name, hidden) {
		return nil
	}
	fd, err := regular(e.dir, e.name, unix.O_RDONLY|unix.O_NOFOLLOW)
	if err == unix.ENOENT {
		return nil
	}
	if err != nil {
		return fail(err, e.path)
	}
	file := os.NewFile(uintptr(fd), e.path)
	defer file.Close()
	if err := unix.Fstat(fd, &e.st); err != nil || k.fs.secret(fd) {
		return fail(errors.Join(err, unix.EACCES), e.path)
	}
	err = k.to.add(e.path, e, "", cancelled{k.ctx, file})
	if err == errShorter {
		return hutch.Errorf(hutch.Conflict, "the file %.200q became shorter while it was packed: pack it again", e.path)
	}
	return withPath(err, e.path)
}

// Unpack implements hutch.Files.
func (f *FS) Unpack(ctx context.Context, _ string, req hutch.UnpackRequest, r io.Reader) error {
	p, err := f.path(req.Dir)
	if err != nil {
		return err
	}
	return f.as(func() error {
		if err := mkdirs(p); err != nil {
			return err
		}
		root, err := folder(unix.AT_FDCWD, p, 0)
		if err != nil {
			return fail(err, p)
		}
		u := &unpacking{root: root, last: root, lastDir: ".", modes: map[string]uint32{}, most: f.Most, left: f.Most}
		defer u.close()
		in := bufio.NewReaderSize(cancelled{ctx, r}, 64<<10)
		if err := u.all(sniff(req.Format, in), in); err != nil {
			return err
		}
		return u.finish()
	})
}

// sniff detects the format if none is given.
func sniff(format hutch.ArchiveFormat, in *bufio.Reader) hutch.ArchiveFormat {
	if format != "" {
		return format
	}
	head, _ := in.Peek(4)
	switch {
	case strings.HasPrefix(string(head), "\x1f\x8b"):
		return hutch.TarGz
	case strings.HasPrefix(string(head), "PK\x03\x04"), strings.HasPrefix(string(head), "PK\x05\x06"):
		return hutch.Zip
	}
	return hutch.Tar
}

// unpacking unpacks the members of an archive into a folder. It descends folder by folder and never follows a link.
type unpacking struct {
	root    int
	last    int // the folder of the last member
	lastDir string
	modes   map[string]uint32 // modes of folders, which are set at the end

	most, left int64 // bytes that can be written, in all and from now on; most is 0 for no limit
}

func (u *unpacking) close() {
	if u.last != u.root {
		unix.Close(u.last)
	}
	unix.Close(u.root)
}

// member is one thing in an archive.
type member struct {
	name string
	mode fs.FileMode // with the type
	link string      // the target of a symbolic link or, if mode is that of a regular file, of a hard link
	when time.Time
	body io.Reader
}

func (u *unpacking) all(format hutch.ArchiveFormat, in *bufio.Reader) error {
	switch format {
	case hutch.Tar:
		return u.tar(in)
	case hutch.TarGz:
		gz, err := gzip.NewReader(in)
		if err != nil {
			return malformed(err)
		}
		return u.tar(gz)
	case hutch.Zip:
		return u.zip(in)
	}
	return format.Check()
}

// malformed returns the error for an invalid archive, or the error of its reader.
func malformed(err error) error {
	if _, ok := errors.AsType[*hutch.Error](err); ok || errors.Is(err, context.Canceled) {
		return err
	}
	if _, ok := errors.AsType[unix.Errno](err); ok {
		return fail(err, "the archive")
	}
	return hutch.Errorf(hutch.Invalid, "the archive cannot be read, or not to its end: is the format right, and is it whole?").Because(err)
}

func (u *unpacking) tar(r io.Reader) error {
	for t := tar.NewReader(r); ; {
		h, err := t.Next()
		if err == io.EOF {
			_, err := io.Copy(io.Discard, onlyReader{r}) // announced data must be read
			return notBroken(err)
		}
		if err != nil {
			return malformed(err)
		}
		m := member{name: h.Name, mode: fs.FileMode(h.Mode) & fs.ModePerm, when: h.ModTime, body: t}
		switch h.Typeflag {
		case tar.TypeReg, tar.TypeGNUSparse:
		case tar.TypeDir:
			m.mode |= fs.ModeDir
		case tar.TypeSymlink:
			m.mode |= fs.ModeSymlink
			m.link = h.Linkname
		case tar.TypeLink:
			m.link = h.Linkname
		case tar.TypeXGlobalHeader:
			continue
		default:
			return hutch.Errorf(hutch.Denied, "the archive's entry %.200q is a pipe or a device, which is not unpacked", h.Name)
		}
		if err := u.put(&m); err != nil {
			return err
		}
	}
}

func notBroken(err error) error {
	if err == nil {
		return nil
	}
	return malformed(err)
}

// put makes a member.
func (u *unpacking) put(m *member) error {
	if !local(m.name) {
		return outside(m.name)
	}
	m.name = path.Clean(m.name)
	if m.name == "." || u.most > 0 && m.mode&fs.ModeSymlink != 0 && !staysInside(m.name, m.link) {
		return nil
	}
	if err := u.take(entrySize); err != nil {
		return err
	}
	dir, err := u.folder(path.Dir(m.name))
	if err == nil {
		err = u.make(m, dir, path.Base(m.name))
	}
	if err == unix.ELOOP {
		return hutch.Errorf(hutch.Denied, "the archive's entry %.200q would go through a link: remove that, or unpack into an empty folder", m.name)
	}
	if _, ok := errors.AsType[*os.PathError](err); ok {
		return withPath(err, m.name)
	}
	if _, ok := err.(unix.Errno); ok {
		return fail(err, m.name)
	}
	return notBroken(err)
}

// local reports whether a name, as text, stays below its start.
func local(name string) bool {
	if name == "" || name[0] == '/' || strings.Contains(name, "\x00") || len(name) > hutch.MaxPath {
		return false
	}
	for part := range strings.SplitSeq(name, "/") {
		if part == ".." {
			return false
		}
	}
	return true
}

// entrySize is how many bytes of the limit an entry or a folder uses, in addition to its content.
const entrySize = 4 << 10

// staysInside reports whether a link leads to a path in the folder. Other links on its way do not matter, if they stay
// inside as well. A target with .. after a name is refused, because it could lead anywhere.
func staysInside(name, target string) bool {
	if path.IsAbs(target) {
		return false
	}
	rest := path.Clean(path.Dir(name)) + "/"
	for part := range strings.SplitSeq(target, "/") {
		switch {
		case part == "" || part == ".":
		case part != "..":
			rest = ""
		case rest == "" || rest == "./":
			return false
		default:
			rest = path.Dir(path.Clean(rest)) + "/"
		}
	}
	return true
}

// take subtracts bytes from what can still be written.
func (u *unpacking) take(n int64) error {
	if u.most == 0 {
		return nil
	}
	if u.left -= n; u.left < 0 {
		return hutch.Errorf(hutch.Exhausted, "the archive has more than %d MiB, or very many entries: that is too much for one folder", u.most>>20)
	}
	return nil
}

// taking is a reader that charges the bytes that it reads to the limit.
type taking struct {
	u *unpacking
	r io.Reader
}

func (t taking) Read(p []byte) (int, error) {
	n, err := t.r.Read(p)
	if full := t.u.take(int64(n)); full != nil {
		return 0, full
	}
	return n, err
}

func outside(name string) error {
	return hutch.Errorf(hutch.Denied, "the archive's entry %.200q would land outside the folder: make the archive with relative paths and without ..", name)
}

// folder opens a folder below the root, and creates it if it is missing. A link on the way causes ELOOP. The
// descriptor is valid until the next call.
func (u *unpacking) folder(name string) (int, error) {
	if name == u.lastDir {
		return u.last, nil
	}
	at := u.root
	for part := range strings.SplitSeq(name, "/") {
		next, err := u.enter(at, part)
		if at != u.root {
			unix.Close(at)
		}
		if err != nil {
			return -1, err
		}
		at = next
	}
	if u.last != u.root {
		unix.Close(u.last)
	}
	u.last, u.lastDir = at, name
	return at, nil
}

func (u *unpacking) enter(dir int, name string) (int, error) {
	fd, err := folder(dir, name, unix.O_NOFOLLOW)
	if err != unix.ENOENT {
		return fd, err
	}
	if err := u.take(entrySize); err != nil {
		return -1, err
	}
	if err := unix.Mkdirat(dir, name, 0o755); err != nil && err != unix.EEXIST {
		return -1, err
	}
	return folder(dir, name, unix.O_NOFOLLOW)
}

func (u *unpacking) make(m *member, dir int, name string) error {
	if m.mode.IsDir() {
		return u.dir(m, dir, name)
	}
	if err := unix.Unlinkat(dir, name, 0); err != nil && err != unix.ENOENT { // never write into an existing file
		return err
	}
	switch {
	case m.mode&fs.ModeSymlink != 0:
		return unix.Symlinkat(m.link, dir, name)
	case m.link != "":
		return u.hardLink(m.link, dir, name)
	}
	return u.file(m, dir, name)
}

func (u *unpacking) dir(m *member, dir int, name string) error {
	fd, err := u.enter(dir, name)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	mode := uint32(m.mode & fs.ModePerm)
	if mode&0o700 == 0o700 {
		return unix.Fchmod(fd, mode)
	}
	u.modes[m.name] = mode
	return nil
}

// hardLink creates a hard link to a member that was unpacked before.
func (u *unpacking) hardLink(target string, dir int, name string) error {
	if !local(target) {
		return outside(target)
	}
	target = path.Clean(target)
	own, err := unix.FcntlInt(uintptr(dir), unix.F_DUPFD_CLOEXEC, 0) // the next call can close the original
	if err != nil {
		return err
	}
	defer unix.Close(own)
	from, err := u.folder(path.Dir(target))
	if err != nil {
		return err
	}
	if u.most > 0 && isLink(from, path.Base(target)) {
		return nil // the target leads to a path inside of the folder from the link's first name, but perhaps not from this one
	}
	return unix.Linkat(from, path.Base(target), own, name, 0)
}

func isLink(dir int, name string) bool {
	var st unix.Stat_t
	return unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW) == nil && st.Mode&unix.S_IFMT == unix.S_IFLNK
}

func (u *unpacking) file(m *member, dir int, name string) error {
	fd, err := unix.Openat(dir, name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC|unix.O_LARGEFILE, 0o600)
	if err != nil {
		return err
	}
	file := os.NewFile(uintptr(fd), name)
	defer file.Close()
	if _, err := io.CopyBuffer(onlyWriter{file}, taking{u, m.body}, make([]byte, 64<<10)); err != nil {
		return err
	}
	if !m.when.IsZero() { // a wrong time must not stop the unpacking
		when := unix.NsecToTimeval(m.when.UnixNano())
		unix.Futimes(fd, []unix.Timeval{when, when})
	}
	return unix.Fchmod(fd, uint32(m.mode&fs.ModePerm))
}

// finish sets the modes of folders. Inner folders come first, because a mode can make a folder read only.
func (u *unpacking) finish() error {
	for _, name := range slices.Backward(slices.Sorted(maps.Keys(u.modes))) {
		fd, err := u.folder(name)
		if err == nil {
			err = unix.Fchmod(fd, u.modes[name])
		}
		if err != nil {
			return fail(err, name)
		}
	}
	return nil
}

// maxDirectory is the longest directory of a zip archive in bytes, because it is held in memory.
const maxDirectory = 16 << 20

// zip unpacks a zip archive. It cannot be read in order, so it is first stored in a file without a name.
func (u *unpacking) zip(in io.Reader) error {
	name := hiddenName()
	fd, err := unix.Openat(u.root, name, unix.O_RDWR|unix.O_CREAT|unix.O_EXCL|unix.O_CLOEXEC|unix.O_LARGEFILE, 0o600)
	if err != nil {
		return fail(err, "the archive")
	}
	spool := os.NewFile(uintptr(fd), "the archive")
	defer spool.Close()
	if err := unix.Unlinkat(u.root, name, 0); err != nil {
		return fail(err, "the archive")
	}
	size, err := io.CopyBuffer(onlyWriter{spool}, onlyReader{in}, make([]byte, 64<<10))
	if err != nil {
		return malformed(err)
	}
	if err := checkDirectory(spool, size); err != nil {
		return err
	}
	z, err := zip.NewReader(spool, size)
	if err != nil {
		return malformed(err)
	}
	for _, f := range z.File {
		if err := u.zipped(f); err != nil {
			return err
		}
	}
	return nil
}

func (u *unpacking) zipped(f *zip.File) error {
	m := member{name: f.Name, mode: f.Mode(), when: f.Modified}
	if strings.HasSuffix(f.Name, "/") {
		m.mode = m.mode&fs.ModePerm | fs.ModeDir
	}
	if m.mode&fs.ModePerm == 0 { // the default mode, if the archive gives no permissions
		m.mode |= 0o644
		if m.mode.IsDir() {
			m.mode |= 0o755
		}
	}
	if t := m.mode.Type(); t&^(fs.ModeDir|fs.ModeSymlink) != 0 {
		return hutch.Errorf(hutch.Denied, "the archive's entry %.200q is a pipe or a device, which is not unpacked", f.Name)
	}
	if m.mode.IsDir() {
		return u.put(&m)
	}
	body, err := f.Open()
	if err != nil {
		return malformed(fmt.Errorf("open %q: %w", f.Name, err))
	}
	defer body.Close()
	m.body = body
	if m.mode&fs.ModeSymlink != 0 {
		to, err := io.ReadAll(io.LimitReader(body, hutch.MaxPath))
		if err != nil {
			return malformed(err)
		}
		m.link = string(to)
	}
	return u.put(&m)
}

// checkDirectory refuses a zip archive whose directory is too long, according to the record at its end.
func checkDirectory(r io.ReaderAt, size int64) error {
	const record, comment = 22, 1<<16 - 1
	tail := make([]byte, min(size, record+comment))
	if _, err := r.ReadAt(tail, size-int64(len(tail))); err != nil && err != io.EOF {
		return malformed(err)
	}
	for i := len(tail) - record; i >= 0; i-- {
		if string(tail[i:i+4]) == "PK\x05\x06" {
			n := uint32(tail[i+12]) | uint32(tail[i+13])<<8 | uint32(tail[i+14])<<16 | uint32(tail[i+15])<<24
			if n > maxDirectory {
				return hutch.Errorf(hutch.Exhausted, "the archive has more entries than can be unpacked at once: use tar")
			}
			return nil
		}
	}
	return malformed(zip.ErrFormat)
}
