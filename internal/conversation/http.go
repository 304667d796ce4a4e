package conversation

import (
	"errors"
	"io/fs"
	"mime"
	"net/http"
	"path"
	"path/filepath"
	"strings"
	"time"

	"hutch"
	"hutch/internal/caller"
	"hutch/internal/problem"
)

// MaxShown is how many files of a run are reported to the caller.
const MaxShown = 100

// Open reports whether a request of [Server.Routes] needs no token: the page, and files, whose links are signed.
func Open(r *http.Request) bool {
	return (r.Method == http.MethodGet || r.Method == http.MethodHead) && (r.URL.Path == "/" || strings.HasPrefix(r.URL.Path, "/files/") || forPage(r))
}

// forPage reports whether a browser asks for the page at the path of the list of conversations. The page is there, too,
// because a server with a console shows the console at "/".
func forPage(r *http.Request) bool {
	return r.URL.Path == "/conversations" && strings.Contains(r.Header.Get("Accept"), "text/html")
}

// Routes adds the page, the downloads and the events to mux. Requests that are not [Open] must be guarded.
func (s *Server) Routes(mux *http.ServeMux) {
	mux.HandleFunc("GET /{$}", s.page)
	mux.HandleFunc("GET /files/{conversation}/{file...}", s.file)
	mux.HandleFunc("GET /mcp/events", s.stream)
	mux.HandleFunc("GET /conversations", s.index)
	mux.HandleFunc("DELETE /conversations/{conversation}", s.remove)
}

// stream sends events as server-sent events.
func (s *Server) stream(w http.ResponseWriter, r *http.Request) {
	if who := caller.From(r.Context()).Principal; who != nil && !who.Has(hutch.ScopeRead, hutch.ScopeExec) {
		problem.Write(w, who.Lack("following runs", []hutch.Scope{hutch.ScopeRead, hutch.ScopeExec}))
		return
	}
	owner := ownerOf(r.Context())
	if err := s.events.enter(owner); err != nil {
		problem.Write(w, err)
		return
	}
	defer s.events.exit(owner)
	s.events.stream(w, r, lastEvent(r))
}

// file answers a signed link. It checks the signature before it looks for anything.
func (s *Server) file(w http.ResponseWriter, r *http.Request) {
	folder, name := r.PathValue("conversation"), r.PathValue("file")
	if err := s.links.check(folder, name, r.URL.Query(), time.Now()); err != nil {
		problem.Write(w, err)
		return
	}
	err := s.send(w, r, folder, name)
	switch {
	case err == nil:
	case errors.Is(err, fs.ErrNotExist):
		problem.Write(w, hutch.Errorf(hutch.NotFound, "the file does not exist any more, because a later run removed it: run the code again to make a new one"))
	default: // usually a link that leads out of the conversation
		s.log.Info("a file of a conversation cannot be served", "conversation", folder, "err", err)
		problem.Write(w, hutch.Errorf(hutch.Denied, "this file cannot be downloaded: if it is a link that leads out of the conversation, save a copy of the file instead"))
	}
}

func (s *Server) send(w http.ResponseWriter, r *http.Request, folder, name string) error {
	if strings.Contains(folder, "/") || !filepath.IsLocal(name) || path.Clean(name) != name {
		return fs.ErrNotExist
	}
	root, err := s.root.OpenRoot(filesOf(folder))
	if err != nil {
		return err
	}
	defer root.Close()
	f, info, err := openRegular(root, name)
	if err != nil {
		return err
	}
	defer f.Close()
	disarm(w.Header(), path.Base(name))
	http.ServeContent(w, r, "", info.ModTime(), f)
	return nil
}

// shown are the types that a browser shows, because they cannot run code. All others are saved.
var shown = map[string]string{
	".png": "image/png", ".jpg": "image/jpeg", ".jpeg": "image/jpeg", ".gif": "image/gif", ".webp": "image/webp",
	".txt": "text/plain; charset=utf-8", ".log": "text/plain; charset=utf-8",
}

var saved = map[string]string{
	".csv": "text/csv; charset=utf-8", ".json": "application/json", ".pdf": "application/pdf", ".zip": "application/zip",
}

// disarm sets headers so that no browser takes a file for a page of this server: an untrusted program created it.
func disarm(h http.Header, name string) {
	kind, disposition := "application/octet-stream", "attachment"
	ext := strings.ToLower(path.Ext(name))
	if t := saved[ext]; t != "" {
		kind = t
	}
	if t := shown[ext]; t != "" {
		kind, disposition = t, "inline"
	}
	h.Set("Content-Type", kind)
	h.Set("Content-Disposition", mime.FormatMediaType(disposition, map[string]string{"filename": name}))
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Content-Security-Policy", "sandbox; default-src 'none'; frame-ancestors 'none'")
	h.Set("Referrer-Policy", "no-referrer") // the address is the credential
	h.Set("Cache-Control", "private, no-cache")
}
