// Package tun creates the network device of a sandbox. The device has the same addresses in every sandbox and is the
// default route. Its packets are read and written through a descriptor.
//
// Nothing else is on that network. So two sandboxes with the same addresses do not conflict, and a sandbox that is
// woken, restored or forked finds its network unchanged.
package tun

import "net/netip"

// MTU is as large as possible, so that neither segmentation nor its offloading is needed.
const MTU = 65520

// Name is the device's name.
const Name = "eth0"

// These are the addresses of the sandbox and of its gateway, which is also its name server. The IPv4 addresses are
// reserved for the link between a host and its translator to the internet (RFC 7335), and the IPv6 prefix is unique to
// this project (RFC 4193). So these addresses hide no private network.
var (
	Inside4  = netip.MustParsePrefix("192.0.0.2/30")
	Gateway4 = netip.MustParseAddr("192.0.0.1")
	Inside6  = netip.MustParsePrefix("fd68:7574:6368::2/126")
	Gateway6 = netip.MustParseAddr("fd68:7574:6368::1")
)

// Resolver is the content of a sandbox's /etc/resolv.conf.
var Resolver = "nameserver " + Gateway4.String() + "\nnameserver " + Gateway6.String() + "\n"
