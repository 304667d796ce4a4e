package egress

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"net/netip"
	"strings"
	"time"

	"hutch"
	"hutch/internal/listen"
	"hutch/internal/netaddr"
)

// carryHTTP forwards HTTP/1 requests, each to the requested name if that is allowed. It parses and writes each
// request again, so the server gets exactly what was checked.
func (g *Gateway) carryHTTP(p *connection, down, up net.Conn) error {
	down.SetReadDeadline(time.Time{})
	way := &proxy{g: g, p: p, up: make(chan net.Conn, 1)}
	way.up <- up
	transport := &http.Transport{DialContext: way.dial, DisableCompression: true, MaxConnsPerHost: 1, IdleConnTimeout: quietTime}
	defer transport.CloseIdleConnections()
	way.forward = &httputil.ReverseProxy{
		Rewrite: way.rewrite, Transport: transport, FlushInterval: -1,
		ModifyResponse: way.answered, ErrorHandler: way.failed, ErrorLog: silent,
	}
	server := &http.Server{
		Handler: way, ReadHeaderTimeout: helloTime, IdleTimeout: quietTime, MaxHeaderBytes: 64 << 10, ErrorLog: silent,
	}
	if err := server.Serve(listen.Once(down)); !errors.Is(err, net.ErrClosed) {
		return err
	}
	return nil
}

var silent = slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug)

// proxy handles the requests of one connection, which come one after the other.
type proxy struct {
	g       *Gateway
	p       *connection
	up      chan net.Conn // the connection that was dialed in advance
	forward *httputil.ReverseProxy
}

// request is one request, with its line in the log.
type request struct {
	line           *hutch.Connection
	sent, received int64 // of the connection, when the request began
	status         int
	reason         string
}

type requestKey struct{}

// dial connects to the server again, if it has closed the connection between two requests.
func (x *proxy) dial(ctx context.Context, network, _ string) (net.Conn, error) {
	select {
	case up := <-x.up:
		return up, nil
	default:
		return x.g.dial(ctx, network, x.p.dst)
	}
}

// ServeHTTP implements http.Handler.
func (x *proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	v := x.p.named("http", hostOf(r))
	if v.allowed() && r.Method == http.MethodConnect {
		v = denied("a request to connect leads to somewhere else")
	}
	if !v.allowed() {
		x.refuse(w, r, v)
		return
	}
	x.g.counts.requests.Add(1)
	x.g.opt.Observe.Decided("http", hutch.Allowed)
	q := &request{sent: x.p.sent.Load(), received: x.p.received.Load()}
	line := x.line(r)
	line.Verdict, line.Rule, line.Open = hutch.Allowed, v.rule, true
	q.line = x.g.record.add(line)
	defer x.close(q)
	x.forward.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), requestKey{}, q)))
}

func (x *proxy) line(r *http.Request) hutch.Connection {
	return hutch.Connection{
		Time: time.Now().UTC(), Protocol: "http", Host: shown(hostOf(r)), Method: shown(r.Method),
		Address: x.p.dst.Addr().String(), Port: int(x.p.dst.Port()),
	}
}

func (x *proxy) refuse(w http.ResponseWriter, r *http.Request, v verdict) {
	line := x.line(r)
	line.Status = http.StatusForbidden
	x.g.deny(line, v.reason)
	w.Header().Set("Connection", "close")
	http.Error(w, "the network of this sandbox does not allow it: "+r.Method+" "+hostOf(r), http.StatusForbidden)
}

func (x *proxy) close(q *request) {
	x.g.record.end(q.line, func(c *hutch.Connection) {
		c.Sent, c.Received = x.p.sent.Load()-q.sent, x.p.received.Load()-q.received
		c.Status, c.Reason = q.status, q.reason
	})
}

// rewrite makes the outgoing request a copy of the incoming one, without the headers that would make the connection
// unreadable for us.
func (x *proxy) rewrite(r *httputil.ProxyRequest) {
	r.Out.URL.Scheme, r.Out.URL.Host = "http", x.p.dst.String()
	r.Out.URL.RawQuery = r.In.URL.RawQuery
	r.Out.Host = r.In.Host
	for _, name := range []string{"Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto"} {
		if values, ok := r.In.Header[name]; ok {
			r.Out.Header[name] = values
		}
	}
	if _, ok := r.In.Header["User-Agent"]; !ok {
		r.Out.Header["User-Agent"] = nil // do not add our own
	}
	if !strings.EqualFold(r.In.Header.Get("Upgrade"), "websocket") {
		r.Out.Header.Del("Upgrade")
		r.Out.Header.Del("Connection")
		r.Out.Header.Del("Http2-Settings")
	}
}

func (x *proxy) answered(resp *http.Response) error {
	if q, ok := resp.Request.Context().Value(requestKey{}).(*request); ok {
		q.status = resp.StatusCode
	}
	return nil
}

func (x *proxy) failed(w http.ResponseWriter, r *http.Request, err error) {
	if q, ok := r.Context().Value(requestKey{}).(*request); ok {
		q.status, q.reason = http.StatusBadGateway, because(err)
	}
	http.Error(w, "the server could not be reached", http.StatusBadGateway)
}

// hostOf returns the host of a request, in the form of names in rules.
func hostOf(r *http.Request) string {
	host, _ := netaddr.SplitHost(r.Host)
	if a, err := netip.ParseAddr(host); err == nil {
		return a.String()
	}
	return strings.ToLower(strings.TrimSuffix(host, "."))
}
