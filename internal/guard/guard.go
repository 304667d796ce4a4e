// Package guard is in front of every surface: it decides which requests to
// accept, counts them, and logs each.
//
// A request must name one of the server's hosts; otherwise any web page could reach a server on loopback by pointing
// its own name at it (DNS rebinding). It must come from an allowed page, or from no page. And it must have a token, in
// any of the places that package credential knows. The token's principal is then in the request's context, which ends
// when the token is no longer valid. Only health, the description of the API, and what Options.Open allows need no
// token.
package guard

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"hutch"
	"hutch/internal/caller"
	"hutch/internal/credential"
	"hutch/internal/httpio"
	"hutch/internal/membudget"
	"hutch/internal/netaddr"
	"hutch/internal/problem"
	"hutch/internal/quota"
)

// Options set which requests are accepted. The zero value accepts none.
type Options struct {
	// Check returns the principal of a bearer token. Its error is sent to the client; it is of kind Denied if the token
	// is not valid.
	Check func(ctx context.Context, token string) (*caller.Principal, error)
	// Metadata is the URL that tells clients without a token which issuer issues tokens (RFC 9728); empty for none.
	Metadata string
	// Requests counts the requests of each principal; nil counts nothing.
	Requests *quota.Meter
	// Known, when set, returns the principal of a request whose credential is not a token, and nil for every other
	// request.
	Known func(*http.Request) *caller.Principal
	// Session, when set, returns the principal of a request without a token that belongs to a browser's session, and nil
	// for every other request. It can set headers of the answer. Its error refuses the request.
	Session func(w http.ResponseWriter, r *http.Request) (*caller.Principal, error)
	// Refuse answers a request over its principal's limit; the default is problem details.
	Refuse func(w http.ResponseWriter, r *http.Request, err error)
	// Shape returns the error format for a request; nil, and a nil result, mean problem details.
	Shape func(*http.Request) Refusal
	// Named, when set, reports further host names of the server.
	Named func(host string) bool
	// Hosts are names of the server, without a port, in addition to loopback names and the address that was called. "*"
	// allows any, for a server behind a proxy that checks.
	Hosts []string
	// Origins are the origins of web pages that can call, in addition to the server's own, such as
	// "https://app.example.com".
	Origins []string
	// MaxBody is the longest request body, in bytes; default 64 MiB, negative
	// for no limit.
	MaxBody int64
	// Unbounded, when set, reports requests to which MaxBody does not apply.
	Unbounded func(*http.Request) bool
	// Open, when set, reports further requests that need no token.
	Open func(*http.Request) bool
	// Budget limits the memory that is held for principals: here for the bodies of their requests, and in surfaces for
	// other data. nil sets no limit.
	Budget *membudget.Budget
	// Claim counts the connection of a request towards a class: that of an owner, or that of callers without a token.
	// It returns false when the class has too many connections. nil accepts all.
	Claim func(ctx context.Context, class string) bool
	Log   *slog.Logger
}

// Refusal answers a request with an error.
type Refusal func(w http.ResponseWriter, status int, err error)

type guard struct {
	next http.Handler
	opt  Options
	log  *slog.Logger
}

// New returns a handler that guards next.
func New(next http.Handler, opt Options) http.Handler {
	g := &guard{next: next, opt: opt, log: opt.Log}
	if g.log == nil {
		g.log = slog.New(slog.DiscardHandler)
	}
	if opt.MaxBody == 0 {
		g.opt.MaxBody = 64 << 20
	}
	if opt.Claim == nil {
		g.opt.Claim = func(context.Context, string) bool { return true }
	}
	if opt.Refuse == nil {
		g.opt.Refuse = func(w http.ResponseWriter, _ *http.Request, err error) { problem.Write(w, err) }
	}
	return g.record(g.admit)
}

// admit refuses a request or passes it on.
func (g *guard) admit(w *recorder, r *http.Request) {
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
	if open(r) || g.opt.Open != nil && g.opt.Open(r) {
		g.passAnyone(w, r)
		return
	}
	who, err := g.signedIn(w, r)
	if err != nil {
		g.refuse(w, r, problem.Status(hutch.KindOf(err)), err)
		return
	}
	from := caller.From(r.Context())
	if who != nil {
		from.Origin.Surface = "console"
	} else if who, err = g.identify(r); err != nil {
		g.challenge(w, r, err)
		return
	}
	credential.Hide(r)
	w.token = who.Name
	if !g.opt.Claim(r.Context(), "owner "+who.Owner) {
		g.opt.Refuse(w, r, errTooMany)
		return
	}
	if !g.count(w, r, who) {
		return
	}
	c := caller.From(caller.As(caller.With(r.Context(), from), who))
	var free func()
	c.Budget, free = g.opt.Budget.Open(who.Owner)
	defer free()
	ctx, release := hold(caller.With(r.Context(), c), w)
	defer release()
	g.pass(w, r.WithContext(ctx))
}

// pass passes a request on, with a bounded body.
func (g *guard) pass(w http.ResponseWriter, r *http.Request) {
	if g.opt.MaxBody >= 0 && (g.opt.Unbounded == nil || !g.opt.Unbounded(r)) {
		if r.ContentLength > g.opt.MaxBody {
			g.refuse(w, r, http.StatusRequestEntityTooLarge, tooLarge(g.opt.MaxBody))
			return
		}
		account := caller.From(r.Context()).Budget
		if !account.Take(int(max(r.ContentLength, 0))) {
			g.opt.Refuse(w, r, errNoRoom)
			return
		}
		r.Body = http.MaxBytesReader(w, &taken{r.Body, account, max(r.ContentLength, 0)}, g.opt.MaxBody)
	} else if r.Body != nil && r.Body != http.NoBody {
		if r.ProtoMajor == 1 {
			defer httpio.Drain(w, r.Body)
		}
		body := httpio.NewBody(w, r, bodyIdleTimeout)
		defer body.End()
		r.Body = body
	}
	g.next.ServeHTTP(w, r)
}

// passAnyone passes on a request that needs no token. Such callers are unknown, so all of them share one limit. Health
// has a separate limit, so that callers who read files slowly do not make a monitor believe that the server is down.
// Its own answers are too short to be read slowly.
func (g *guard) passAnyone(w http.ResponseWriter, r *http.Request) {
	class := "anyone"
	if slices.Contains(monitored, r.URL.Path) {
		class = "monitors"
	}
	if !g.opt.Claim(r.Context(), class) {
		g.opt.Refuse(w, r, errTooMany)
		return
	}
	if open(r) { // the answer is short, so a slow client can be cut
		rc := http.NewResponseController(w)
		rc.SetWriteDeadline(time.Now().Add(openTime))
		defer rc.SetWriteDeadline(time.Time{})
	}
	g.pass(w, r)
}

// openTime is how long a client without a token can take to read an answer.
const openTime = 30 * time.Second

// errTooMany is the error for a client whose owner uses its whole share of the server's connections.
var errTooMany = hutch.Errorf(hutch.Exhausted, "there are as many connections as one owner may have, and all of them are in use: close some, send requests one after the other on one connection, or start the server with a higher --max-connections").
	With("limit", "connections").With("retryAfter", 1)

// errNoRoom is the error for a request over its memory budget, sent before anything is done.
var errNoRoom = hutch.Errorf(hutch.Exhausted, "the requests and answers of this token that are under way take as much memory as it may have: wait for some, or send less at a time").
	With("limit", "memory of requests").With("retryAfter", 1)

// taken is a body held in memory. A declared length is charged at the start. A body without a declared length is
// charged as it arrives.
type taken struct {
	io.ReadCloser
	account *membudget.Account
	ahead   int64
}

func (t *taken) Read(b []byte) (int, error) {
	n, err := t.ReadCloser.Read(b)
	if t.ahead -= int64(n); t.ahead < 0 {
		if !t.account.Take(int(-t.ahead)) {
			return 0, errNoRoom
		}
		t.ahead = 0
	}
	return n, err
}

// opens are the paths that anyone can read: health, and the API's description, which browsers request without a
// token.
var opens = append([]string{"/v1/openapi.yaml", "/v1/openapi.json", "/v1/docs"}, monitored...)

// monitored are the paths of health.
var monitored = []string{"/health", "/ready"}

// open reports whether the request needs no token.
func open(r *http.Request) bool {
	return slices.Contains(opens, r.URL.Path) && (r.Method == http.MethodGet || r.Method == http.MethodHead)
}

func (g *guard) hostAllowed(r *http.Request) bool {
	host := hostname(r.Host)
	if host == "" {
		return false
	}
	// Names under localhost always mean this machine (RFC 6761).
	if netaddr.IsLoopback(host) || strings.HasSuffix(host, ".localhost") {
		return true
	}
	if ip, err := netip.ParseAddr(host); err == nil && ip.Unmap() == localAddr(r) {
		return true
	}
	return slices.ContainsFunc(g.opt.Hosts, func(h string) bool { return h == "*" || strings.EqualFold(h, host) }) ||
		g.opt.Named != nil && g.opt.Named(host)
}

// hostname returns a Host header without its port, in lower case.
func hostname(hostport string) string {
	host, _ := netaddr.SplitHost(hostport)
	return strings.ToLower(strings.TrimSuffix(host, "."))
}

// localAddr returns the address that the client connected to.
func localAddr(r *http.Request) netip.Addr {
	if tcp, ok := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr); ok {
		return tcp.AddrPort().Addr().Unmap()
	}
	return netip.Addr{}
}

// originAllowed allows programs, which send no origin, the server's own pages, and the pages allowed by name.
func (g *guard) originAllowed(r *http.Request, origin string) bool {
	return origin == "" || sameHost(origin, r.Host) || slices.Contains(g.opt.Origins, origin)
}

func sameHost(origin, host string) bool {
	u, err := url.Parse(origin)
	return err == nil && u.Host != "" && strings.EqualFold(u.Host, host)
}

// answeredCORS tells the browser of an allowed page that it can read the answer. The browser's preflight request
// needs no token.
func answeredCORS(w http.ResponseWriter, r *http.Request, origin string) bool {
	if origin == "" || sameHost(origin, r.Host) {
		return false
	}
	h := w.Header()
	h.Set("Access-Control-Allow-Origin", origin)
	h.Set("Access-Control-Expose-Headers", "Mcp-Session-Id, X-Request-Id, X-RateLimit-Limit, X-RateLimit-Remaining, X-RateLimit-Reset, Retry-After, Link, Idempotency-Replayed, Hutch-File")
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

// signedIn returns the principal of a browser's session. A request with any other credential does not use the session,
// because a page that sends a token wants to use that token.
func (g *guard) signedIn(w http.ResponseWriter, r *http.Request) (*caller.Principal, error) {
	if g.opt.Session == nil || !credential.None(r) {
		return nil, nil
	}
	return g.opt.Session(w, r)
}

// identify returns the principal of a request.
func (g *guard) identify(r *http.Request) (*caller.Principal, error) {
	if g.opt.Known != nil {
		if who := g.opt.Known(r); who != nil {
			return who, nil
		}
	}
	token := credential.Of(r)
	if token == "" || g.opt.Check == nil {
		return nil, errNoToken
	}
	who, err := g.opt.Check(r.Context(), token)
	if plain, ok := credential.Decoded(token); ok && errors.Is(err, hutch.Denied) {
		return g.opt.Check(r.Context(), plain)
	}
	return who, err
}

var errNoToken = hutch.Errorf(hutch.Denied, "this needs a token: send the header Authorization: Bearer TOKEN; in a browser, sign in again")

// challenge answers a request without a valid token.
func (g *guard) challenge(w http.ResponseWriter, r *http.Request, err error) {
	if !errors.Is(err, hutch.Denied) {
		g.refuse(w, r, problem.Status(hutch.KindOf(err)), err) // it is unknown whether the token is valid
		return
	}
	words := `Bearer realm="hutch"`
	if credential.Of(r) != "" {
		words += `, error="invalid_token"`
	}
	if g.opt.Metadata != "" {
		words += fmt.Sprintf(`, resource_metadata=%q`, g.opt.Metadata)
	}
	w.Header().Set("WWW-Authenticate", words)
	g.refuse(w, r, http.StatusUnauthorized, err)
}

// refuse answers with an error in the format that the request's client expects.
func (g *guard) refuse(w http.ResponseWriter, r *http.Request, status int, err error) {
	if g.opt.Shape != nil {
		if answer := g.opt.Shape(r); answer != nil {
			answer(w, status, err)
			return
		}
	}
	refuse(w, status, err)
}

// count adds the state of the caller's request limit to the answer, and refuses requests over the limit.
func (g *guard) count(w http.ResponseWriter, r *http.Request, who *caller.Principal) bool {
	if g.opt.Requests == nil {
		return true
	}
	s, err := g.opt.Requests.Take(r.Context(), who.ID, who.Limits.Requests)
	h := w.Header()
	h.Set("X-RateLimit-Limit", strconv.Itoa(s.Limit))
	h.Set("X-RateLimit-Remaining", strconv.Itoa(s.Remaining))
	h.Set("X-RateLimit-Reset", strconv.FormatInt(s.Reset.Unix()+1, 10)) // +1 rounds up: the window ends within that second
	if err != nil {
		g.opt.Refuse(w, r, err)
	}
	return err == nil
}

// hold returns a context that ends with the token of its caller. The request's reads and writes then end too.
func hold(ctx context.Context, w http.ResponseWriter) (context.Context, func()) {
	ctx, release := caller.From(ctx).Principal.Hold(ctx)
	rc := http.NewResponseController(w)
	stop := context.AfterFunc(ctx, func() {
		rc.SetReadDeadline(time.Now())
		rc.SetWriteDeadline(time.Now().Add(closeTimeout))
	})
	return ctx, func() { stop(); release() }
}

// closeTimeout bounds the last write to a client whose token has ended.
const closeTimeout = time.Second

// bodyIdleTimeout is how long a body without a known end may bring nothing.
const bodyIdleTimeout = time.Minute

func tooLarge(limit int64) error {
	return hutch.Errorf(hutch.Invalid, "the body of the request is over the limit of %d bytes: send it in parts", limit)
}

// refuse answers with an error and a given status, instead of the status of the error's kind.
func refuse(w http.ResponseWriter, status int, err error) {
	d := problem.New(err)
	d.Status, d.Title = status, http.StatusText(status)
	d.Write(w)
}
