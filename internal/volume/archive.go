package volume

import (
	"archive/tar"
	"errors"
	"io"
	"io/fs"
	"path"
	"strings"
	"time"

	"hutch"
)

const (
	mostEntries = 300_000
	mostNames   = 64 << 20 // bytes of all paths, which are in memory while an archive is written
	largeNames  = 4 << 20  // if the paths of an archive have more bytes, it waits for other archives of its owner
	mostAfter   = 1 << 20  // bytes after the end of an archive
	entryMemory = 64       // bytes of memory for an entry, without its path
)

// errNoRoom refuses data that would exceed the server's memory budget.
var errNoRoom = hutch.Errorf(hutch.Exhausted, "the requests of this token that are under way take as much memory as it can have: wait until other copies of volumes have ended").
	With("limit", "memory of requests").With("retryAfter", 1)

// writer writes an archive that every sandbox can unpack: every path stays below the folder, every folder comes before
// its content, no entry occurs twice or is below anything but a folder, and there are only files, folders and symbolic
// links, without owners and without setuid bits.
type writer struct {
	tar    *tar.Writer
	volume string
	quota  int64
	most   int // entries
	size   int64
	names  int
	folder map[string]bool // by path: whether it is a folder
	room   func(int) bool  // reserves memory for a number of bytes, and reports whether that was possible; nil reserves none
	large  func() error    // is called before each entry of an archive with many names; nil allows all
}

func newWriter(out io.Writer, volume string, quota int64, most int) *writer {
	w := &writer{volume: volume, quota: quota, most: most, folder: map[string]bool{}}
	w.tar = tar.NewWriter(metered{w, out})
	return w
}

// metered refuses bytes over the quota.
type metered struct {
	w   *writer
	out io.Writer
}

func (m metered) Write(b []byte) (int, error) {
	if m.w.size += int64(len(b)); m.w.size > m.w.quota {
		return 0, m.w.full()
	}
	return m.out.Write(b)
}

func (w *writer) full() error {
	return hutch.Errorf(hutch.Exhausted, "the files are more than the %d MiB that the volume %q can hold, in which each entry counts at least 512 bytes more: remove files, or use a volume with a larger quota", w.quota>>20, w.volume).
		With("limit", "volume")
}

// addAll adds the entries of an archive whose sender is not trusted, below a folder.
func (w *writer) addAll(in io.Reader, below string) error {
	r := tar.NewReader(in)
	for {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return drain(in)
		}
		if err != nil {
			return malformed(err)
		}
		if h.Typeflag == tar.TypeXGlobalHeader {
			continue
		}
		if err := w.add(h, below, r); err != nil {
			return err
		}
	}
}

// drain reads data after the end of an archive: a sender must be able to finish.
func drain(in io.Reader) error {
	n, err := io.Copy(io.Discard, io.LimitReader(in, mostAfter+1))
	if err == nil && n > mostAfter {
		err = hutch.Errorf(hutch.Invalid, "the archive has more than %d bytes after its end", mostAfter)
	}
	return malformed(err)
}

// malformed returns the error for an invalid archive, or the error of its reader.
func malformed(err error) error {
	if _, ok := errors.AsType[*hutch.Error](err); ok || err == nil {
		return err
	}
	return hutch.Errorf(hutch.Invalid, "the tar archive cannot be read to its end: send a whole one, without compression").Because(err)
}

// add adds an entry below a folder.
func (w *writer) add(h *tar.Header, below string, body io.Reader) error {
	if !local(h.Name) {
		return hutch.Errorf(hutch.Denied, "the archive's entry %.200q would land outside the volume: use relative paths without ..", h.Name)
	}
	name := path.Join(below, h.Name)
	if name == "." {
		return nil
	}
	if err := w.addFolders(path.Dir(name), h.ModTime); err != nil {
		return err
	}
	switch h.Typeflag {
	case tar.TypeDir:
		return w.addFolder(name, h.FileInfo().Mode(), h.ModTime)
	case tar.TypeSymlink:
		if h.Linkname == "" || len(h.Linkname) > hutch.MaxPath || strings.Contains(h.Linkname, "\x00") {
			return hutch.Errorf(hutch.Denied, "the archive's link %.200q leads to no path", h.Name)
		}
		return w.put(&tar.Header{Typeflag: tar.TypeSymlink, Name: name, Linkname: h.Linkname, Mode: 0o777, ModTime: h.ModTime}, nil)
	case tar.TypeReg, tar.TypeGNUSparse:
		return w.put(&tar.Header{Typeflag: tar.TypeReg, Name: name, Size: h.Size, Mode: permissions(h.FileInfo().Mode()), ModTime: h.ModTime}, body)
	case tar.TypeLink:
		return hutch.Errorf(hutch.Denied, "the archive's entry %.200q is a hard link: make the archive with tar --hard-dereference", h.Name)
	}
	return hutch.Errorf(hutch.Denied, "the archive's entry %.200q is a pipe or a device, which a volume cannot hold", h.Name)
}

// local reports whether a name stays below its start.
func local(name string) bool {
	if name == "" || name[0] == '/' || len(name) > hutch.MaxPath || strings.Contains(name, "\x00") {
		return false
	}
	for part := range strings.SplitSeq(name, "/") {
		if part == ".." || len(part) > 255 {
			return false
		}
	}
	return true
}

func permissions(m fs.FileMode) int64 { return int64(m.Perm()) }

// addFolders adds a folder and its parents, if they are missing.
func (w *writer) addFolders(name string, when time.Time) error {
	if folder, ok := w.folder[name]; name == "." || ok && folder {
		return nil
	}
	if err := w.addFolders(path.Dir(name), when); err != nil {
		return err
	}
	return w.addFolder(name, 0o755, when)
}

func (w *writer) addFolder(name string, mode fs.FileMode, when time.Time) error {
	if w.folder[name] {
		return nil
	}
	return w.put(&tar.Header{Typeflag: tar.TypeDir, Name: name, Mode: permissions(mode), ModTime: when}, nil)
}

// put writes an entry whose name is clean.
func (w *writer) put(h *tar.Header, body io.Reader) error {
	if _, taken := w.folder[h.Name]; taken {
		return hutch.Errorf(hutch.Conflict, "%.200q would be in the volume %q twice, or be a folder and a file: remove one of them", h.Name, w.volume)
	}
	w.names += len(h.Name)
	if len(w.folder) >= w.most || w.names > mostNames {
		return hutch.Errorf(hutch.Exhausted, "the volume %q would have more than %d entries, or more than %d MiB of paths: pack small files into archives", w.volume, w.most, mostNames>>20).With("limit", "volume")
	}
	if w.room != nil && !w.room(len(h.Name)+entryMemory) {
		return errNoRoom
	}
	if w.large != nil && w.names+len(w.folder)*entryMemory > largeNames {
		if err := w.large(); err != nil {
			return err
		}
	}
	if h.Size > w.quota-w.size {
		return w.full()
	}
	w.folder[h.Name] = h.Typeflag == tar.TypeDir
	if h.Typeflag == tar.TypeDir {
		h.Name += "/"
	}
	h.ModTime, h.Format = h.ModTime.Truncate(time.Second), tar.FormatPAX
	if err := w.tar.WriteHeader(h); err != nil {
		return refused(err, h.Name)
	}
	if h.Size == 0 {
		return nil
	}
	n, err := io.Copy(w.tar, body)
	if err == nil && n < h.Size {
		err = io.ErrUnexpectedEOF
	}
	return malformed(err)
}

// refused returns the error for an entry that no archive can hold, such as one with a time before the year 1.
func refused(err error, name string) error {
	if errors.Is(err, tar.ErrHeader) {
		return hutch.Errorf(hutch.Invalid, "the archive's entry %.200q has a name or a time that cannot be kept", name).Because(err)
	}
	return err
}

// selectEntries writes the entries of a volume's archive at and below a path. Their names begin with the last part of
// the path.
func selectEntries(in io.Reader, at string, out io.Writer) (found bool, err error) {
	r, w := tar.NewReader(in), tar.NewWriter(out)
	above := path.Dir(at) + "/"
	if path.Dir(at) == "." {
		above = ""
	}
	for {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return found, err
		}
		name := strings.TrimSuffix(h.Name, "/")
		if at != "." && name != at && !strings.HasPrefix(name, at+"/") {
			continue
		}
		found = true
		h.Name = strings.TrimPrefix(h.Name, above)
		if err := w.WriteHeader(h); err != nil {
			return found, err
		}
		if _, err := io.Copy(w, r); err != nil {
			return found, err
		}
	}
	if !found && at != "." {
		return false, nil
	}
	return true, w.Close()
}
