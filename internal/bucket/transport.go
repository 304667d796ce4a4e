package bucket

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"syscall"
	"time"

	"hutch"
	"hutch/internal/netaddr"
)

const (
	pieceTimeout = 30 * time.Second // for each piece of an answer
	mostAnswer   = 5 << 20          // bytes of an answer that is not the content of an object; a list of 1000 objects is smaller
	mostTags     = 60_000           // XML tags in such an answer; a list of 1000 objects has a third of that
	mostHeaders  = 64 << 10
	// A list of 100,000 objects has 100 pages, or some more if the service sends short pages. Even an empty page takes
	// CPU time.
	mostPages = 2000
	mostLists = 256 << 20 // bytes of all pages
)

// Transport returns the transport for services that users name, which are not trusted. It connects to public addresses
// with TLS. The hosts in allowed, written HOST:PORT, can have private and loopback addresses and no TLS. If a service
// hangs, or answers without end, the request fails.
func Transport(allowed []string) http.RoundTripper {
	return guarded{allowed, &http.Transport{
		DialContext:            dialer(allowed),
		TLSHandshakeTimeout:    pieceTimeout,
		ResponseHeaderTimeout:  pieceTimeout,
		MaxResponseHeaderBytes: mostHeaders,
		MaxIdleConnsPerHost:    2,
		MaxIdleConns:           64, // a user can name any number of hosts below a domain
		IdleConnTimeout:        pieceTimeout,
		DisableCompression:     true,
	}}
}

func dialer(allowed []string) func(ctx context.Context, network, address string) (net.Conn, error) {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		d := net.Dialer{Timeout: pieceTimeout, Control: func(_, at string, _ syscall.RawConn) error {
			to, err := netip.ParseAddrPort(at)
			if err == nil && netaddr.Allowed(to.Addr(), slices.Contains(allowed, address)) {
				return nil
			}
			return hutch.Errorf(hutch.Denied, "the bucket's endpoint %s leads to %s, which is private, local or metadata: the server's administrator must allow it (--bucket-host)", address, at)
		}}
		conn, err := d.DialContext(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return idleTimeoutConn{conn}, nil
	}
}

// idleTimeoutConn is a connection that fails if nothing is transferred for a while.
type idleTimeoutConn struct{ net.Conn }

func (c idleTimeoutConn) Read(b []byte) (int, error) {
	c.SetDeadline(time.Now().Add(pieceTimeout))
	return c.Conn.Read(b)
}

func (c idleTimeoutConn) Write(b []byte) (int, error) {
	c.SetDeadline(time.Now().Add(pieceTimeout))
	return c.Conn.Write(b)
}

// guarded refuses connections without TLS, and bounds answers.
type guarded struct {
	allowed []string
	next    http.RoundTripper
}

func (g guarded) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.Scheme != "https" && !slices.Contains(g.allowed, hostPort(r.URL)) {
		return nil, hutch.Errorf(hutch.Denied, "the bucket's endpoint %s is without TLS: use https, or let the server's administrator allow it (--bucket-host)", hostPort(r.URL))
	}
	l, _ := r.Context().Value(listKey{}).(*list)
	if l != nil {
		if l.pages++; l.pages > mostPages || l.bytes > mostLists {
			return nil, hutch.Errorf(hutch.Unavailable, "the bucket's endpoint %s lists objects without end: correct the URL", hostPort(r.URL))
		}
	}
	answer, err := g.next.RoundTrip(r)
	if err == nil && !isContent(r, answer) {
		answer.Body = &bounded{answer.Body, mostAnswer, mostTags, l}
	}
	return answer, err
}

// list counts the pages and bytes of a listing that all requests of one context have read. These requests are made one
// after another.
type list struct{ pages, bytes int }

type listKey struct{}

// isContent reports whether an answer is the content of an object. Bucket.Get limits its length.
func isContent(r *http.Request, answer *http.Response) bool {
	return r.Method == http.MethodGet && r.URL.RawQuery == "" && answer.StatusCode == http.StatusOK
}

func hostPort(u *url.URL) string {
	port := u.Port()
	if port == "" {
		port = "80"
	}
	return net.JoinHostPort(u.Hostname(), port)
}

// bounded is an answer with limits on its bytes and its tags. Tags have their own limit, because an empty element of ten
// bytes takes about a thousand bytes of memory when it is decoded.
type bounded struct {
	io.ReadCloser
	left, tags int
	list       *list // nil if the answer is not a page of a list
}

var errLongAnswer = errors.New("the answer of the service is too long")

func (b *bounded) Read(p []byte) (int, error) {
	if b.left <= 0 || b.tags < 0 {
		return 0, errLongAnswer
	}
	n, err := b.ReadCloser.Read(p[:min(len(p), b.left)])
	b.left -= n
	b.tags -= bytes.Count(p[:n], []byte("<"))
	if b.list != nil {
		b.list.bytes += n
	}
	return n, err
}
