package egress

import (
	"net"
	"net/netip"
	"sync"
	"time"
)

// reach says how a sandbox can reach an address.
type reach int

const (
	public  reach = iota
	private       // in a private network: allowed only by a rule that names a part of that network
	never         // whatever the rules
)

// neverReached are addresses that belong to one machine only, that serve a machine's own data to it, or that contain
// another address.
var neverReached = prefixes(
	"0.0.0.0/8", "127.0.0.0/8", "169.254.0.0/16", "224.0.0.0/3", // this network, loopback, link-local with the metadata of most clouds, multicast and reserved
	"100.100.100.200/32", "192.0.0.192/32", "168.63.129.16/32", // metadata of Alibaba, Oracle and Azure
	"fd00:ec2::/32", "fd20:ce::254/128", // metadata of AWS and Google
	"2001::/32", "2002::/16", // Teredo and 6to4 contain an IPv4 address
)

// privateNets are networks that anyone can use: a rule allows one only with a prefix inside that network, so that
// 0.0.0.0/0 does not include a LAN.
var privateNets = prefixes(
	"10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "192.0.0.0/24", "198.18.0.0/15", "fc00::/7",
)

var (
	global6 = netip.MustParsePrefix("2000::/3") // all routed IPv6 addresses of today
	nat64   = netip.MustParsePrefix("64:ff9b::/96")
)

func prefixes(list ...string) []netip.Prefix {
	all := make([]netip.Prefix, len(list))
	for i, s := range list {
		all[i] = netip.MustParsePrefix(s)
	}
	return all
}

func within(a netip.Addr, nets []netip.Prefix) (netip.Prefix, bool) {
	for _, p := range nets {
		if p.Contains(a) {
			return p, true
		}
	}
	return netip.Prefix{}, false
}

// reachOf returns how a can be reached and, for a private address, its network.
func (h *host) reachOf(a netip.Addr) (reach, netip.Prefix) {
	if nat64.Contains(a) { // a host without IPv4 reaches IPv4 through it
		b := a.As16()
		if r, _ := h.reachOf(netip.AddrFrom4([4]byte(b[12:]))); r != public {
			return never, netip.Prefix{}
		}
		return public, netip.Prefix{}
	}
	if _, ok := within(a, neverReached); ok || !a.IsValid() || a.Zone() != "" || h.owns(a) {
		return never, netip.Prefix{}
	}
	if p, ok := within(a, privateNets); ok {
		return private, p
	}
	if a.Is6() && !global6.Contains(a) {
		return never, netip.Prefix{}
	}
	return public, netip.Prefix{}
}

// host knows the present addresses of this machine: a server on any of them is the host's own.
type host struct {
	addrs func() ([]net.Addr, error)

	mu   sync.Mutex
	read time.Time
	own  map[netip.Addr]bool
}

// freshness is how old our list of the host's addresses can be.
const freshness = time.Second

func (h *host) owns(a netip.Addr) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if time.Since(h.read) > freshness {
		h.readLocked()
	}
	return h.own[a]
}

// readLocked reads the addresses. On an error the earlier ones stay in force.
func (h *host) readLocked() {
	addrs, err := h.addrs()
	if err != nil {
		return
	}
	h.read, h.own = time.Now(), make(map[netip.Addr]bool, len(addrs))
	for _, a := range addrs {
		if n, ok := a.(*net.IPNet); ok {
			addr, _ := netip.AddrFromSlice(n.IP)
			h.own[addr.Unmap()] = true
		}
	}
}
