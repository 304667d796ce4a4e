package hutch

import (
	"cmp"
	"context"
	"io"
	"path/filepath"
	"time"
)

// Files are the verbs on a sandbox's files. A path is absolute, or relative to
// the working folder, /workspace. It is a string of bytes, as in the kernel:
// names need not be UTF-8. Everything happens with the rights of the user inside
// the sandbox. Links are followed as for any program there, and never lead
// outside. No verb waits for a running command, or for a pipe or device.
//
// Errors: NotFound when a path does not exist, Denied when rights are missing,
// Conflict when something is in the way or is of the wrong type, Exhausted when
// the disk is full, Invalid for a malformed path.
type Files interface {
	// ReadFile copies a file, or a range of it, to w. It returns the file's record from the moment of opening, and
	// reads up to the size in that record. If the file has become shorter since then, the error is Conflict. A path
	// that is not a regular file is Invalid.
	ReadFile(ctx context.Context, sandbox string, req ReadRequest, w io.Writer) (FileInfo, error)

	// WriteFile creates a file with everything that r returns. The file is replaced completely at the end or, on any
	// error, not at all, and keeps its permissions. A link is followed: its target is replaced. Appending writes
	// directly to the file.
	WriteFile(ctx context.Context, sandbox string, req WriteRequest, r io.Reader) (FileInfo, error)

	// EditFile replaces text in a file, completely or not at all. The old text must be in the file exactly once, or
	// with All at least once; otherwise the error is Conflict and says how often it occurs.
	EditFile(ctx context.Context, sandbox string, req EditRequest) (Edit, error)

	// Stat describes the path itself; it does not follow a link at the end of the path.
	Stat(ctx context.Context, sandbox, path string) (FileInfo, error)

	// ListFiles passes the content of a folder to out: the names of each folder in order, and the content of a folder
	// after the folder. It does not follow links, and treats folders that it cannot read as empty.
	ListFiles(ctx context.Context, sandbox string, req ListRequest, out func(FileInfo) error) error

	// SearchFiles passes matching lines to out, in the order of ListFiles. It skips files that it cannot read, and
	// binary files: those with a zero byte near their beginning.
	SearchFiles(ctx context.Context, sandbox string, req SearchRequest, out func(Match) error) error

	// Mkdir creates a folder. With parents it also creates the folders above, and an existing folder is not an error.
	Mkdir(ctx context.Context, sandbox, path string, parents bool) error

	// Move renames a file or folder, also between file systems. With replace, it removes an existing target.
	Move(ctx context.Context, sandbox, from, to string, replace bool) error

	// Copy copies a file, or a folder with everything in it except pipes, sockets and devices. Links are copied as
	// links. The copy appears completely or not at all.
	Copy(ctx context.Context, sandbox, from, to string, replace bool) error

	// Delete removes a file or, with recursive, a folder with everything in it. A path that does not exist is
	// NotFound.
	Delete(ctx context.Context, sandbox, path string, recursive bool) error

	// Chmod changes the permission bits, those in 0777.
	Chmod(ctx context.Context, sandbox, path string, mode FileMode) error

	// Watch passes changes below a path to out, in order, until ctx is done, out fails, or the path's folder is
	// removed, which is not an error. The first event is of type WatchReady: every change after it is reported, or
	// there is an Overflow.
	Watch(ctx context.Context, sandbox string, req WatchRequest, out func(FileEvent) error) error

	// Pack writes an archive of paths to w, without pipes, sockets and devices. Links are packed as links.
	Pack(ctx context.Context, sandbox string, req PackRequest, w io.Writer) error

	// Unpack unpacks an archive into a folder, over existing files. An entry outside of the folder is Denied; entries
	// before it stay unpacked.
	Unpack(ctx context.Context, sandbox string, req UnpackRequest, r io.Reader) error
}

// FileType is the type of a file.
type FileType string

const (
	RegularFile FileType = "file"
	Directory   FileType = "directory"
	Symlink     FileType = "symlink"
	OtherFile   FileType = "other" // a pipe, a socket, a device
)

// FileInfo describes a file.
type FileInfo struct {
	Path     string    `json:"path"` // absolute, without . and ..
	Name     string    `json:"name"`
	Type     FileType  `json:"type"`
	Size     int64     `json:"size"`
	Mode     FileMode  `json:"mode"` // "0644"
	UID      int       `json:"uid"`  // id of the owner, inside the sandbox
	GID      int       `json:"gid"`  // id of the group
	Modified time.Time `json:"modified"`
	Target   string    `json:"target,omitempty"` // target of a symlink
	// Attributes are extended attributes of a file or folder, by their names without "user.". Stat and WriteFile return
	// them, and ListFiles on request. Attributes that are not text, or exceed the limits of CheckAttributes, are left
	// out.
	Attributes map[string]string `json:"attributes,omitempty"`
}

// ReadRequest asks for a file or a part of it.
type ReadRequest struct {
	Path   string
	Offset int64 // bytes to skip; negative counts from the end
	Length int64 // bytes to read at most; 0 is all
	// FirstLine and LastLine select lines, counted from 1, instead of Offset. LastLine 0 is the last line of the file.
	FirstLine, LastLine int
	// Opened, if not nil, is called once before anything is written to w.
	Opened func(FileInfo)
}

// Check refuses a request that no server can answer.
func (r ReadRequest) Check() error {
	if err := CheckPath(r.Path); err != nil {
		return err
	}
	switch {
	case r.Length < 0:
		return Errorf(Invalid, "length is %d: it counts bytes, and 0 is all", r.Length)
	case r.FirstLine < 0 || r.LastLine < 0 || r.LastLine > 0 && r.LastLine < r.FirstLine:
		return Errorf(Invalid, "lines %d to %d: they count from 1, the last not before the first", r.FirstLine, r.LastLine)
	case r.Lines() && r.Offset != 0:
		return Errorf(Invalid, "give an offset or lines, not both")
	}
	return nil
}

// Lines reports whether the request asks for lines.
func (r ReadRequest) Lines() bool { return r.FirstLine > 0 || r.LastLine > 0 }

// Range returns the requested bytes of a file of that size, when the request does not ask for lines.
func (r ReadRequest) Range(size int64) (from, to int64) {
	from = min(r.Offset, size)
	if r.Offset < 0 {
		from = max(size+r.Offset, 0)
	}
	if r.Length > 0 && r.Length < size-from {
		return from, from + r.Length
	}
	return from, size
}

// WriteRequest asks for a file to be written.
type WriteRequest struct {
	Path    string
	Mode    FileMode // default 0644, or the file's present mode
	Append  bool
	Create  bool // fail with Conflict if the file exists
	Parents bool // make the folders above
	// Attributes replace all attributes of the file. They cannot be combined with Append.
	Attributes map[string]string
}

// Check refuses a request that no server can answer.
func (r WriteRequest) Check() error {
	if err := cmp.Or(CheckPath(r.Path), r.Mode.Check()); err != nil {
		return err
	}
	if r.Append && r.Create {
		return Errorf(Invalid, "append to a file, or create it: not both")
	}
	if r.Append && len(r.Attributes) > 0 {
		return Errorf(Invalid, "a file that is appended to keeps its attributes: leave them out").Naming(AboutField, "attributes")
	}
	return CheckAttributes(r.Attributes)
}

// EditRequest asks for text to be replaced.
type EditRequest struct {
	Path string `json:"path"`
	Old  string `json:"oldText"`
	New  string `json:"newText"`
	All  bool   `json:"replaceAll,omitempty"`
}

// Check refuses a request that no server can answer.
func (r EditRequest) Check() error {
	switch {
	case r.Old == "":
		return Errorf(Invalid, "oldText is empty: give the text to be replaced, or write the whole file").Naming(AboutField, "oldText")
	case r.Old == r.New:
		return Errorf(Invalid, "oldText and newText are the same: there is nothing to do").Naming(AboutField, "newText")
	}
	return CheckPath(r.Path)
}

// Edit is the result of an edit.
type Edit struct {
	File         FileInfo `json:"file"`
	Replacements int      `json:"replacements"`
	Line         int      `json:"line"` // line of the first replacement, from 1
}

// ListRequest asks for the content of a folder.
type ListRequest struct {
	Path      string
	Recursive bool
	Depth     int  // with Recursive, the depth; 0 means no limit
	Hidden    bool // also names that begin with a dot
	// Glob selects by a pattern with * ? [a-z] {a,b} and ** for any folders, relative to Path; it searches subfolders
	// as Recursive does. A pattern without a slash matches names at any depth. "" selects all.
	Glob  string
	Limit int // most entries; default 10,000. A longer list ends with Exhausted, and so does one that takes longer than 30 s.
	// Attributes asks for the attributes of each entry, which takes longer.
	Attributes bool
}

// Check refuses a request that no server can answer. An invalid glob is found when it is used.
func (r ListRequest) Check() error {
	if r.Limit < 0 || r.Depth < 0 {
		return Errorf(Invalid, "limit is %d and depth %d: 0 is the default, and less is nothing", r.Limit, r.Depth)
	}
	return CheckPath(r.Path)
}

// Most returns how many entries the list can have: Limit, or the default.
func (r ListRequest) Most() int { return cmp.Or(r.Limit, 10_000) }

// SearchRequest asks for lines.
type SearchRequest struct {
	Path    string
	Pattern string // a regular expression (RE2)
	Glob    string // files to search, as in ListRequest; "" is all
	Hidden  bool
	Limit   int // most matches; default 1,000. A longer list ends with Exhausted, and so does one that takes longer than 30 s.
}

const maxSearchPattern = 4 << 10 // bytes

// Check refuses a request that no server can answer. Whether the pattern is a
// regular expression is found when it is compiled.
func (r SearchRequest) Check() error {
	if r.Pattern == "" || len(r.Pattern) > maxSearchPattern {
		return Errorf(Invalid, "the pattern has %d bytes: give 1 to %d of a regular expression", len(r.Pattern), maxSearchPattern).Naming(AboutField, "pattern")
	}
	return CheckPath(r.Path)
}

// Most returns how many matches the list can have: Limit, or the default.
func (r SearchRequest) Most() int {
	if r.Limit > 0 {
		return r.Limit
	}
	return 1000
}

// Match is a line that matched.
type Match struct {
	Path   string `json:"path"`
	Line   int    `json:"line"`   // from 1
	Column int    `json:"column"` // bytes, from 1
	Text   string `json:"text"`   // the line as UTF-8, at most its first 1 KiB
}

// WatchRequest asks for changes to a file, or in a folder.
type WatchRequest struct {
	Path      string
	Recursive bool // also in subfolders
}

// Check refuses a request that no server can answer.
func (r WatchRequest) Check() error { return CheckPath(r.Path) }

// EventType says how a file changed.
type EventType string

const (
	WatchReady   EventType = "ready"
	FileCreated  EventType = "create"
	FileModified EventType = "modify" // its content changed
	FileDeleted  EventType = "delete"
	FileMoved    EventType = "move" // From is the old path
	// Overflow says that there were too many changes to report them one by one: list the folder again.
	Overflow EventType = "overflow"
	// WatchEnded says that the watched folder itself was removed. It is the last event.
	WatchEnded EventType = "ended"
)

// FileEvent is one change.
type FileEvent struct {
	Type EventType `json:"type"`
	Path string    `json:"path,omitempty"`
	From string    `json:"from,omitempty"`
	Dir  bool      `json:"directory,omitempty"`
}

// ArchiveFormat is a format of archives.
type ArchiveFormat string

const (
	Tar   ArchiveFormat = "tar"
	TarGz ArchiveFormat = "tar.gz"
	Zip   ArchiveFormat = "zip"
)

// Check refuses an unknown format. The empty format is [Tar].
func (f ArchiveFormat) Check() error {
	switch f {
	case "", Tar, TarGz, Zip:
		return nil
	}
	return Errorf(Invalid, "there is no archive format %.40q: use tar, tar.gz or zip", f).Naming(AboutField, "format")
}

// PackRequest asks for an archive.
type PackRequest struct {
	Dir    string   // entries are relative to it
	Paths  []string // relative to Dir; empty means everything in it
	Format ArchiveFormat
}

// Check refuses a request that no server can answer.
func (r PackRequest) Check() error {
	if err := CheckPath(r.Dir); err != nil {
		return err
	}
	for _, name := range r.Paths {
		if !filepath.IsLocal(name) || len(name) > MaxPath {
			return Errorf(Invalid, "%.200q cannot be packed: give paths relative to the folder, and below it", name)
		}
	}
	return r.Format.Check()
}

// UnpackRequest asks for an archive to be unpacked.
type UnpackRequest struct {
	Dir    string // created if it is missing
	Format ArchiveFormat
}

// Check refuses a request that no server can answer.
func (r UnpackRequest) Check() error { return cmp.Or(CheckPath(r.Dir), r.Format.Check()) }
