// Package console serves the console: the page in the browser, and the sessions by which the page calls the API.
//
// The page is files in the program, built from web/. It is a client like others: it calls the REST API with the
// TypeScript SDK, and the server has nothing of its own for it but these files and sessions. Its policy lets nothing
// run but the scripts below /assets/.
//
// Anyone can load the page: it holds no data.
package console

import (
	"io/fs"
	"net/http"
	"slices"
	"strings"

	"hutch"
	"hutch/internal/problem"
)

// Options configure a handler; the zero value serves the files that are in the program.
type Options struct {
	// Files replace the built page.
	Files fs.FS
	// Previews is where previews are shown, as a source of a Content-Security-Policy: "http://*.localhost:7700".
	Previews string
}

// Handler serves the console.
type Handler struct {
	opt   Options
	files *files
}

// New returns a handler.
func New(opt Options) (*Handler, error) {
	files, err := load(opt.Files)
	if err != nil {
		return nil, err
	}
	return &Handler{opt: opt, files: files}, nil
}

// Open reports whether the console answers a request, which then needs no token.
func (h *Handler) Open(r *http.Request) bool {
	return isRead(r) && (isPage(r) || h.files.has(r.URL.Path))
}

// Inside answers the requests that are Open; next answers the others.
func (h *Handler) Inside(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case !h.Open(r):
			next.ServeHTTP(w, r)
		case isPage(r):
			h.page(w, r)
		default:
			h.files.serve(w, r)
		}
	})
}

func isRead(r *http.Request) bool { return r.Method == http.MethodGet || r.Method == http.MethodHead }

// pages are the paths of the page, and with a slash at their end all paths below.
var pages = []string{"/", "/signin", "/ask", "/sandboxes", "/sandboxes/", "/operating", "/operating/"}

// isPage reports whether a browser asks for the page. A program that does not ask for HTML by name gets what other
// surfaces have at the same path.
func isPage(r *http.Request) bool {
	return acceptsHTML(r) && slices.ContainsFunc(pages, func(page string) bool {
		return r.URL.Path == page || page != "/" && strings.HasSuffix(page, "/") && strings.HasPrefix(r.URL.Path, page)
	})
}

// acceptsHTML reports whether a request asks for HTML by name.
func acceptsHTML(r *http.Request) bool {
	for _, line := range r.Header.Values("Accept") {
		for kind := range strings.SplitSeq(line, ",") {
			name, _, _ := strings.Cut(kind, ";")
			if strings.EqualFold(strings.TrimSpace(name), "text/html") {
				return true
			}
		}
	}
	return false
}

// missing answers for a file that is not there.
func missing(w http.ResponseWriter, path string) {
	problem.Write(w, hutch.Errorf(hutch.NotFound, "the console has no file %.200q: the server may have been updated; load the page again", path))
}
