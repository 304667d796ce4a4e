package registry

import (
	"context"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"hutch"
	"hutch/internal/netaddr"
)

// transport makes connections for all endpoints of a repository, and for the servers that these redirect to.
func (r *Repository) transport(proxy *url.URL) *http.Transport {
	var direct []string // hosts that the administrator configured
	for _, e := range r.endpoints {
		if e.private {
			direct = append(direct, hostPort(e.registry.RegistryStr(), e.insecure))
		}
	}
	trusted := direct
	if proxy != nil {
		trusted = append(slices.Clone(direct), hostPort(proxy.Host, proxy.Scheme == "http"))
	}
	return &http.Transport{
		Proxy: through(proxy, direct),
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			d := net.Dialer{Timeout: 10 * time.Second, Control: check(address, slices.Contains(trusted, address))}
			return d.DialContext(ctx, network, address)
		},
		ForceAttemptHTTP2:      true,
		TLSHandshakeTimeout:    10 * time.Second,
		ResponseHeaderTimeout:  r.idleTimeout,
		MaxResponseHeaderBytes: 64 << 10,
		MaxIdleConnsPerHost:    8,
		IdleConnTimeout:        30 * time.Second,
		DisableCompression:     true, // the digest is computed from the stored bytes
	}
}

// through returns a function that chooses the proxy for a request: none for the hosts in direct. The proxy resolves
// names, so only addresses and the names of its own machine can be refused here.
func through(proxy *url.URL, direct []string) func(*http.Request) (*url.URL, error) {
	if proxy == nil {
		return nil
	}
	return func(r *http.Request) (*url.URL, error) {
		to := hostPort(r.URL.Host, r.URL.Scheme == "http")
		if slices.Contains(direct, to) {
			return nil, nil
		}
		name := strings.ToLower(strings.TrimSuffix(r.URL.Hostname(), "."))
		at, err := netip.ParseAddr(name)
		if err == nil && !netaddr.Allowed(at, false) || err != nil && numeric(name) || name == "localhost" || strings.HasSuffix(name, ".localhost") {
			return nil, refused(r.URL.Host, name)
		}
		return proxy, nil
	}
}

// numeric reports whether a name is one that some programs read as an address, such as 127.1 or 0x7f000001.
func numeric(name string) bool {
	_, err := strconv.ParseUint(name[strings.LastIndexByte(name, '.')+1:], 0, 64)
	return err == nil
}

func hostPort(host string, insecure bool) string {
	if _, _, err := net.SplitHostPort(host); err == nil {
		return host
	}
	if insecure {
		return net.JoinHostPort(strings.Trim(host, "[]"), "80")
	}
	return net.JoinHostPort(strings.Trim(host, "[]"), "443")
}

// check is called with each address that a name has, before the connection is made.
func check(name string, private bool) func(network, address string, _ syscall.RawConn) error {
	return func(_, address string, _ syscall.RawConn) error {
		at, err := netip.ParseAddrPort(address)
		if err == nil && netaddr.Allowed(at.Addr(), private) {
			return nil
		}
		return refused(name, address)
	}
}

func refused(name, address string) error {
	return hutch.Errorf(hutch.Denied, "the registry leads to %s (%s), which is private, local or metadata: the server's administrator must allow the registry (--registry-private or, without TLS, --registry-insecure)", name, address)
}

// secured refuses to send a request without TLS, also after a redirect, unless insecure is set.
type secured struct {
	http.RoundTripper
	insecure bool
}

func (s secured) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.Scheme == "http" && !s.insecure {
		return nil, hutch.Errorf(hutch.Denied, "the registry wants to talk to %s without TLS: the server's administrator must allow that (--registry-insecure)", r.URL.Host)
	}
	return s.RoundTripper.RoundTrip(r)
}
