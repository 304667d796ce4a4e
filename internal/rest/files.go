package rest

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"path"
	"strconv"
	"strings"

	"hutch"
	"hutch/internal/httpio"
	"hutch/internal/jsonfault"
	"hutch/internal/problem"
	"hutch/internal/stream"
)

// Uploads reports whether a request's body is a file or an archive. Such a body has no size limit, because it is
// never held in memory.
func Uploads(r *http.Request) bool {
	path := r.URL.Path
	if r.Method == http.MethodPost {
		return path == "/v1/images/build"
	}
	_, sandbox := strings.CutPrefix(path, "/v1/sandboxes/")
	_, volume := strings.CutPrefix(path, "/v1/volumes/")
	return r.Method == http.MethodPut && (path == "/v1/images/archive" ||
		sandbox && strings.HasSuffix(path, "/files/content") || (sandbox || volume) && strings.HasSuffix(path, "/archive"))
}

// params reads query parameters, and keeps the first error.
type params struct {
	url.Values
	err error
}

func paramsOf(r *http.Request, allowed ...string) *params {
	q, err := query(r, allowed...)
	return &params{q, err}
}

func (p *params) path(name string) string {
	v := p.Get(name)
	if p.err == nil {
		p.err = hutch.CheckPath(v)
	}
	return v
}

// texts reads a JSON object whose values are strings.
func (p *params) texts(name string) (values map[string]string) {
	text := p.Get(name)
	if text == "" {
		return nil
	}
	if err := json.Unmarshal([]byte(text), &values); err != nil && p.err == nil {
		wrong := "it is not JSON"
		if f := jsonfault.Find([]byte(text), &values, err); f != nil {
			wrong = fmt.Sprintf("%s is %s", cmp.Or(f.Path, "it"), f.Found)
		}
		p.err = hutch.Errorf(hutch.Invalid, "the parameter %s cannot be read, because %s: give a JSON object whose values are strings, such as {\"author\": \"ada\"}", name, wrong).Naming(hutch.AboutField, name)
	}
	return values
}

func (p *params) flag(name string) bool {
	v, err := flag(p.Values, name)
	if p.err == nil {
		p.err = err
	}
	return v
}

func (p *params) number(name string) int64 {
	v := p.Get(name)
	if v == "" || p.err != nil {
		return 0
	}
	n, err := strconv.ParseInt(v, 10, 64)
	if err != nil {
		p.err = hutch.Errorf(hutch.Invalid, "the parameter %s is %.80q: give a number", name, v).Naming(hutch.AboutField, name)
	}
	return n
}

func (p *params) mode(name string) hutch.FileMode {
	v := p.Get(name)
	if v == "" || p.err != nil {
		return 0
	}
	mode, err := hutch.ParseFileMode(v)
	if err != nil || mode.Check() != nil {
		p.err = hutch.Errorf(hutch.Invalid, "the parameter %s is %.80q: give permissions in octal, such as 0644", name, v).Naming(hutch.AboutField, name)
	}
	return mode
}

// fileRoutes are the handlers of the verbs on files.
type fileRoutes struct{ *Handler }

// ofUser serves a verb on files with the rights of the user in the parameter user.
func (h fileRoutes) ofUser(serve http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		q, err := url.ParseQuery(r.URL.RawQuery)
		if err != nil || !q.Has("user") { // the verb reports the error
			serve(w, r)
			return
		}
		user, n := q.Get("user"), len(q["user"])
		err = hutch.CheckUser(user)
		if n > 1 {
			err = hutch.Errorf(hutch.Invalid, "the parameter user is given %d times: give it once", n)
		}
		if err != nil {
			h.fail(w, r, err)
			return
		}
		q.Del("user")
		rest, to := r.WithContext(hutch.AsUser(r.Context(), user)), *r.URL
		to.RawQuery, rest.URL = q.Encode(), &to
		serve(w, rest)
	}
}

func (h fileRoutes) stat(w http.ResponseWriter, r *http.Request) {
	q := paramsOf(r, "path")
	p := q.path("path")
	if q.err != nil {
		h.fail(w, r, q.err)
		return
	}
	reply(h.Handler, w, r)(h.svc.Stat(r.Context(), r.PathValue("id"), p))
}

func (h fileRoutes) deleteFile(w http.ResponseWriter, r *http.Request) {
	q := paramsOf(r, "path", "recursive")
	p, recursive := q.path("path"), q.flag("recursive")
	if q.err == nil {
		q.err = h.svc.Delete(r.Context(), r.PathValue("id"), p, recursive)
	}
	h.done(w, r, q.err)
}

func (h fileRoutes) mkdir(w http.ResponseWriter, r *http.Request) {
	q := paramsOf(r, "path", "parents")
	p, parents := q.path("path"), q.flag("parents")
	if q.err == nil {
		q.err = h.svc.Mkdir(r.Context(), r.PathValue("id"), p, parents)
	}
	h.done(w, r, q.err)
}

// transfers returns the handler of a verb that takes two paths.
func (h fileRoutes) transfers(do func(ctx context.Context, id, from, to string, replace bool) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		q := paramsOf(r, "from", "to", "replace")
		from, to, replace := q.path("from"), q.path("to"), q.flag("replace")
		if q.err == nil {
			q.err = do(r.Context(), r.PathValue("id"), from, to, replace)
		}
		h.done(w, r, q.err)
	}
}

func (h fileRoutes) chmod(w http.ResponseWriter, r *http.Request) {
	q := paramsOf(r, "path", "mode")
	p, mode := q.path("path"), q.mode("mode")
	if q.err == nil && q.Get("mode") == "" {
		q.err = hutch.Errorf(hutch.Invalid, "the parameter mode is missing: give permissions in octal, such as 0644").Naming(hutch.AboutField, "mode")
	}
	if q.err == nil {
		q.err = h.svc.Chmod(r.Context(), r.PathValue("id"), p, mode)
	}
	h.done(w, r, q.err)
}

func (h fileRoutes) editFile(w http.ResponseWriter, r *http.Request) {
	q := paramsOf(r, "path")
	var req hutch.EditRequest
	err := q.err
	if err == nil {
		err = h.body(w, r, &req)
	}
	if err == nil && q.Has("path") {
		req.Path = q.Get("path")
	}
	if err != nil {
		h.fail(w, r, err)
		return
	}
	reply(h.Handler, w, r)(h.svc.EditFile(r.Context(), r.PathValue("id"), req))
}

// readFile answers with the bytes of a file. A header has the file's record as JSON, from the moment when the file was
// opened.
func (h fileRoutes) readFile(w http.ResponseWriter, r *http.Request) {
	q := paramsOf(r, "path", "offset", "length", "firstLine", "lastLine")
	req := hutch.ReadRequest{
		Path: q.path("path"), Offset: q.number("offset"), Length: q.number("length"),
		FirstLine: int(q.number("firstLine")), LastLine: int(q.number("lastLine")),
	}
	if q.err != nil {
		h.fail(w, r, q.err)
		return
	}
	a := &content{w: h.writer(w, r), req: &req, head: r.Method == http.MethodHead}
	if r.Header.Get("If-Range") == "" { // the file's size is known only after it is opened, so send all of it
		a.ranged = setRange(r.Header.Get("Range"), &req)
	}
	req.Opened = a.opened
	_, err := h.svc.ReadFile(r.Context(), r.PathValue("id"), req, a)
	switch {
	case err == nil || errors.Is(err, errHead):
		a.begin()
	case !a.begun:
		w.Header().Del("Content-Length")
		w.Header().Del("Content-Range")
		h.fail(w, r, err)
	default:
		h.breakOff(w, r, err)
	}
}

// breakOff ends a started answer in such a way that the client does not take it for complete. It first sends the
// buffered part, because without a status the client would report that no server answers.
func (h fileRoutes) breakOff(w http.ResponseWriter, r *http.Request, err error) {
	h.describe(r, err) // for the log
	http.NewResponseController(w).Flush()
	panic(http.ErrAbortHandler)
}

// content is the answer that receives a file.
type content struct {
	w      *httpio.Writer
	req    *hutch.ReadRequest
	ranged bool
	size   int64
	begun  bool
	head   bool // only the header is wanted
}

// errHead ends a read whose content the client did not ask for.
var errHead = errors.New("no body is wanted")

func (a *content) opened(info hutch.FileInfo) {
	header := a.w.Header()
	header.Set(stream.FileHeader, stream.FormatFile(info))
	header.Set("Content-Type", typeOf(info.Name))
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Content-Disposition", "attachment") // the content is untrusted: a browser must not show it as a page of this server
	header.Set("Cache-Control", "no-store")
	header.Set("Last-Modified", info.Modified.UTC().Format(http.TimeFormat))
	if a.req.Lines() || info.Size == 0 {
		return
	}
	header.Set("Accept-Ranges", "bytes")
	from, to := a.req.Range(info.Size)
	a.size = info.Size
	header.Set("Content-Length", strconv.FormatInt(to-from, 10))
	if a.ranged && from < to {
		header.Set("Content-Range", httpio.ContentRange(from, to, info.Size))
	}
}

func typeOf(name string) string {
	if t := mime.TypeByExtension(path.Ext(name)); t != "" {
		return t
	}
	return "application/octet-stream"
}

func (a *content) begin() {
	if a.begun {
		return
	}
	a.begun = true
	httpio.WriteContentHeader(a.w, a.ranged, a.req.Offset, a.size)
}

func (a *content) Write(b []byte) (int, error) {
	a.begin()
	if a.head {
		return 0, errHead
	}
	n, err := a.w.Write(b)
	if err != nil {
		return n, errGone
	}
	return n, nil
}

// setRange applies a Range header, if the parameters ask for the whole file.
func setRange(header string, req *hutch.ReadRequest) bool {
	offset, length, ok := httpio.ParseRange(header)
	if !ok || req.Offset != 0 || req.Length != 0 || req.Lines() {
		return false
	}
	req.Offset, req.Length = offset, length
	return true
}

// upload is a request's body that can be read for as long as data keeps arriving.
type upload struct{ body *httpio.Body }

func (h fileRoutes) upload(w http.ResponseWriter, r *http.Request) upload {
	return upload{httpio.NewBody(w, r, h.stall)}
}

func (u upload) Read(b []byte) (int, error) {
	n, err := u.body.Read(b)
	if err != nil && err != io.EOF {
		err = hutch.Errorf(hutch.Invalid, "the request's body did not arrive whole: send it again").Because(err)
	}
	return n, err
}

func (h fileRoutes) writeFile(w http.ResponseWriter, r *http.Request) {
	q := paramsOf(r, "path", "mode", "append", "create", "parents", "attributes")
	req := hutch.WriteRequest{Path: q.path("path"), Mode: q.mode("mode"), Append: q.flag("append"), Create: q.flag("create"), Parents: q.flag("parents"), Attributes: q.texts("attributes")}
	if q.err != nil {
		h.fail(w, r, q.err)
		return
	}
	body := h.upload(w, r)
	defer body.body.End() // a read of the body can still be running when the file is written
	reply(h.Handler, w, r)(h.svc.WriteFile(r.Context(), r.PathValue("id"), req, body))
}

func (h fileRoutes) unpack(w http.ResponseWriter, r *http.Request) {
	q := paramsOf(r, "path", "format")
	req := hutch.UnpackRequest{Dir: q.path("path"), Format: hutch.ArchiveFormat(q.Get("format"))}
	if q.err == nil {
		body := h.upload(w, r)
		defer body.body.End() // a read of the body can still be running when the archive is unpacked
		q.err = h.svc.Unpack(r.Context(), r.PathValue("id"), req, body)
	}
	h.done(w, r, q.err)
}

// archiveTypes are the media types of archives.
var archiveTypes = map[hutch.ArchiveFormat]string{hutch.Tar: "application/x-tar", hutch.TarGz: "application/gzip", hutch.Zip: "application/zip"}

func (h fileRoutes) pack(w http.ResponseWriter, r *http.Request) {
	values, err := url.ParseQuery(r.URL.RawQuery)
	names := values["name"]
	if err == nil {
		values.Del("name") // name can be repeated
		r.URL.RawQuery = values.Encode()
	}
	q := paramsOf(r, "path", "format")
	req := hutch.PackRequest{Dir: q.path("path"), Paths: names, Format: hutch.ArchiveFormat(q.Get("format"))}
	if req.Format == "" {
		req.Format = hutch.Tar
	}
	if q.err != nil {
		h.fail(w, r, q.err)
		return
	}
	h.download(w, r, archiveTypes[req.Format], func(a io.Writer) error { return h.svc.Pack(r.Context(), r.PathValue("id"), req, a) })
}

// download answers with the output of do. An error before the first byte is answered as usual; after that, an error
// breaks off the answer.
func (h fileRoutes) download(w http.ResponseWriter, r *http.Request, mediaType string, do func(io.Writer) error) {
	a := &content{w: h.writer(w, r), req: &hutch.ReadRequest{}, head: r.Method == http.MethodHead}
	w.Header().Set("Content-Type", mediaType)
	w.Header().Set("Content-Disposition", "attachment")
	w.Header().Set("Cache-Control", "no-store")
	switch err := do(a); {
	case err == nil || errors.Is(err, errHead):
		a.begin()
	case !a.begun:
		h.fail(w, r, err)
	default:
		h.breakOff(w, r, err)
	}
}

func (h fileRoutes) listFiles(w http.ResponseWriter, r *http.Request) {
	q := paramsOf(r, "path", "recursive", "depth", "hidden", "glob", "limit", "attributes")
	req := hutch.ListRequest{
		Path: q.path("path"), Recursive: q.flag("recursive"), Depth: int(q.number("depth")), Hidden: q.flag("hidden"),
		Glob: q.Get("glob"), Limit: int(q.number("limit")), Attributes: q.flag("attributes"),
	}
	l := h.list(w, r, "files")
	if q.err == nil {
		q.err = h.svc.ListFiles(r.Context(), r.PathValue("id"), req, func(f hutch.FileInfo) error { return l.add(f) })
	}
	h.endList(l, r, q.err)
}

func (h fileRoutes) searchFiles(w http.ResponseWriter, r *http.Request) {
	q := paramsOf(r, "path", "pattern", "glob", "hidden", "limit")
	req := hutch.SearchRequest{
		Path: q.path("path"), Pattern: q.Get("pattern"), Glob: q.Get("glob"), Hidden: q.flag("hidden"), Limit: int(q.number("limit")),
	}
	l := h.list(w, r, "matches")
	if q.err == nil {
		q.err = h.svc.SearchFiles(r.Context(), r.PathValue("id"), req, func(m hutch.Match) error { return l.add(m) })
	}
	h.endList(l, r, q.err)
}

// list is a JSON answer that is written while its items arrive: an object with the list and, if an error ended the list
// early, that error.
type list struct {
	w    *httpio.Writer
	buf  *bufio.Writer
	name string
	n    int
}

func (h fileRoutes) list(w http.ResponseWriter, r *http.Request, name string) *list {
	l := &list{w: h.writer(w, r), name: name}
	l.buf = bufio.NewWriterSize(l.w, 32<<10)
	return l
}

func (l *list) add(item any) error {
	b, err := json.Marshal(item)
	if err != nil {
		return err
	}
	if l.n == 0 {
		l.begin()
	} else {
		l.buf.WriteByte(',')
	}
	l.n++
	if _, err := l.buf.Write(b); err != nil {
		return errGone
	}
	return nil
}

func (l *list) begin() {
	l.w.Header().Set("Content-Type", "application/json")
	l.w.Header().Set("Cache-Control", "no-store")
	l.buf.WriteString(`{"` + l.name + `":[`)
}

// endList ends the answer. An error before the first item is answered as in other calls.
func (h fileRoutes) endList(l *list, r *http.Request, err error) {
	if err != nil && l.n == 0 {
		h.describe(r, err).Write(l.w)
		return
	}
	if l.n == 0 {
		l.begin()
	}
	l.buf.WriteByte(']')
	if err != nil {
		var d problem.Details = h.describe(r, err)
		b, _ := json.Marshal(d)
		l.buf.WriteString(`,"error":` + string(b))
	}
	l.buf.WriteString("}\n")
	l.buf.Flush() // an error means that the client has disconnected
}

// watch answers with an event for each change; the first event is "ready".
func (h fileRoutes) watch(w http.ResponseWriter, r *http.Request) {
	q := paramsOf(r, "path", "recursive")
	req := hutch.WatchRequest{Path: q.path("path"), Recursive: q.flag("recursive")}
	if q.err != nil {
		h.fail(w, r, q.err)
		return
	}
	es := h.events(w, r)
	defer es.Close()
	err := h.svc.Watch(r.Context(), r.PathValue("id"), req, func(e hutch.FileEvent) error { return es.send("", "change", e) })
	if err != nil {
		es.fail(h.describe(r, err))
		return
	}
	es.send("", "end", struct{}{})
}
