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
)

// transport makes connections for all endpoints of a repository, and for the servers that these redirect to.
func (r *Repository) transport(proxy *url.URL) *http.Transport {
	var direct []string // what the administrator wrote down
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
		ResponseHeaderTimeout:  r.patience,
		MaxResponseHeaderBytes: 64 << 10,
		MaxIdleConnsPerHost:    8,
		IdleConnTimeout:        30 * time.Second,
		DisableCompression:     true, // what was promised is of the bytes as they are stored
	}
}

// through returns the proxy of a request; none for the hosts in direct. The proxy resolves names, so only addresses
// and the names of its own machine can be refused here.
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
		if err == nil && !allowed(at, false) || err != nil && numeric(name) || name == "localhost" || strings.HasSuffix(name, ".localhost") {
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
		if err == nil && allowed(at.Addr(), private) {
			return nil
		}
		return refused(name, address)
	}
}

func refused(name, address string) error {
	return hutch.Errorf(hutch.Denied, "the registry leads to %s (%s), which is private, local or metadata: registries there must be allowed by the server's administrator", name, address)
}

// never are addresses that no registry can have, whatever the settings allow: this network, link-local with the metadata of most
// clouds, multicast and reserved, and the metadata of Alibaba, Oracle, Azure and Amazon over IPv6.
var never = prefixes("0.0.0.0/8", "169.254.0.0/16", "224.0.0.0/3", "100.100.100.200/32", "192.0.0.192/32", "168.63.129.16/32",
	"::/128", "fe80::/10", "ff00::/8", "fd00:ec2::254/128")

// private are addresses of the server itself and of its own network.
var private = prefixes("127.0.0.0/8", "10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "192.0.0.0/24", "198.18.0.0/15",
	"::1/128", "fc00::/7", "fec0::/10")

// embedding are networks whose addresses end in, or hold, an address of IPv4, which other machines unpack.
var embedding = prefixes("64:ff9b::/96", "64:ff9b:1::/48", "2002::/16", "2001::/32", "::/96")

func prefixes(texts ...string) (list []netip.Prefix) {
	for _, t := range texts {
		list = append(list, netip.MustParsePrefix(t))
	}
	return list
}

func allowed(a netip.Addr, privateToo bool) bool {
	a = a.WithZone("").Unmap()
	in := func(p netip.Prefix) bool { return p.Contains(a) }
	if slices.ContainsFunc(never, in) {
		return false
	}
	return privateToo || !slices.ContainsFunc(private, in) && !slices.ContainsFunc(embedding, in)
}

// secured refuses to send without TLS what is not allowed to go so, also after a redirect.
type secured struct {
	http.RoundTripper
	insecure bool
}

func (s secured) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.Scheme == "http" && !s.insecure {
		return nil, hutch.Errorf(hutch.Denied, "the registry wants to talk to %s without TLS: that must be allowed by the server's administrator", r.URL.Host)
	}
	return s.RoundTripper.RoundTrip(r)
}
