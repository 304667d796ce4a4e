// Package netaddr checks hosts and addresses. [Allowed] reports whether the server itself may connect to a host that a
// user, not the administrator, has named, such as a registry or the endpoint of a bucket. It checks the address, after
// the name was resolved. [IsLoopback] reports whether a host is this machine.
package netaddr

import (
	"net"
	"net/netip"
	"slices"
	"strings"
)

// never are addresses that no host named by a user can have, whatever the settings allow: this network, link-local with
// the metadata of most clouds, multicast and reserved, and the metadata of Alibaba, Oracle, Azure and Amazon over IPv6.
var never = prefixes("0.0.0.0/8", "169.254.0.0/16", "224.0.0.0/3", "100.100.100.200/32", "192.0.0.192/32", "168.63.129.16/32",
	"::/128", "fe80::/10", "ff00::/8", "fd00:ec2::254/128")

// private are addresses of the server itself and of its own network.
var private = prefixes("127.0.0.0/8", "10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "192.0.0.0/24", "198.18.0.0/15",
	"::1/128", "fc00::/7", "fec0::/10")

// embedding are networks whose addresses contain an IPv4 address. Other machines can forward data to that IPv4 address.
var embedding = prefixes("64:ff9b::/96", "64:ff9b:1::/48", "2002::/16", "2001::/32", "::/96")

func prefixes(texts ...string) (list []netip.Prefix) {
	for _, t := range texts {
		list = append(list, netip.MustParsePrefix(t))
	}
	return list
}

// Allowed reports whether the server may connect to an address that a user has named. privateToo is true if the
// administrator allows private and loopback addresses for the host.
func Allowed(a netip.Addr, privateToo bool) bool {
	a = a.WithZone("").Unmap()
	in := func(p netip.Prefix) bool { return p.Contains(a) }
	if slices.ContainsFunc(never, in) {
		return false
	}
	return privateToo || !slices.ContainsFunc(private, in) && !slices.ContainsFunc(embedding, in)
}

// IsLoopback reports whether a host, without a port, is localhost or a loopback address.
func IsLoopback(host string) bool {
	a, err := netip.ParseAddr(host)
	return strings.EqualFold(host, "localhost") || err == nil && a.IsLoopback()
}

// SplitHost returns the parts of a Host header: a name, or an address without brackets, and the port, "" for none.
func SplitHost(hostport string) (host, port string) {
	if host, port, err := net.SplitHostPort(hostport); err == nil {
		return host, port
	}
	return strings.Trim(hostport, "[]"), ""
}
