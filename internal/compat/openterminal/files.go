package openterminal

import (
	"errors"
	"io"
	"mime"
	"net/http"
	"path"
	"strconv"
	"strings"
	"unicode/utf8"

	"hutch"
	"hutch/internal/compat"
	"hutch/internal/httpio"
	"hutch/internal/preview"
)

// maxText is the largest file that is read or edited as text, in bytes.
const maxText = compat.MaxRequest

// item is a file in a list.
type item struct {
	Name     string  `json:"name,omitempty"`
	Path     string  `json:"path,omitempty"`
	Type     string  `json:"type"` // "file" or "directory"
	Size     int64   `json:"size"`
	Modified float64 `json:"modified"` // seconds since 1970
}

func itemOf(f hutch.FileInfo) item {
	kind := "file"
	if f.Type == hutch.Directory {
		kind = "directory"
	}
	return item{Type: kind, Size: f.Size, Modified: float64(f.Modified.UnixMicro()) / 1e6}
}

// named resolves a parameter that names a file.
func (c *call) named(parameter string) (string, error) {
	name := c.query(parameter)
	if name == "" {
		return "", hutch.Errorf(hutch.Invalid, "the parameter %s is required", parameter)
	}
	return c.resolve(name)
}

func (c *call) getDir() (any, error) {
	return map[string]any{"cwd": c.dir(), "home": c.home, "root": map[string]string{"path": c.home, "label": "Home"}}, nil
}

func (c *call) setDir() (any, error) {
	target, err := c.inBody()
	if err != nil {
		return nil, err
	}
	if info, err := c.follow(target); err != nil || info.Type != hutch.Directory {
		return nil, noFolder(err)
	}
	c.dirs.set(compat.Owner(c.ctx), c.chat, target)
	return map[string]string{"cwd": target}, nil
}

// inBody reads a body with a path.
func (c *call) inBody() (string, error) {
	var req struct {
		Path string `json:"path"`
	}
	if err := compat.ReadJSON(c.w, c.r, &req); err != nil {
		return "", err
	}
	if req.Path == "" {
		return "", hutch.Errorf(hutch.Invalid, "path is required")
	}
	return c.resolve(req.Path)
}

// follow describes the file at a path. For a link it describes the target.
func (c *call) follow(name string) (hutch.FileInfo, error) {
	info, err := c.svc.Stat(c.ctx, c.sandbox, name)
	if err == nil && info.Type == hutch.Symlink {
		return c.svc.Stat(c.ctx, c.sandbox, name+"/.")
	}
	return info, err
}

// noFolder returns the error for a path that does not exist or is not a folder. Other errors, such as the error of a
// quota, are returned unchanged.
func noFolder(err error) error {
	switch hutch.KindOf(err) {
	case hutch.Denied, hutch.Exhausted, hutch.Unavailable, hutch.Internal, hutch.Timeout:
		if err != nil {
			return err
		}
	}
	return hutch.Errorf(hutch.NotFound, "Directory not found").Because(err)
}

const maxListed = 2000 // entries of an answer

var errEnough = errors.New("enough")

func (c *call) list() (any, error) {
	dir := c.query("directory")
	if dir == "" {
		dir = "."
	}
	target, err := c.resolve(dir)
	if err != nil {
		return nil, err
	}
	list := []item{}
	err = c.svc.ListFiles(c.ctx, c.sandbox, hutch.ListRequest{Path: target, Hidden: true}, func(f hutch.FileInfo) error {
		if len(list) == maxListed {
			return errEnough
		}
		i := itemOf(f)
		i.Name = valid(f.Name)
		list = append(list, i)
		return nil
	})
	if err != nil && len(list) < maxListed {
		return nil, noFolder(err)
	}
	return map[string]any{"dir": target, "entries": list}, nil
}

// text reads a file that is held in memory.
func (c *call) text(name string) (string, error) {
	b := compat.NewBuffer(c.ctx, maxText)
	_, err := c.svc.ReadFile(c.ctx, c.sandbox, hutch.ReadRequest{Path: name}, b)
	return b.String(), err
}

// read returns lines of a text, or an image.
func (c *call) read() (any, error) {
	name, err := c.named("path")
	if err != nil {
		return nil, err
	}
	first, err := c.number("start_line", 1, 1, 1<<40)
	if err != nil {
		return nil, err
	}
	last, err := c.number("end_line", 1<<40, 1, 1<<40)
	if err != nil {
		return nil, err
	}
	content, err := c.text(name)
	if err != nil {
		return nil, err
	}
	if !utf8.ValidString(content) || strings.Contains(content, "\x00") {
		if strings.HasPrefix(contentType(name), "image/") {
			return c.view()
		}
		return nil, errBinary
	}
	from, to, lines := span(content, int(first), int(last))
	return map[string]any{"path": name, "total_lines": lines, "content": content[from:to]}, nil
}

// span returns where the lines from first to last are in a text, counted from 1, and how many lines the text has. It
// makes no list of the lines: for a text of only empty lines, the list would take 17 times the size of the text.
func span(text string, first, last int) (from, to, lines int) {
	from = len(text)
	for at := 0; at < len(text); {
		end := len(text)
		if i := strings.IndexByte(text[at:], '\n'); i >= 0 {
			end = at + i + 1
		}
		if lines++; lines >= first {
			from = min(from, at)
		}
		if lines <= last {
			to = end
		}
		at = end
	}
	return from, max(from, to), lines
}

func contentType(name string) string {
	if t := mime.TypeByExtension(path.Ext(name)); t != "" {
		return t
	}
	return "application/octet-stream"
}

func (c *call) display() (any, error) {
	name, err := c.named("path")
	if err != nil {
		return nil, err
	}
	info, err := c.follow(name)
	return map[string]any{"path": name, "exists": err == nil && info.Type == hutch.RegularFile}, nil
}

// view sends the bytes of a file. A browser gives a page in them a unique origin: its scripts have no rights of this
// server's pages, nor of Open WebUI's.
func (c *call) view() (any, error) {
	name, err := c.resolve("/" + c.r.PathValue("path"))
	if c.r.PathValue("path") == "" {
		name, err = c.named("path")
	}
	if err != nil {
		return nil, err
	}
	if _, err := c.flag("preview", false); err != nil { // it asks for a preview if the server has one, but this server never has one
		return nil, err
	}
	begun := false
	_, err = c.svc.ReadFile(c.ctx, c.sandbox, hutch.ReadRequest{Path: name, Opened: func(info hutch.FileInfo) {
		begun = true
		head := c.w.Header()
		head.Set("Content-Type", contentType(name))
		head.Set("Content-Length", strconv.FormatInt(info.Size, 10))
		head.Add("Content-Security-Policy", preview.UniqueOrigin) // a stricter policy that the guard has set applies, too
		head.Set("X-Content-Type-Options", "nosniff")
		head.Set("Cache-Control", "no-store")
	}}, httpio.NewWriter(c.w, c.r, c.opt.Stall))
	if err != nil && begun {
		panic(http.ErrAbortHandler)
	}
	return nil, err
}

func (c *call) write() (any, error) {
	var req struct {
		Path    string `json:"path"`
		Content string `json:"content"`
	}
	if err := compat.ReadJSON(c.w, c.r, &req); err != nil {
		return nil, err
	}
	if req.Path == "" {
		return nil, hutch.Errorf(hutch.Invalid, "path is required")
	}
	name, err := c.resolve(req.Path)
	if err != nil {
		return nil, err
	}
	return c.store(name, strings.NewReader(req.Content))
}

func (c *call) store(name string, content io.Reader) (any, error) {
	info, err := c.svc.WriteFile(c.ctx, c.sandbox, hutch.WriteRequest{Path: name, Parents: true}, content)
	return map[string]any{"path": name, "size": info.Size}, err
}

func (c *call) mkdir() (any, error) {
	name, err := c.inBody()
	if err != nil {
		return nil, err
	}
	return map[string]string{"path": name}, c.svc.Mkdir(c.ctx, c.sandbox, name, true)
}

func (c *call) remove() (any, error) {
	name, err := c.named("path")
	if err != nil {
		return nil, err
	}
	info, err := c.svc.Stat(c.ctx, c.sandbox, name)
	if err != nil {
		return nil, err
	}
	return map[string]string{"path": name, "type": itemOf(info).Type}, c.svc.Delete(c.ctx, c.sandbox, name, true)
}

func (c *call) move() (any, error) {
	var req struct {
		Source      string `json:"source"`
		Destination string `json:"destination"`
	}
	if err := compat.ReadJSON(c.w, c.r, &req); err != nil {
		return nil, err
	}
	if req.Source == "" || req.Destination == "" {
		return nil, hutch.Errorf(hutch.Invalid, "source and destination are required")
	}
	from, err := c.resolve(req.Source)
	if err != nil {
		return nil, err
	}
	to, err := c.resolve(req.Destination)
	if err != nil {
		return nil, err
	}
	return map[string]string{"source": from, "destination": to}, c.svc.Move(c.ctx, c.sandbox, from, to, false)
}

// upload stores one file of a form in a folder.
func (c *call) upload() (any, error) {
	dir, err := c.named("directory")
	if err != nil {
		return nil, err
	}
	c.r.Body = httpio.NewBody(c.w, c.r, c.opt.Stall)
	parts, err := c.r.MultipartReader()
	if err != nil {
		return nil, hutch.Errorf(hutch.Invalid, "an upload is multipart/form-data with a file")
	}
	part, err := parts.NextRawPart()
	if err != nil {
		return nil, hutch.Errorf(hutch.Invalid, "the upload has no field file, or did not arrive whole")
	}
	if field := part.FormName(); field != "file" {
		return nil, hutch.Errorf(hutch.Unsupported, "this server does not have the field %.200q of an upload: leave it out", field).Naming(hutch.AboutField, field)
	}
	name := part.FileName() // without folders
	if name == "" || name == "." || name == ".." || name == "/" {
		name = "upload"
	}
	return c.store(path.Join(dir, name), part)
}

const maxPaths = 1000 // most paths of an archive

// started is an answer, and whether it has begun.
type started struct {
	io.Writer
	begun bool
}

func (s *started) Write(b []byte) (int, error) {
	s.begun = true
	return s.Writer.Write(b)
}

// archive sends files and folders as one zip.
func (c *call) archive() (any, error) {
	var req struct {
		Paths []string `json:"paths"`
	}
	if err := compat.ReadJSON(c.w, c.r, &req); err != nil {
		return nil, err
	}
	if len(req.Paths) == 0 || len(req.Paths) > maxPaths {
		return nil, hutch.Errorf(hutch.Invalid, "No paths provided, or more than %d", maxPaths)
	}
	var inside []string
	for _, p := range req.Paths {
		name, err := c.resolve(p)
		if err != nil {
			return nil, err
		}
		if _, err := c.svc.Stat(c.ctx, c.sandbox, name); err != nil {
			return nil, err
		}
		inside = append(inside, strings.TrimPrefix(name, "/"))
	}
	pack := hutch.PackRequest{Dir: "/", Paths: inside, Format: hutch.Zip}
	if len(inside) == 1 { // named from the folder above
		pack.Dir, pack.Paths = "/"+path.Dir(inside[0]), []string{path.Base(inside[0])}
	}
	if err := pack.Check(); err != nil {
		return nil, err
	}
	name := "download"
	if len(inside) == 1 && inside[0] != "" {
		name = path.Base(inside[0])
	}
	c.w.Header().Set("Content-Type", "application/zip")
	c.w.Header().Set("Content-Disposition", mime.FormatMediaType("attachment", map[string]string{"filename": valid(name) + ".zip"}))
	out := &started{Writer: httpio.NewWriter(c.w, c.r, c.opt.Stall)}
	err := c.svc.Pack(c.ctx, c.sandbox, pack, out)
	if err != nil && out.begun {
		panic(http.ErrAbortHandler)
	}
	if err != nil {
		c.w.Header().Del("Content-Disposition")
	}
	return nil, err
}
