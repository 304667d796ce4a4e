// Package preview shows servers in sandboxes to browsers. Each exposed port has its own host name, LABEL.DOMAIN (see
// hutch.Port), so a browser treats it as a separate origin, which shares nothing with the origins of the daemon and of
// other previews.
//
// Both sides are hostile. Requests are limited in size and time, and reach a port only with its label, which is a
// secret. A private port also needs a token, a signed link, or a cookie that was set for one of these. Answers from a
// sandbox keep their meaning, except for effects beyond their own host: cookies for other hosts, wiped storage.
// Credentials of the daemon are not passed to the sandbox.
//
// gRPC calls reach the sandbox over HTTP/2, all other requests over HTTP/1.1.
//
// Clients without names below the domain can use paths, /preview/LABEL/, on the daemon's own host. The browser is then
// told to give every such page a unique origin (CSP sandbox): see docs/decisions/previews.md.
package preview

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"net/netip"
	"strings"
	"time"

	"hutch"
	"hutch/internal/caller"
	"hutch/internal/guesses"
	"hutch/internal/httpio"
)

// Sandboxes finds previews, and connects to them on behalf of the owner in the context.
type Sandboxes interface {
	hutch.Previews
	DialPort(ctx context.Context, sandbox string, port int) (net.Conn, error)
}

// Options configure previews. Sandboxes is required.
type Options struct {
	Sandboxes Sandboxes
	// Domain is the parent domain of the labels; default localhost, because browsers resolve its subdomains to this
	// machine without setup (RFC 6761).
	Domain string
	// Login is the URL of this server, without a path. People log in to private previews there.
	Login string
	// Known reports whether a token is one of this server; such tokens are never passed to programs in sandboxes. May
	// reports whether a token can see a preview. Named does the same for the name of a token with which a person logged
	// in earlier. Without these functions, no token opens a preview.
	Known func(ctx context.Context, token string) bool
	May   func(ctx context.Context, token string, p hutch.Preview) (Visitor, bool)
	Named func(name string, p hutch.Preview) (Visitor, bool)
	// Own reports whether a host below the domain is the server's own; nil means that no host is. Every other host
	// below the domain is a preview or unknown.
	Own func(host string) bool
	// Client returns the address of a request's client, and whether a trusted proxy reported it. If it is nil, the
	// address of the connection is used.
	Client func(*http.Request) (addr netip.Addr, proxied bool)
	// Claim counts the connection of a request towards the connections of all visitors to an owner's previews; it
	// returns false if there are too many. nil accepts all.
	Claim func(ctx context.Context, owner string) bool
	// AnswerTimeout is how long a server can take before its answer begins; default 2 minutes. MaxBody bounds requests, in
	// bytes; default 1 GiB.
	AnswerTimeout time.Duration
	MaxBody       int64
	Log           *slog.Logger
}

// Visitor is the holder of a token that can see a preview.
type Visitor struct {
	// Hold returns a context that ends with the token.
	Hold func(context.Context) (context.Context, context.CancelFunc)
	// Name identifies the token in cookies without revealing it. Proof changes when the token's secret changes, which
	// ends the logins with the old secret. Name is empty if this server does not store the token, for example a token
	// of an issuer.
	Name  string
	Proof []byte
	// Expires is when the token ends; zero for never.
	Expires time.Time
}

// Handler serves previews, and passes all other requests on.
type Handler struct {
	next      http.Handler
	opt       Options
	log       *slog.Logger
	transport *http.Transport
	calling   callTransport
	proxy     *httputil.ReverseProxy
	buffers   buffers
	guesses   guesses.Counter // guesses of labels and tokens
	// foreign counts tokens that are not of this server, because they can be guesses. Such tokens are passed to the
	// program in the sandbox, and tokens of this server are not. So without a limit, anyone with a sandbox could find
	// out which guesses are right.
	foreign guesses.Counter
	calls   calls
}

// New puts previews in front of next.
func New(next http.Handler, opt Options) *Handler {
	if opt.Domain == "" {
		opt.Domain = "localhost"
	}
	if opt.AnswerTimeout == 0 {
		opt.AnswerTimeout = 2 * time.Minute
	}
	if opt.MaxBody == 0 {
		opt.MaxBody = 1 << 30
	}
	if opt.Log == nil {
		opt.Log = slog.New(slog.DiscardHandler)
	}
	if opt.Known == nil {
		opt.Known = func(context.Context, string) bool { return false }
	}
	if opt.May == nil {
		opt.May = func(context.Context, string, hutch.Preview) (Visitor, bool) { return Visitor{}, false }
	}
	if opt.Named == nil {
		opt.Named = func(string, hutch.Preview) (Visitor, bool) { return Visitor{}, false }
	}
	if opt.Own == nil {
		opt.Own = func(string) bool { return false }
	}
	if opt.Client == nil {
		opt.Client = remote
	}
	if opt.Claim == nil {
		opt.Claim = func(context.Context, string) bool { return true }
	}
	h := &Handler{next: next, opt: opt, log: opt.Log, foreign: guesses.Counter{Most: mostForeign}}
	h.transport = &http.Transport{
		DialContext: h.dial,
		// An HTTPS server in a sandbox has a self-signed certificate. A program that can intercept the connection can
		// also change the server.
		TLSClientConfig:        &tls.Config{InsecureSkipVerify: true},
		TLSHandshakeTimeout:    handshakeTime,
		DisableCompression:     true,
		MaxIdleConns:           512,
		MaxIdleConnsPerHost:    64,
		IdleConnTimeout:        idleTime,
		ResponseHeaderTimeout:  opt.AnswerTimeout,
		ExpectContinueTimeout:  time.Second,
		MaxResponseHeaderBytes: maxHeader,
		WriteBufferSize:        32 << 10,
		ReadBufferSize:         32 << 10,
	}
	h.calling = newCallTransport(h.transport)
	h.proxy = &httputil.ReverseProxy{
		Rewrite: h.rewrite, ModifyResponse: h.restrictEffects, ErrorHandler: h.failed, Transport: finalOnly{h.transport},
		ErrorLog: slog.NewLogLogger(opt.Log.Handler(), slog.LevelDebug),
	}
	return h
}

const (
	// idleTime is how long a connection is kept for the next request. Meanwhile the connection counts as a use of the
	// sandbox. The time is shorter than the idle timeouts of common servers, such as 5 s for Node.
	idleTime  = 4 * time.Second
	maxHeader = 64 << 10 // most bytes of the header of an answer
	// handshakeTime is how long a server in a sandbox can take for the handshake of TLS.
	handshakeTime = 20 * time.Second
)

// mostForeign is how many different short tokens that are not of this server an address can send to previews in a
// minute.
const mostForeign = 100

// unguessable is the length from which tokens are not counted, because that many characters cannot be guessed. So
// programs can use long tokens of their own that are new in each request.
const unguessable = 40

// Close closes idle connections.
func (h *Handler) Close() {
	h.transport.CloseIdleConnections()
	h.calling.CloseIdleConnections()
}

// pathPrefix is the prefix of all paths of the path form.
const pathPrefix = "/preview/"

// ServeHTTP implements http.Handler.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if label, ok := h.labelOf(r.Host); ok {
		h.open(w, r, &visit{label: label})
		return
	}
	if h.isUnknownHost(r.Host) {
		h.page(w, r, unknown)
		return
	}
	path, ok := strings.CutPrefix(r.URL.Path, pathPrefix)
	label, _, slash := strings.Cut(path, "/")
	switch {
	case ok && label == "login" && !slash:
		h.login(w, r)
	case ok && isLabel(label) && !slash:
		http.Redirect(w, r, pathPrefix+label+"/", http.StatusPermanentRedirect)
	case ok && isLabel(label):
		h.open(w, r, &visit{label: label, prefix: pathPrefix + label})
	default:
		h.next.ServeHTTP(w, r)
	}
}

// labelOf returns the label in a Host header, if that names a preview.
func (h *Handler) labelOf(host string) (string, bool) {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	label, domain, _ := strings.Cut(strings.ToLower(strings.TrimSuffix(host, ".")), ".")
	return label, domain == h.opt.Domain && isLabel(label)
}

// isUnknownHost reports whether a Host header is below the domain of previews, but neither a preview nor the server.
func (h *Handler) isUnknownHost(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	return strings.HasSuffix(host, "."+h.opt.Domain) && !h.opt.Own(host)
}

// isLabel reports whether a name begins as labels do: with a port. Other names belong to the daemon.
func isLabel(name string) bool {
	port, _, ok := strings.Cut(name, "-")
	return ok && port != "" && strings.Trim(port, "0123456789") == "" && len(name) <= 63
}

// visit is one request to a preview.
type visit struct {
	label  string
	prefix string // prefix of the path in the path form; otherwise empty
	length int64  // length of the answer's body, once it has begun; -1 if unknown
	hutch.Preview

	moved *hutch.Preview // set when the request is to be repeated, because the sandbox is on another machine now
	last  bool           // the request was repeated already

	body     io.ReadCloser // set for a gRPC call
	deadline time.Time     // set for a call with a deadline
}

type visitKey struct{}

func visitOf(r *http.Request) *visit { return r.Context().Value(visitKey{}).(*visit) }

// open checks a visitor, and shows a preview to one that is authorized.
func (h *Handler) open(w http.ResponseWriter, r *http.Request, v *visit) {
	began, addr := time.Now(), h.client(r)
	sw := &answer{Writer: httpio.NewWriter(w, r, readTimeout)}
	defer func() {
		h.log.Debug("preview", "sandbox", v.SandboxID, "port", v.Port.Port, "method", r.Method, "status", sw.status, "took", time.Since(began))
	}()
	if v.prefix != "" {
		isolate(sw.Header(), r)
	}
	if h.guesses.Over(addr) {
		h.page(sw, r, tooMany)
		return
	}
	p, err := h.opt.Sandboxes.Preview(v.label)
	if err != nil || r.Method == http.MethodConnect {
		h.guesses.Wrong(addr, v.label) // also if the look-up failed: otherwise strangers could guess without limit while a machine is slow
		h.page(sw, r, errorNotice(err))
		return
	}
	v.Preview = p
	if !h.opt.Claim(r.Context(), p.Owner) {
		h.page(sw, r, full)
		return
	}
	ctx, leave := h.enter(sw, r, v)
	if ctx == nil {
		return
	}
	defer leave()
	r = r.WithContext(ctx)
	h.forward(sw, r, v)
	if v.moved != nil {
		h.forward(sw, r, &visit{label: v.label, prefix: v.prefix, Preview: *v.moved, last: true})
	}
}

// Show passes a request to the server of a label, for an API that has authorized its client itself. prefix is the
// beginning of the request's path, which the API reserves for the server of this label. As in the path form, the answer
// comes from the daemon's own host. So the answer makes browsers give the page a unique origin, and cookies are not passed.
func (h *Handler) Show(w http.ResponseWriter, r *http.Request, label, prefix string) {
	sw := &answer{Writer: httpio.NewWriter(w, r, readTimeout)}
	policies := sw.Header().Values("Content-Security-Policy") // set by the API; browsers apply all policies together
	isolate(sw.Header(), r)
	for _, policy := range policies {
		sw.Header().Add("Content-Security-Policy", policy)
	}
	p, err := h.opt.Sandboxes.Preview(label)
	if err != nil || r.Method == http.MethodConnect {
		h.page(sw, r, errorNotice(err))
		return
	}
	h.forward(sw, r, &visit{label: label, prefix: prefix, Preview: p})
}

// forward passes a request to the server in the sandbox, for as long as the port is exposed.
func (h *Handler) forward(w *answer, r *http.Request, v *visit) {
	ctx, end := caller.Until(context.WithValue(r.Context(), visitKey{}, v), v.Life)
	defer end()
	r = r.WithContext(ctx)
	if isCall(r) {
		h.call(w, r)
		return
	}
	if r.ContentLength > h.opt.MaxBody {
		h.page(w, r, tooLarge)
		return
	}
	if r.Body != nil && r.Body != http.NoBody {
		r.Body = http.MaxBytesReader(w.ResponseWriter, r.Body, h.opt.MaxBody)
		r.Body = httpio.NewBody(w.ResponseWriter, r, bodyIdleTimeout)
	}
	if v.prefix != "" && answerPreflight(w, r) {
		return
	}
	if !h.hide(r) {
		h.page(w, r, tooManyTokens)
		return
	}
	proxy := *h.proxy
	proxy.BufferPool = visitBuffers{&h.buffers, v}
	proxy.ServeHTTP(w, r)
}

// dial connects to the server of a label.
func (h *Handler) dial(ctx context.Context, _, addr string) (net.Conn, error) {
	label, _, _ := strings.Cut(addr, ":")
	p, err := h.opt.Sandboxes.Preview(label)
	if err != nil {
		return nil, err
	}
	return h.opt.Sandboxes.DialPort(caller.WithOwner(ctx, caller.Owner{ID: p.Owner}), p.SandboxID, p.Port.Port)
}

// failed answers in place of a server that does not answer.
func (h *Handler) failed(w http.ResponseWriter, r *http.Request, err error) {
	v := visitOf(r)
	if v.prefix != "" {
		isolate(w.Header(), r)
	}
	if r.Context().Err() != nil && v.Life.Err() == nil { // the client has disconnected
		w.WriteHeader(http.StatusBadGateway)
		return
	}
	p, moved, unclear := h.movedTo(v)
	switch {
	case unclear != nil:
		h.page(w, r, errorNotice(unclear))
	case !moved:
		h.page(w, r, h.why(r, err))
	case v.last || !repeatable(r):
		h.page(w, r, moving)
	default:
		v.moved = &p
	}
}

// movedTo looks for a preview that ended during a visit: when a sandbox moves to another machine as it wakes, its ports
// end on one and begin on the other. An error means that this cannot be found out now.
func (h *Handler) movedTo(v *visit) (p hutch.Preview, ok bool, err error) {
	if v.Life.Err() == nil {
		return p, false, nil
	}
	p, err = h.opt.Sandboxes.Preview(v.label)
	if isUnclear(err) {
		return p, false, err
	}
	return p, err == nil && p.Owner == v.Owner && p.SandboxID == v.SandboxID && p.Access == v.Access && p.Life.Err() == nil, nil
}

// isUnclear reports whether an error of [hutch.Previews] leaves open whether the preview exists.
func isUnclear(err error) bool { return err != nil && hutch.KindOf(err) != hutch.NotFound }

// repeatable reports whether a request can be sent again.
func repeatable(r *http.Request) bool {
	return r.ContentLength == 0 && (r.Method == http.MethodGet || r.Method == http.MethodHead || r.Method == http.MethodOptions)
}

// why explains why a server does not answer.
func (h *Handler) why(r *http.Request, err error) notice {
	v := visitOf(r)
	timeout, late := errors.AsType[net.Error](err)
	_, large := errors.AsType[*http.MaxBytesError](err)
	e, ours := errors.AsType[*hutch.Error](err)
	switch {
	case v.Life.Err() != nil:
		return unknown
	case large:
		return tooLarge
	case ours && noServer(e):
		return nobody.about(v)
	case ours:
		return errorNotice(err)
	case isPlain(err):
		return noTLS.about(v)
	case late && timeout.Timeout(), v.late():
		return silent.about(v)
	}
	h.log.Debug("preview", "sandbox", v.SandboxID, "port", v.Port.Port, "err", err)
	return broken.about(v)
}

// isPlain reports whether a server that should speak TLS answered without it.
func isPlain(err error) bool {
	_, plain := errors.AsType[tls.RecordHeaderError](err)
	return plain
}

// noServer reports whether no server answered on the port.
func noServer(e *hutch.Error) bool {
	about, _ := e.About()
	return e.Kind == hutch.Unavailable && about == hutch.AboutPort
}

// readTimeout is how long a client may leave data unread, and bodyIdleTimeout how long a body may bring no data.
const (
	readTimeout     = 5 * time.Minute
	bodyIdleTimeout = time.Minute
)

// answer is the answer to a browser. It records the status for the log.
type answer struct {
	*httpio.Writer
	status int
}

func (a *answer) WriteHeader(status int) {
	if status >= 200 || status == http.StatusSwitchingProtocols {
		a.status = status
	}
	a.ResponseWriter.WriteHeader(status)
}

// remote returns the address of the connection.
func remote(r *http.Request) (netip.Addr, bool) {
	from, _ := netip.ParseAddrPort(r.RemoteAddr)
	return from.Addr().Unmap(), false
}

// client returns the address for which the guesses of a request are counted.
func (h *Handler) client(r *http.Request) netip.Addr {
	addr, _ := h.opt.Client(r)
	return addr
}
