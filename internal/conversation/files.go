package conversation

import (
	"archive/tar"
	"cmp"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"hutch"
	"hutch/internal/durable"
	"hutch/internal/tarfile"
)

// Limits on one conversation.
const (
	maxFiles = 20_000
	maxBytes = 1 << 30
)

// inside is where a sandbox has the files of its conversation.
const inside = "/data"

// scratch begins the names of files that are being written on the host.
const scratch = ".hutch-new-"

// open opens the folder of a conversation's files, and makes it when it is
// missing.
func (s *Server) open(at place) (*os.Root, error) {
	name := filesOf(at.folder())
	if err := s.root.MkdirAll(name, 0o700); err != nil {
		return nil, err
	}
	return s.root.OpenRoot(name)
}

// bring puts the files of a conversation into a sandbox.
func (s *Server) bring(ctx context.Context, at place, box string) error {
	root, err := s.open(at)
	if err != nil {
		return err
	}
	defer root.Close()
	r, w := io.Pipe()
	packed := make(chan struct{})
	go func() {
		defer close(packed)
		t := tar.NewWriter(w)
		err := walk(root, ".", func(name string, _ fs.DirEntry) error { return pack(root, name, t) })
		w.CloseWithError(errors.Join(err, t.Close()))
	}()
	err = s.svc.Unpack(ctx, box, hutch.UnpackRequest{Dir: inside, Format: hutch.Tar}, r)
	r.Close()
	<-packed
	return err
}

// walk calls visit for everything below a folder, a folder before its content. It is [fs.WalkDir] for names that need
// not be UTF-8, and follows no link.
func walk(root *os.Root, dir string, visit func(name string, entry fs.DirEntry) error) error {
	f, err := root.Open(dir)
	if err != nil {
		return err
	}
	entries, err := f.ReadDir(-1)
	f.Close()
	for _, entry := range entries {
		name := path.Join(dir, entry.Name())
		err := visit(name, entry)
		if err == nil && entry.IsDir() {
			err = walk(root, name, visit)
		}
		if err != nil && err != fs.SkipDir {
			return err
		}
	}
	return err
}

// pack writes one file of a conversation to an archive. It leaves out files that no conversation can have.
func pack(root *os.Root, name string, t *tar.Writer) error {
	info, err := root.Lstat(name)
	if err != nil || strings.HasPrefix(name, scratch) {
		return nil
	}
	h := tar.Header{Name: name, Mode: int64(info.Mode().Perm()), ModTime: info.ModTime(), Format: tar.FormatPAX}
	switch {
	case info.IsDir():
		h.Typeflag, h.Name = tar.TypeDir, name+"/"
	case info.Mode()&fs.ModeSymlink != 0:
		h.Typeflag = tar.TypeSymlink
		if h.Linkname, err = root.Readlink(name); err != nil {
			return nil
		}
	case info.Mode().IsRegular():
		return packFile(root, name, h, t)
	default:
		return nil
	}
	return t.WriteHeader(&h)
}

func packFile(root *os.Root, name string, h tar.Header, t *tar.Writer) error {
	f, _, err := openRegular(root, name)
	if err != nil {
		return nil
	}
	defer f.Close()
	return tarfile.Add(t, f, h)
}

// openRegular opens a regular file: it never waits for a pipe or device.
func openRegular(root *os.Root, name string) (*os.File, fs.FileInfo, error) {
	f, err := root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, nil, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fs.ErrNotExist
	}
	if err != nil {
		f.Close()
		return nil, nil, err
	}
	return f, info, nil
}

// keep makes the conversation's folder equal to its sandbox, and returns the files that differed. It compares size,
// permissions and time: a program that restores all three hides a change of its own file.
func (s *Server) keep(ctx context.Context, at place, box string) ([]File, error) {
	root, err := s.open(at)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	list, err := s.list(ctx, box)
	if err == nil {
		err = s.grow(at, list.size)
	}
	if err != nil {
		return nil, err
	}
	k := keeping{s: s, ctx: ctx, box: box, root: root, room: maxBytes}
	changed := []File{}
	for name, info := range list.each {
		differed, err := k.one(name, info)
		if err != nil {
			return changed, durable.Explained(err, root.Name())
		}
		if differed {
			changed = append(changed, File{Name: name, Size: info.Size, URL: s.links.to(at.folder(), name)})
		}
	}
	return changed, list.prune(root)
}

// listing lists a sandbox's files, a folder before its content.
type listing struct {
	order []hutch.FileInfo
	has   map[string]bool
	size
}

func (s *Server) list(ctx context.Context, box string) (*listing, error) {
	l := &listing{has: map[string]bool{}}
	err := s.svc.ListFiles(ctx, box, hutch.ListRequest{Path: inside, Recursive: true, Hidden: true, Limit: maxFiles}, func(f hutch.FileInfo) error {
		name := strings.TrimPrefix(f.Path, inside+"/")
		if f.Type == hutch.OtherFile || name == "." || !filepath.IsLocal(name) || path.Clean(name) != name || strings.HasPrefix(name, scratch) {
			return nil // a pipe, or a record that no honest agent sends
		}
		l.entries++
		if f.Type == hutch.RegularFile {
			l.bytes += min(f.Size, maxBytes+1) // a sum of the sizes of files with holes could overflow
		}
		l.order, l.has[name] = append(l.order, f), true
		return nil
	})
	switch {
	case errors.Is(err, hutch.Exhausted):
		return nil, hutch.Errorf(hutch.Exhausted, "the conversation has more than %d files: nothing of this run was kept. Delete some under /data, or keep them in one archive", maxFiles).With("limit", "files")
	case err == nil && l.bytes > maxBytes:
		return nil, hutch.Errorf(hutch.Exhausted, "the conversation has more than %d bytes of files, where holes in files count, too: nothing of this run was kept. Delete some under /data", int64(maxBytes)).With("limit", "disk")
	}
	return l, err
}

func (l *listing) each(yield func(string, hutch.FileInfo) bool) {
	for _, f := range l.order {
		if !yield(strings.TrimPrefix(f.Path, inside+"/"), f) {
			return
		}
	}
}

// prune removes the files from the host that the sandbox no longer has.
func (l *listing) prune(root *os.Root) error {
	return walk(root, ".", func(name string, _ fs.DirEntry) error {
		if l.has[name] {
			return nil
		}
		return cmp.Or(root.RemoveAll(name), fs.SkipDir)
	})
}

// keeping copies from a sandbox into a folder.
type keeping struct {
	s    *Server
	ctx  context.Context
	box  string
	root *os.Root
	room int64 // bytes that can still be written
}

// one copies one file, and reports whether it is a regular file that differed.
func (k *keeping) one(name string, f hutch.FileInfo) (bool, error) {
	old, err := k.root.Lstat(name)
	if err != nil {
		old = nil
	}
	switch f.Type {
	case hutch.Directory:
		if old != nil && old.IsDir() {
			return false, nil
		}
		return false, errors.Join(k.root.RemoveAll(name), k.root.Mkdir(name, 0o700))
	case hutch.Symlink:
		if to, err := k.root.Readlink(name); err == nil && to == f.Target {
			return false, nil
		}
		return false, errors.Join(k.root.RemoveAll(name), k.root.Symlink(f.Target, name))
	}
	if old != nil && same(old, f) {
		return false, nil
	}
	if old != nil && !old.Mode().IsRegular() {
		if err := k.root.RemoveAll(name); err != nil {
			return false, err
		}
	}
	return k.file(name, f)
}

// same reports whether a file on the host equals the one inside. Times can differ by less than a microsecond, the
// precision of unpacked files.
func same(old fs.FileInfo, f hutch.FileInfo) bool {
	return old.Mode().IsRegular() && old.Size() == f.Size && old.Mode().Perm() == mode(f) &&
		old.ModTime().Sub(f.Modified).Abs() < time.Microsecond
}

// mode returns a file's permissions on the host, where the server can always read and replace it.
func mode(f hutch.FileInfo) fs.FileMode {
	return fs.FileMode(f.Mode&0o777 | 0o600)
}

// file copies a file to a temporary name and renames it. It skips a file that vanished, or that its user cannot read.
// If a file has grown since it was listed, only the listed size is copied, because the owner was charged for that size.
func (k *keeping) file(name string, f hutch.FileInfo) (bool, error) {
	tmp := hutch.NewID(scratch)
	w, err := k.root.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return false, err
	}
	defer k.root.Remove(tmp) // after the rename there is nothing there
	defer w.Close()
	if f.Size > 0 {
		_, err = k.s.svc.ReadFile(k.ctx, k.box, hutch.ReadRequest{Path: f.Path, Length: f.Size}, &bounded{w, &k.room})
	}
	switch {
	case errors.Is(err, hutch.NotFound), errors.Is(err, hutch.Denied), errors.Is(err, hutch.Invalid), errors.Is(err, hutch.Conflict):
		k.s.log.Debug("a file of a conversation is not kept", "sandbox", k.box, "err", err)
		return false, nil
	case err != nil:
		return false, err
	}
	err = errors.Join(w.Chmod(mode(f)), w.Close(), k.root.Chtimes(tmp, f.Modified, f.Modified), k.root.Rename(tmp, name))
	return true, err
}

// bounded is a writer for a limited number of bytes.
type bounded struct {
	w    io.Writer
	room *int64
}

func (b *bounded) Write(p []byte) (int, error) {
	if *b.room -= int64(len(p)); *b.room < 0 {
		return 0, hutch.Errorf(hutch.Exhausted, "the files of the conversation have more than %d bytes: delete some under /data", int64(maxBytes)).With("limit", "disk")
	}
	return b.w.Write(p)
}
