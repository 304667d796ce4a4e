package hutch

import (
	"cmp"
	"context"
	"io"
	"io/fs"
	"path/filepath"
	"time"
)

// Files are the verbs on a sandbox's files. A path is absolute, or relative to
// the working folder, /workspace. It is bytes, as for the kernel: names need not
// be UTF-8. Everything happens as the user inside, with that user's rights;
// links are followed as any program would, and lead nowhere but inside. No verb
// waits for a command that runs, or for a pipe or device to answer.
//
// Errors: NotFound for what does not exist, Denied for want of rights,
// Conflict when something is in the way (or is a folder, or is not), Exhausted
// when the disk is full, Invalid for a path that cannot be one.
type Files interface {
	// ReadFile copies a file, or a range of it, to w. It returns what the
	// file was when it was opened, up to the size of which it is read; one
	// that became shorter meanwhile is Conflict. What is no regular file is
	// Invalid.
	ReadFile(ctx context.Context, sandbox string, req ReadRequest, w io.Writer) (FileInfo, error)

	// WriteFile makes a file of all that r gives. The file is replaced as a
	// whole at the end or, on any error, not at all, and keeps its
	// permissions; through a link, what the link leads to is. Appending goes
	// straight into it.
	WriteFile(ctx context.Context, sandbox string, req WriteRequest, r io.Reader) (FileInfo, error)

	// EditFile replaces text in a file, as a whole or not at all. The old
	// text must be there exactly once, or with All at least once; else it is
	// Conflict, and says how often it is there.
	EditFile(ctx context.Context, sandbox string, req EditRequest) (Edit, error)

	// Stat describes what path names, without following a last link.
	Stat(ctx context.Context, sandbox, path string) (FileInfo, error)

	// ListFiles hands what is below a folder to out: each folder's names
	// sorted, what is in a folder after it. Links below it are not followed,
	// and folders below it that may not be read are taken as empty.
	ListFiles(ctx context.Context, sandbox string, req ListRequest, out func(FileInfo) error) error

	// SearchFiles hands the lines that match to out, in the order of
	// ListFiles. Files that have a zero byte early on are binary, and skipped,
	// as are those that may not be read.
	SearchFiles(ctx context.Context, sandbox string, req SearchRequest, out func(Match) error) error

	// Mkdir makes a folder, with parents those above it too; with parents,
	// one that is there already is no error.
	Mkdir(ctx context.Context, sandbox, path string, parents bool) error

	// Move renames a file or folder, also between file systems. With replace,
	// what is at the target goes.
	Move(ctx context.Context, sandbox, from, to string, replace bool) error

	// Copy copies a file, or a folder with all that is in it, but for pipes,
	// sockets and devices. Links are copied as links. The copy is there as a
	// whole or not at all.
	Copy(ctx context.Context, sandbox, from, to string, replace bool) error

	// Delete removes a file or, with recursive, a folder with all that is in
	// it. What is not there is NotFound.
	Delete(ctx context.Context, sandbox, path string, recursive bool) error

	// Chmod changes permissions, of which there are those in 0777.
	Chmod(ctx context.Context, sandbox, path string, mode fs.FileMode) error

	// Watch hands changes below a path to out, in order, until ctx is done or
	// out fails, or the path's folder is gone, which is no error. It calls
	// out first with an event of type WatchReady: nothing that happens after
	// that is missed, or there is an Overflow.
	Watch(ctx context.Context, sandbox string, req WatchRequest, out func(FileEvent) error) error

	// Pack writes an archive of paths to w, without pipes, sockets and
	// devices. Links stay links.
	Pack(ctx context.Context, sandbox string, req PackRequest, w io.Writer) error

	// Unpack puts what is in an archive below a folder, over what is there.
	// Entries that would land elsewhere are refused as Denied, with what was
	// unpacked before them left.
	Unpack(ctx context.Context, sandbox string, req UnpackRequest, r io.Reader) error
}

// FileType is what a path names.
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
	Mode     string    `json:"mode"` // octal permissions: "0644"
	Modified time.Time `json:"modified"`
	Target   string    `json:"target,omitempty"` // of a symlink
}

// ReadRequest asks for a file or a part of it.
type ReadRequest struct {
	Path   string
	Offset int64 // bytes to skip; negative counts from the end
	Length int64 // bytes to read at most; 0 is all
	// FirstLine and LastLine choose lines, counted from 1, in place of
	// Offset. LastLine 0 is the file's last.
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

// Lines reports whether lines are asked for.
func (r ReadRequest) Lines() bool { return r.FirstLine > 0 || r.LastLine > 0 }

// Range is which bytes of a file of that size are asked for, where no lines
// are.
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
	Mode    fs.FileMode // default 0644, or what the file has
	Append  bool
	Create  bool // fail with Conflict when it exists
	Parents bool // make the folders above
}

// Check refuses a request that no server can answer.
func (r WriteRequest) Check() error {
	if err := cmp.Or(CheckPath(r.Path), CheckMode(r.Mode)); err != nil {
		return err
	}
	if r.Append && r.Create {
		return Errorf(Invalid, "append to a file, or create it: not both")
	}
	return nil
}

// CheckMode refuses what is more than permissions.
func CheckMode(mode fs.FileMode) error {
	if mode&^fs.ModePerm != 0 {
		return Errorf(Invalid, "mode is %v: use permissions alone, 0 to 0777", mode).Naming(AboutField, "mode")
	}
	return nil
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

// Edit says what an edit did.
type Edit struct {
	File         FileInfo `json:"file"`
	Replacements int      `json:"replacements"`
	Line         int      `json:"line"` // of the first one, from 1
}

// ListRequest asks what is in a folder.
type ListRequest struct {
	Path      string
	Recursive bool
	Depth     int  // with Recursive, how deep; 0 is no limit
	Hidden    bool // names that begin with a dot, too
	// Glob chooses by a pattern with * ? [a-z] {a,b} and ** for any folders,
	// relative to Path, in which it looks as Recursive does. One without a
	// slash is for names, however deep. "" is all.
	Glob  string
	Limit int // entries; default 10,000. More is Exhausted, after that many, and so is what takes longer than 30 s.
}

// Check refuses a request that no server can answer. What is wrong with a glob
// is found when it is used.
func (r ListRequest) Check() error {
	if r.Limit < 0 || r.Depth < 0 {
		return Errorf(Invalid, "limit is %d and depth %d: 0 is the default, and less is nothing", r.Limit, r.Depth)
	}
	return CheckPath(r.Path)
}

// SearchRequest asks for lines.
type SearchRequest struct {
	Path    string
	Pattern string // a regular expression (RE2)
	Glob    string // files to look into, as in ListRequest; "" is all
	Hidden  bool
	Limit   int // matches; default 1,000. More is Exhausted, after that many, and so is what takes longer than 30 s.
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

// Match is a line that matched.
type Match struct {
	Path   string `json:"path"`
	Line   int    `json:"line"`   // from 1
	Column int    `json:"column"` // bytes, from 1
	Text   string `json:"text"`   // the line, at most 1 KiB of it, made UTF-8
}

// WatchRequest asks for changes to a file, or in a folder.
type WatchRequest struct {
	Path      string
	Recursive bool // in the folders below it, too
}

// Check refuses a request that no server can answer.
func (r WatchRequest) Check() error { return CheckPath(r.Path) }

// EventType is what happened to a file.
type EventType string

const (
	WatchReady   EventType = "ready"
	FileCreated  EventType = "create"
	FileModified EventType = "modify" // its content
	FileDeleted  EventType = "delete"
	FileMoved    EventType = "move" // From is where it was
	// Overflow says that changes were too many to be told one by one: look
	// anew.
	Overflow EventType = "overflow"
	// WatchEnded says that the watched folder itself is gone. It is the last.
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

// Check refuses a format that there is not. The empty one is [Tar].
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
	Paths  []string // relative to Dir; none is all that is in it
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
	Dir    string // made when it is missing
	Format ArchiveFormat
}

// Check refuses a request that no server can answer.
func (r UnpackRequest) Check() error { return cmp.Or(CheckPath(r.Dir), r.Format.Check()) }
