// Package console serves the console: the page for browsers, and the sessions with which that page calls the API.
//
// The page consists of files that are built from web/ and embedded in the program. It is a client like any other: it
// calls the REST API with the TypeScript SDK, and the server has nothing else for it but the files and the sessions.
// Its policy allows only the scripts below /assets/. Anyone can load the page: it contains no data.
//
// A session stands for the token that a person entered. The browser holds a cookie that scripts cannot read, and the
// server the SHA-256 of cookie and token; the token is checked again at each request, so a session ends with its token.
// [Handler.Principal] says which requests may use the cookie.
package console

import (
	"cmp"
	"context"
	"io/fs"
	"log/slog"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"time"

	"hutch"
	"hutch/internal/audit"
	"hutch/internal/caller"
	"hutch/internal/guesses"
	"hutch/internal/httpio"
	"hutch/internal/openid"
	"hutch/internal/problem"
)

// Surface is the name of the console in the audit log.
const Surface = "console"

// Options configure a handler.
type Options struct {
	// Tokens checks the tokens with which people sign in. Required.
	Tokens Tokens
	// Collection is where sessions are stored; nil keeps them in memory only.
	Collection Collection
	// News calls a function with each session that another server changes, or with nil for an ended one; nil if there
	// are no other servers.
	News func(context.Context, func(key string, doc []byte) error) error
	// Observer gets each sign-in and sign-out; nil for none.
	Observer audit.Observer
	// Count counts a sign-in as a request of its principal, and refuses it over the limit; nil counts nothing.
	Count func(context.Context, *caller.Principal) error
	// Client returns the address for which wrong tokens are counted; default the address of the connection.
	Client func(*http.Request) netip.Addr
	// Secure, when set, reports whether a request came to a trusted proxy over TLS.
	Secure func(*http.Request) bool
	// People is the client of the issuer with which people sign in; nil for none. Person turns the issuer's answer
	// about a person into a principal.
	People *openid.Client
	Person func(context.Context, *openid.Grant) *caller.Principal
	// Host is the console's own name on this machine; browsers that use another local name are redirected to it. "" for
	// none.
	Host string
	// Previews is the origin of previews, in the form of a source in a Content-Security-Policy:
	// "http://*.localhost:7700".
	Previews string
	// Model is the name of the model that answers questions; "" for none.
	Model string
	// SSH is true if the server accepts SSH connections.
	SSH     bool
	Version hutch.Version
	// Stall is how long a client can leave data unread before it is disconnected; default 1 minute.
	Stall time.Duration
	Log   *slog.Logger
	// Files replaces the built page; nil for the one in the program.
	Files fs.FS
}

// Handler serves the console.
type Handler struct {
	opt      Options
	files    *files
	sessions *sessions
	guesses  guesses.Counter // wrong tokens, by address
}

// Open returns a handler, with the sessions that are stored.
func Open(ctx context.Context, opt Options) (*Handler, error) {
	opt.Stall = cmp.Or(opt.Stall, time.Minute)
	opt.Log = cmp.Or(opt.Log, slog.New(slog.DiscardHandler))
	if opt.Observer == nil {
		opt.Observer = audit.Observers{}
	}
	if opt.Count == nil {
		opt.Count = func(context.Context, *caller.Principal) error { return nil }
	}
	if opt.Client == nil {
		opt.Client = func(r *http.Request) netip.Addr {
			from, _ := netip.ParseAddrPort(r.RemoteAddr)
			return from.Addr().Unmap()
		}
	}
	files, err := load(opt.Files)
	if err != nil {
		return nil, err
	}
	renewals := renewals{person: opt.Person}
	if opt.People != nil {
		renewals.renew = opt.People.Renew
	}
	sessions, err := openSessions(ctx, opt.Tokens, opt.Collection, renewals, opt.Log)
	if err != nil {
		return nil, err
	}
	if opt.News != nil {
		if err := opt.News(ctx, sessions.applyChange); err != nil {
			return nil, err
		}
	}
	return &Handler{opt: opt, files: files, sessions: sessions}, nil
}

// IsOpen reports whether the console itself answers a request. Such a request needs no token.
func (h *Handler) IsOpen(r *http.Request) bool {
	switch r.URL.Path {
	case sessionPath:
		return isRead(r) || r.Method == http.MethodPost || r.Method == http.MethodDelete
	case waysPath:
		return isRead(r)
	case beginPath, DonePath:
		return h.opt.People != nil && r.Method == http.MethodGet
	}
	return isRead(r) && (isPage(r) || h.files.has(r.URL.Path))
}

// Inside returns a handler that answers requests for the console, and passes the others to next.
func (h *Handler) Inside(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !h.IsOpen(r) {
			next.ServeHTTP(w, r)
			return
		}
		w = httpio.NewWriter(w, r, h.opt.Stall) // a deadline, because all callers without a token share one limit of connections
		switch {
		case r.URL.Path == sessionPath:
			h.serveSession(w, r)
		case r.URL.Path == waysPath:
			h.serveWays(w, r)
		case r.URL.Path == beginPath || r.URL.Path == DonePath:
			h.servePeople(w, r)
		case isPage(r) && h.hasOwnHost(r):
			h.toOwnHost(w, r)
		case isPage(r):
			h.page(w, r)
		default:
			h.files.serve(w, r)
		}
	})
}

func isRead(r *http.Request) bool { return r.Method == http.MethodGet || r.Method == http.MethodHead }

// pages are the paths that serve the page. A path that ends with a slash also stands for all paths below it.
var pages = []string{"/", "/signin", "/watch", "/ask", "/sandboxes", "/sandboxes/", "/operating", "/operating/"}

// isPage reports whether a browser asks for the page. At the same path, a program that does not ask for HTML gets the
// answer of another API.
func isPage(r *http.Request) bool {
	return acceptsHTML(r) && isPagePath(r.URL.Path)
}

// isPagePath reports whether a path serves the page.
func isPagePath(path string) bool {
	return slices.ContainsFunc(pages, func(page string) bool {
		return path == page || page != "/" && strings.HasSuffix(page, "/") && strings.HasPrefix(path, page)
	})
}

// acceptsHTML reports whether a request explicitly asks for HTML.
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

// missing answers for a missing file.
func missing(w http.ResponseWriter, path string) {
	problem.Write(w, hutch.Errorf(hutch.NotFound, "the console has no file %.200q: the server may have been updated; load the page again", path))
}
