// Package tarball packs and unpacks the files that the user of a sandbox has written over its image. It runs inside, as
// the user, instead of a tar program, which an image need not have.
//
// As root it packs the files of all users with their owners.
//
// The root is an overlay: written files are on another device than the image's, so a walk over all names finds them
// anywhere. A file of the image that was changed but not replaced can still be on the image's device, because
// overlayfs keeps its inode number. Such a file is found by its ctime, the time of the change, which no program can
// set. For folders, the device does not show whether they were written, so all folders of the user are packed. Files
// of the image that the user has deleted are not recorded.
//
// The archive follows GNU tar in its content and in what it tolerates: a file that vanishes or shrinks meanwhile is not
// an error, nor is a mode or time of a folder that belongs to another user.
//
// Package files writes tar, too, but its writer differs in each decision. It is for a caller who requested the files:
// it refuses a file that changed while it was read, leaves out the agent's temporary files, writes no owner or setuid
// bit, and can write zip. The writer here keeps a state that is restored later: it must not fail because a program is
// still running, and it keeps second names, named pipes and setuid bits. The two could share only the code for one
// header.
package tarball

import (
	"archive/tar"
	"bufio"
	"bytes"
	"errors"
	"hash/fnv"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Pack writes the user's files below root, which is "/" except in tests. Sockets and devices are left out.
//
// folders are the user's folders. They can be mounts, also below each other; other mounts are left out.
func Pack(out io.Writer, root string, folders ...string) error {
	return pack(out, root, folders, []string{root})
}

// PackFolders does the same as Pack, for the files below the user's folders only.
func PackFolders(out io.Writer, root string, folders ...string) error {
	var from []string
	for _, dir := range folders {
		from = append(from, filepath.Join(root, dir))
	}
	return pack(out, root, folders, from)
}

// pack packs the files below the paths in from.
func pack(out io.Writer, root string, folders, from []string) error {
	w := bufio.NewWriterSize(out, bufferSize)
	p := &packer{tar: tar.NewWriter(w), root: root, user: os.Getuid(), first: map[file]string{}, buffer: make([]byte, bufferSize)}
	var st unix.Stat_t
	if err := unix.Lstat(root, &st); err != nil {
		return err
	}
	p.folders, p.files = st.Dev, newFileDevice(filepath.Join(root, "tmp"))
	for _, dir := range folders {
		dir = filepath.Join(root, dir)
		if unix.Lstat(dir, &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFDIR && st.Dev != p.folders {
			p.mounts = append(p.mounts, st.Dev)
			p.mounted = append(p.mounted, dir)
		}
	}
	if unix.Lstat(filepath.Join(root, ours), &st) == nil {
		p.began = time.Unix(st.Ctim.Unix())
	}
	for _, path := range from {
		if err := filepath.WalkDir(path, p.add); err != nil {
			return err
		}
	}
	return errors.Join(p.tar.Close(), w.Flush())
}

// bufferSize is how much is read and written at once. Each system call of a sandbox takes long, and tar.Writer makes
// three of them for the smallest file.
const bufferSize = 256 << 10

// newFileDevice returns the device of newly written files; 0 if none can be written.
func newFileDevice(dir string) uint64 {
	f, err := os.CreateTemp(dir, ".hutch-*")
	if err != nil {
		return 0
	}
	defer os.Remove(f.Name())
	defer f.Close()
	var st unix.Stat_t
	if unix.Fstat(int(f.Fd()), &st) != nil {
		return 0
	}
	return st.Dev
}

// file identifies a file.
type file struct{ device, inode uint64 }

type packer struct {
	tar            *tar.Writer
	root           string
	user           int
	folders, files uint64          // the devices of folders, and of newly written files
	began          time.Time       // when the sandbox began; zero if unknown
	first          map[file]string // the first names of files that have several names
	mounts         []uint64        // devices of the user's folders that are mounts
	mounted        []string        // their paths
	buffer         []byte          // buffer of the file that is read
}

// Untouched returns the modification time that an initial file of a sandbox at a path has until a program changes it.
// Each path has a different time, in whole seconds on the first day of 1970. So neither a copy of such a file, nor a
// file whose time was set to zero, as reproducible builds do, is mistaken for an initial file.
func Untouched(path string) time.Time {
	sum := fnv.New32a()
	sum.Write([]byte("/" + strings.Trim(path, "/")))
	return time.Unix(1+int64(sum.Sum32()%(24*60*60-1)), 0)
}

// ours is a folder that each sandbox has from its beginning, and that no program can change.
const ours = "/.hutch"

// Every sandbox has its own files at others, and its own content in the folders at separate.
var (
	others   = []string{"/etc/hosts", "/etc/hostname", "/etc/resolv.conf"}
	separate = []string{"/dev", "/proc", "/sys", ours}
)

// written reports whether the user has written an entry.
func (p *packer) written(path string, st *syscall.Stat_t) bool {
	if slices.Contains(others, path) || p.user != 0 && int(st.Uid) != p.user {
		return false
	}
	if (st.Mode&unix.S_IFMT == unix.S_IFREG || p.user == 0 && st.Uid == 0) && st.Mtim.Nano() == Untouched(path[len(p.root):]).UnixNano() {
		return false
	}
	return st.Mode&unix.S_IFMT == unix.S_IFDIR || p.files == 0 || st.Dev == p.files || slices.Contains(p.mounts, st.Dev) || p.changed(st)
}

// changed reports whether a file was changed since the sandbox began.
func (p *packer) changed(st *syscall.Stat_t) bool {
	return !p.began.IsZero() && !time.Unix(st.Ctim.Unix()).Before(p.began)
}

// add adds one entry. An entry that vanished or cannot be read is left out.
func (p *packer) add(path string, d fs.DirEntry, err error) error {
	if err != nil {
		return nil
	}
	info, err := d.Info()
	if err != nil {
		return nil
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if ok && info.IsDir() && (st.Dev != p.folders && !slices.Contains(p.mounts, st.Dev) || slices.Contains(separate, path)) {
		if p.above(path) {
			return nil
		}
		return filepath.SkipDir // another mount
	}
	if !ok || path == p.root || info.Mode()&(fs.ModeSocket|fs.ModeDevice) != 0 || !p.written(path, st) {
		return nil
	}
	link := ""
	if info.Mode()&fs.ModeSymlink != 0 {
		if link, err = os.Readlink(path); err != nil {
			return nil
		}
	}
	h, err := tar.FileInfoHeader(info, link)
	if err != nil {
		return nil
	}
	h.Name, h.Format = strings.TrimPrefix(path[len(p.root):], "/"), tar.FormatPAX
	h.Uname, h.Gname, h.AccessTime, h.ChangeTime = "", "", time.Time{}, time.Time{}
	if info.IsDir() {
		h.Name += "/"
	}
	if !info.Mode().IsRegular() {
		return p.tar.WriteHeader(h)
	}
	if name := p.linked(info, h.Name); name != "" {
		h.Typeflag, h.Linkname, h.Size = tar.TypeLink, name, 0
		return p.tar.WriteHeader(h)
	}
	return p.content(path, h)
}

// above reports whether one of the user's folders is below a path.
func (p *packer) above(path string) bool {
	return slices.ContainsFunc(p.mounted, func(dir string) bool { return strings.HasPrefix(dir, path+"/") })
}

// linked returns the earlier name of a file, if it has one.
func (p *packer) linked(info fs.FileInfo, name string) string {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok || st.Nlink < 2 {
		return ""
	}
	id := file{st.Dev, st.Ino}
	if earlier := p.first[id]; earlier != "" {
		return earlier
	}
	p.first[id] = name
	return ""
}

// content adds a regular file with its length when it is opened. If it shrinks, zeros fill the rest.
func (p *packer) content(path string, h *tar.Header) error {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return nil
	}
	h.Size = info.Size()
	if err := p.tar.WriteHeader(h); err != nil {
		return err
	}
	n, err := io.CopyBuffer(p.tar, io.LimitReader(f, h.Size), p.buffer)
	if errors.Is(err, tar.ErrWriteTooLong) {
		err = nil
	}
	if err == nil && n < h.Size {
		_, err = io.CopyN(p.tar, zeros{}, h.Size-n)
	}
	return err
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) {
	clear(b)
	return len(b), nil
}

// Unpack unpacks an archive of Pack below root, which is "/" except in tests. The archive was made in a sandbox: it can
// do nothing that programs inside could not do.
func Unpack(in io.Reader, root string) error {
	r := tar.NewReader(in)
	var folders []*tar.Header
	for {
		h, err := r.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			return err
		}
		if isSeparate(h.Name) {
			continue // earlier versions packed /sys
		}
		if h.Typeflag == tar.TypeDir {
			folders = append(folders, h)
		}
		if err := put(root, h, r); err != nil {
			return err
		}
	}
	for i := len(folders) - 1; i >= 0; i-- { // last: writing changes the time of a folder, and can require another mode
		path := filepath.Join(root, folders[i].Name)
		setOwner(path, folders[i])
		os.Chmod(path, folders[i].FileInfo().Mode())
		os.Chtimes(path, time.Time{}, folders[i].ModTime)
	}
	return nil
}

func isSeparate(name string) bool {
	top, _, _ := strings.Cut(filepath.Clean("/" + name)[1:], "/")
	return slices.Contains(separate, "/"+top)
}

// put makes one entry of the archive.
func put(root string, h *tar.Header, r io.Reader) error {
	path := filepath.Join(root, h.Name)
	if h.Typeflag == tar.TypeDir {
		err := os.MkdirAll(path, 0o700)
		if errors.Is(err, fs.ErrExist) {
			return nil
		}
		if err == nil {
			os.Chmod(path, h.FileInfo().Mode()|0o700) // the image's folder can be read only; the right mode follows
		}
		return err
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	switch h.Typeflag {
	case tar.TypeSymlink:
		if err := os.Symlink(h.Linkname, path); err != nil {
			return err
		}
		return setOwner(path, h)
	case tar.TypeLink:
		return os.Link(filepath.Join(root, h.Linkname), path)
	case tar.TypeFifo:
		if err := unix.Mkfifo(path, uint32(h.FileInfo().Mode().Perm())); err != nil {
			return err
		}
		return setOwner(path, h)
	case tar.TypeReg:
		return write(path, h, r)
	}
	return nil
}

// setOwner sets the owner of a file, if this is root. Others can only unpack their own files.
func setOwner(path string, h *tar.Header) error {
	if os.Getuid() != 0 {
		return nil
	}
	return os.Lchown(path, h.Uid, h.Gid)
}

func write(path string, h *tar.Header, r io.Reader) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := sparsely(f, r, h.Size); err != nil {
		return err
	}
	if err := setOwner(path, h); err != nil { // before its mode, which the kernel would change
		return err
	}
	if err := f.Chmod(h.FileInfo().Mode()); err != nil {
		return err
	}
	return os.Chtimes(path, time.Time{}, h.ModTime)
}

// sparsely copies a file and leaves holes for zeros: the original with holes used less of the disk limit.
func sparsely(f *os.File, r io.Reader, size int64) error {
	var block, none [64 << 10]byte
	for at := int64(0); at < size; {
		n, err := io.ReadFull(r, block[:min(size-at, int64(len(block)))])
		if err != nil {
			return err
		}
		if !bytes.Equal(block[:n], none[:n]) {
			if _, err := f.WriteAt(block[:n], at); err != nil {
				return err
			}
		}
		at += int64(n)
	}
	return f.Truncate(size)
}
