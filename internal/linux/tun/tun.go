// Package tun is the one network that every sandbox sees: a device with always
// the same addresses, which seem to lead to all the world, and a descriptor
// through which its packets come and go.
//
// Nothing else is on that net, so that two sandboxes with the same addresses
// never meet, and one that is woken, restored or forked finds all as it was.
package tun

import "net/netip"

// MTU is as large as it can be: that makes the splitting of larger packets, and
// offloading that, needless.
const MTU = 65520

// Name is that of the device.
const Name = "eth0"

// The addresses of the sandbox, and those at which it asks for names. The first
// four are set aside for the short way between a host and its translator to the
// internet (RFC 7335), and the prefix is unique to us (RFC 4193): no private
// network is hidden by them.
var (
	Inside4  = netip.MustParsePrefix("192.0.0.2/30")
	Gateway4 = netip.MustParseAddr("192.0.0.1")
	Inside6  = netip.MustParsePrefix("fd68:7574:6368::2/126")
	Gateway6 = netip.MustParseAddr("fd68:7574:6368::1")
)
