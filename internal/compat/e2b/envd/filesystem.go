package envd

import (
	"io/fs"
	"path"
	"strconv"
	"time"

	"hutch"
	"hutch/internal/caller"
)

func (h *Handler) routeFilesystem() {
	unary(h, "/filesystem.Filesystem/Stat", h.stat)
	unary(h, "/filesystem.Filesystem/MakeDir", h.makeDir)
	unary(h, "/filesystem.Filesystem/Move", h.move)
	unary(h, "/filesystem.Filesystem/ListDir", h.listDir)
	unary(h, "/filesystem.Filesystem/Remove", h.remove)
	serverStream(h, "/filesystem.Filesystem/WatchDir", h.watchDir)
	unary(h, "/filesystem.Filesystem/CreateWatcher", h.createWatcher)
	unary(h, "/filesystem.Filesystem/GetWatcherEvents", h.watcherEvents)
	unary(h, "/filesystem.Filesystem/RemoveWatcher", h.removeWatcher)
}

// entryInfo describes a file. For a link, the type and mode are the target's.
type entryInfo struct {
	Name          string    `json:"name"`
	Type          string    `json:"type"`
	Path          string    `json:"path"`
	Size          string    `json:"size"` // int64 is a string in this codec
	Mode          uint32    `json:"mode"`
	Permissions   string    `json:"permissions"`
	Owner         string    `json:"owner"`
	Group         string    `json:"group"`
	ModifiedTime  time.Time `json:"modifiedTime"`
	SymlinkTarget string    `json:"symlinkTarget,omitempty"`

	Metadata map[string]string `json:"metadata,omitempty"`
}

// size estimates the size of the description in bytes.
func (e entryInfo) size() int {
	n := 256 + len(e.Name) + len(e.Path) + len(e.Owner) + len(e.Group) + len(e.SymlinkTarget)
	for name, value := range e.Metadata {
		n += 32 + len(name) + len(value)
	}
	return n
}

var fileTypes = map[hutch.FileType]string{
	hutch.RegularFile: "FILE_TYPE_FILE", hutch.Directory: "FILE_TYPE_DIRECTORY", hutch.Symlink: "FILE_TYPE_SYMLINK", hutch.OtherFile: "FILE_TYPE_UNSPECIFIED",
}

var modeTypes = map[hutch.FileType]fs.FileMode{hutch.Directory: fs.ModeDir, hutch.Symlink: fs.ModeSymlink, hutch.OtherFile: fs.ModeIrregular}

type (
	pathRequest struct {
		Path string `json:"path"`
	}
	entryResponse struct {
		Entry entryInfo `json:"entry"`
	}
	moveRequest struct {
		Source      string `json:"source"`
		Destination string `json:"destination"`
	}
	listDirRequest struct {
		Path  string `json:"path"`
		Depth int    `json:"depth"`
	}
	listDirResponse struct {
		Entries []entryInfo `json:"entries"`
	}
)

// located returns the absolute path of a request about files. From then on, calls of the request have the rights of its
// user.
func (h *Handler) located(q *request, p string) (string, error) {
	a, err := h.filesAccount(q, basicUser(q.Request))
	return a.path(p), err
}

func (h *Handler) stat(q request, m pathRequest) (entryResponse, error) {
	p, err := h.located(&q, m.Path)
	if err != nil {
		return entryResponse{}, err
	}
	info, err := q.target.Service.Stat(q.ctx, q.target.Sandbox, p)
	if hutch.KindOf(err) == hutch.Conflict { // the path leads through a file
		err = rpcErrorf(notFound, "%s", hutch.AsError(err).Message)
	}
	return h.described(q, info, err)
}

// described answers with the record of a file, or with the error of the call that should have returned it.
func (h *Handler) described(q request, info hutch.FileInfo, err error) (entryResponse, error) {
	if err != nil {
		return entryResponse{}, err
	}
	ps, err := h.people(q, newPeople)
	if err != nil {
		return entryResponse{}, err
	}
	return entryResponse{q.entry(ps, info)}, nil
}

// entry describes a file as E2B does.
func (q request) entry(ps *people, f hutch.FileInfo) entryInfo {
	size, target := f.Size, ""
	name, at := f.Name, f.Path
	if f.Type == hutch.Symlink {
		if end, ok := q.followLink(f); ok {
			f, target = end, end.Path
		}
	}
	mode := fs.FileMode(f.Mode) & fs.ModePerm
	return entryInfo{
		Name: name, Type: fileTypes[f.Type], Path: at, Size: strconv.FormatInt(size, 10), Mode: uint32(mode), Permissions: (modeTypes[f.Type] | mode).String(),
		Owner: nameOf(ps.names, f.UID), Group: nameOf(ps.groups, f.GID), ModifiedTime: f.Modified, SymlinkTarget: target, Metadata: metadataIn(f.Attributes),
	}
}

const maxLinks = 10

// followLink returns the target of a link.
func (q request) followLink(f hutch.FileInfo) (hutch.FileInfo, bool) {
	for range maxLinks {
		to := f.Target
		if !path.IsAbs(to) {
			to = path.Join(path.Dir(f.Path), to)
		}
		var err error
		if f, err = q.target.Service.Stat(unmetered(q.ctx), q.target.Sandbox, to); err != nil {
			return f, false
		}
		if f.Type != hutch.Symlink {
			return f, true
		}
	}
	return f, false
}

func (h *Handler) makeDir(q request, m pathRequest) (entryResponse, error) {
	p, err := h.located(&q, m.Path)
	if err != nil {
		return entryResponse{}, err
	}
	svc, sandbox := q.target.Service, q.target.Sandbox
	if f, err := q.linkedStat(p); err == nil {
		if f.Type == hutch.Directory {
			return entryResponse{}, rpcErrorf(alreadyExists, "directory already exists: %.300s", p)
		}
		return entryResponse{}, rpcErrorf(invalidArgument, "path already exists but it is not a directory: %.300s", p)
	}
	if err := svc.Mkdir(q.ctx, sandbox, p, true); err != nil {
		return entryResponse{}, conflictIsInvalid(err)
	}
	info, err := svc.Stat(unmetered(q.ctx), sandbox, p)
	return h.described(q, info, err)
}

// linkedStat describes a file, or the target of a link.
func (q request) linkedStat(p string) (hutch.FileInfo, error) {
	f, err := q.target.Service.Stat(unmetered(q.ctx), q.target.Sandbox, p)
	if err == nil && f.Type == hutch.Symlink {
		if end, ok := q.followLink(f); ok {
			f = end
		}
	}
	return f, err
}

// conflictIsInvalid returns E2B's code for a path that leads through a file.
func conflictIsInvalid(err error) error {
	if hutch.KindOf(err) == hutch.Conflict {
		return rpcErrorf(invalidArgument, "%s", hutch.AsError(err).Message)
	}
	return err
}

func (h *Handler) move(q request, m moveRequest) (entryResponse, error) {
	from, err := h.located(&q, m.Source)
	if err != nil {
		return entryResponse{}, err
	}
	to, err := h.located(&q, m.Destination)
	if err != nil {
		return entryResponse{}, err
	}
	svc, sandbox, after := q.target.Service, q.target.Sandbox, unmetered(q.ctx)
	if _, err := svc.Stat(after, sandbox, from); err != nil {
		return entryResponse{}, err
	}
	if err := svc.Mkdir(after, sandbox, path.Dir(to), true); err != nil {
		return entryResponse{}, conflictIsInvalid(err)
	}
	if err := svc.Move(q.ctx, sandbox, from, to, true); err != nil {
		return entryResponse{}, conflictIsInvalid(err)
	}
	info, err := svc.Stat(after, sandbox, to)
	return h.described(q, info, err)
}

// remove removes a path with everything in it. A missing path is not an error.
func (h *Handler) remove(q request, m pathRequest) (struct{}, error) {
	p, err := h.located(&q, m.Path)
	if err != nil {
		return struct{}{}, err
	}
	err = q.target.Service.Delete(q.ctx, q.target.Sandbox, p, true)
	if hutch.KindOf(err) == hutch.NotFound && !gone(err) {
		err = nil
	}
	return struct{}{}, err
}

// folder returns the absolute path of a folder that exists.
func (h *Handler) folder(q *request, p string) (string, error) {
	p, err := h.located(q, p)
	if err != nil {
		return p, err
	}
	f, err := q.linkedStat(p)
	if err == nil && f.Type != hutch.Directory {
		err = rpcErrorf(invalidArgument, "path is not a directory: %.300s", p)
	}
	return p, err
}

// errLongList is the error of a list that is more than the server may hold for the caller.
var errLongList = hutch.Errorf(hutch.Exhausted, "the list takes more memory than there is for the requests of this token: list folders one by one, or with less depth").With("limit", "memory of requests")

func (h *Handler) listDir(q request, m listDirRequest) (listDirResponse, error) {
	p, err := h.folder(&q, m.Path)
	if err != nil {
		return listDirResponse{}, err
	}
	ps, err := h.people(q, newPeople)
	if err != nil {
		return listDirResponse{}, err
	}
	if m.Depth < 0 {
		return listDirResponse{}, rpcErrorf(invalidArgument, "depth should be at least one")
	}
	req := hutch.ListRequest{Path: p, Hidden: true, Recursive: m.Depth > 1, Attributes: true}
	if req.Recursive {
		req.Depth = m.Depth
	}
	answer, take := listDirResponse{[]entryInfo{}}, caller.From(q.ctx).Budget.Take
	err = q.target.Service.ListFiles(q.ctx, q.target.Sandbox, req, func(f hutch.FileInfo) error {
		e := q.entry(ps, f)
		if !take(2 * e.size()) { // the answer is whole in memory, and then encoded
			return errLongList
		}
		answer.Entries = append(answer.Entries, e)
		return nil
	})
	return answer, err
}
