// Package guard stands in front of every surface: it decides which requests
// get in, and leaves a line about each.
//
// A request must name a host that is ours, or a page anywhere could reach a
// server on loopback by pointing its own name at it (DNS rebinding); it must
// come from a page of ours, or from no page; and it must bear a token. Only
// health and the description of the API are open.
package guard

import (
	"crypto/sha256"
	"crypto/subtle"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"hutch"
	"hutch/internal/problem"
)

// Options say who gets in. The zero value lets no one in.
type Options struct {
	// Tokens are the bearer tokens that do.
	Tokens []string
	// Check, when set, is asked in place of Tokens.
	Check func(r *http.Request, token string) bool
	// Hosts are names that the server answers to, beside those of loopback
	// and the very address that was called; without a port. "*" is any, for
	// a server behind a proxy that checks.
	Hosts []string
	// Origins are those of web pages that may call, beside the server's own,
	// such as "https://app.example.com".
	Origins []string
	// MaxBody is the longest request body, in bytes; default 64 MiB, negative
	// for no limit.
	MaxBody int64
	// Unbounded, when set, tells requests that MaxBody does not count for.
	Unbounded func(*http.Request) bool
	// Open, when set, tells further requests that need no token.
	Open func(*http.Request) bool
	Log  *slog.Logger
}

type guard struct {
	next   http.Handler
	opt    Options
	hashes [][sha256.Size]byte
	log    *slog.Logger
}

// New puts a guard in front of next.
func New(next http.Handler, opt Options) http.Handler {
	g := &guard{next: next, opt: opt, log: opt.Log}
	if g.log == nil {
		g.log = slog.New(slog.DiscardHandler)
	}
	if opt.MaxBody == 0 {
		g.opt.MaxBody = 64 << 20
	}
	for _, token := range opt.Tokens {
		if token != "" { // or an absent token would be one
			g.hashes = append(g.hashes, sha256.Sum256([]byte(token)))
		}
	}
	return g.record(http.HandlerFunc(g.admit))
}

// admit turns a request away or hands it on.
func (g *guard) admit(w http.ResponseWriter, r *http.Request) {
	if !g.hostAllowed(r) {
		problem.Write(w, hutch.Errorf(hutch.Denied, "this server does not answer to the host name %.100q: call it by a name of its own, or add that one to its allowed hosts", r.Host))
		return
	}
	origin := r.Header.Get("Origin")
	if !g.originAllowed(r, origin) {
		problem.Write(w, hutch.Errorf(hutch.Denied, "pages of %.100q may not call this server: add it to the allowed origins", origin))
		return
	}
	if answeredCORS(w, r, origin) {
		return
	}
	if !open(r) && (g.opt.Open == nil || !g.opt.Open(r)) && !g.authorized(w, r) {
		return
	}
	if g.opt.MaxBody >= 0 && (g.opt.Unbounded == nil || !g.opt.Unbounded(r)) {
		if r.ContentLength > g.opt.MaxBody {
			tooLarge(w, g.opt.MaxBody)
			return
		}
		r.Body = http.MaxBytesReader(w, r.Body, g.opt.MaxBody)
	}
	g.next.ServeHTTP(w, r)
}

// opens are the paths that anyone may read: health, and what describes the API,
// which browsers ask for without a token.
var opens = []string{"/health", "/v1/openapi.yaml", "/v1/openapi.json", "/v1/docs"}

// open reports whether anyone may make the request.
func open(r *http.Request) bool {
	return slices.Contains(opens, r.URL.Path) && (r.Method == http.MethodGet || r.Method == http.MethodHead)
}

func (g *guard) hostAllowed(r *http.Request) bool {
	host := hostname(r.Host)
	if host == "" {
		return false
	}
	// Names under localhost cannot be pointed elsewhere: RFC 6761.
	if host == "localhost" || strings.HasSuffix(host, ".localhost") {
		return true
	}
	if ip, err := netip.ParseAddr(host); err == nil && (ip.IsLoopback() || ip.Unmap() == localAddr(r)) {
		return true
	}
	return slices.ContainsFunc(g.opt.Hosts, func(h string) bool { return h == "*" || strings.EqualFold(h, host) })
}

// hostname is a Host header without its port, in lower case.
func hostname(hostport string) string {
	host, _, err := net.SplitHostPort(hostport)
	if err != nil {
		host = strings.TrimSuffix(strings.TrimPrefix(hostport, "["), "]")
	}
	return strings.ToLower(strings.TrimSuffix(host, "."))
}

// localAddr is the address that the client connected to.
func localAddr(r *http.Request) netip.Addr {
	if tcp, ok := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr); ok {
		return tcp.AddrPort().Addr().Unmap()
	}
	return netip.Addr{}
}

// originAllowed holds for programs, which send none, for the server's own
// pages, and for the pages allowed by name.
func (g *guard) originAllowed(r *http.Request, origin string) bool {
	return origin == "" || sameHost(origin, r.Host) || slices.Contains(g.opt.Origins, origin)
}

func sameHost(origin, host string) bool {
	u, err := url.Parse(origin)
	return err == nil && u.Host != "" && strings.EqualFold(u.Host, host)
}

// answeredCORS tells the browser of an allowed page that it may read what
// comes back; the question whether it may ask needs no token.
func answeredCORS(w http.ResponseWriter, r *http.Request, origin string) bool {
	if origin == "" || sameHost(origin, r.Host) {
		return false
	}
	h := w.Header()
	h.Set("Access-Control-Allow-Origin", origin)
	h.Set("Access-Control-Expose-Headers", "Mcp-Session-Id, X-Request-Id, Retry-After, Link, Idempotency-Replayed, Hutch-File")
	h.Add("Vary", "Origin")
	if r.Method != http.MethodOptions || r.Header.Get("Access-Control-Request-Method") == "" {
		return false
	}
	h.Set("Access-Control-Allow-Methods", "GET, POST, PUT, PATCH, DELETE")
	h.Set("Access-Control-Allow-Headers", r.Header.Get("Access-Control-Request-Headers"))
	h.Set("Access-Control-Max-Age", "600")
	w.WriteHeader(http.StatusNoContent)
	return true
}

// authorized reports whether the request bears a good token, and answers it
// when it does not.
func (g *guard) authorized(w http.ResponseWriter, r *http.Request) bool {
	token := bearer(r)
	if token != "" && g.check(r, token) {
		return true
	}
	challenge, words := `Bearer realm="hutch"`, "this needs a token: send the header Authorization: Bearer TOKEN"
	if token != "" {
		challenge, words = challenge+`, error="invalid_token"`, "the token is not valid here: it may be mistyped, revoked or another server's"
	}
	w.Header().Set("WWW-Authenticate", challenge)
	refuse(w, http.StatusUnauthorized, hutch.Errorf(hutch.Denied, "%s", words))
	return false
}

// bearer is the token of a request, or empty.
func bearer(r *http.Request) string {
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return ""
	}
	return strings.TrimSpace(token)
}

// check compares hashes, all of them and to the end, so that the time it takes
// says nothing about any token.
func (g *guard) check(r *http.Request, token string) bool {
	if g.opt.Check != nil {
		return g.opt.Check(r, token)
	}
	given, found := sha256.Sum256([]byte(token)), 0
	for _, hash := range g.hashes {
		found |= subtle.ConstantTimeCompare(given[:], hash[:])
	}
	return found == 1
}

func tooLarge(w http.ResponseWriter, limit int64) {
	refuse(w, http.StatusRequestEntityTooLarge, hutch.Errorf(hutch.Invalid, "the body of the request is over the limit of %d bytes: send it in parts", limit))
}

// refuse answers with a status that the kind of the error alone does not give.
func refuse(w http.ResponseWriter, status int, err error) {
	d := problem.New(err)
	d.Status, d.Title = status, http.StatusText(status)
	d.Write(w)
}
