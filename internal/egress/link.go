package egress

import (
	"context"
	"hash/fnv"
	"net"
	"net/netip"

	"golang.org/x/net/dns/dnsmessage"

	"hutch"
)

// linkNet is the network in which linked sandboxes appear: it is reserved for measurements (RFC 2544), so it hides no
// server in use.
var linkNet = netip.MustParsePrefix("198.18.0.0/16")

// linked gives every link an address. A name usually has the same address whatever the other links are, so a program
// that caches it reaches the right sandbox.
func linked(list hutch.NetworkLinks) map[netip.Addr]hutch.NetworkLink {
	links := map[netip.Addr]hutch.NetworkLink{}
	for _, l := range list {
		addr := linkAddr(l.Name)
		for links[addr].Name != "" {
			if addr = addr.Next(); !linkNet.Contains(addr) {
				addr = linkNet.Addr()
			}
		}
		links[addr] = l
	}
	return links
}

func linkAddr(name string) netip.Addr {
	h := fnv.New32a()
	h.Write([]byte(name))
	sum, a := h.Sum32(), linkNet.Addr().As4()
	a[2], a[3] = byte(sum>>8), byte(sum)
	return netip.AddrFrom4(a)
}

// resolveLink answers queries for linked sandboxes, without any query outside.
func (g *Gateway) resolveLink(q dnsmessage.Question, name string, line hutch.Connection) ([]dnsmessage.Resource, dnsmessage.RCode) {
	g.mu.Lock()
	defer g.mu.Unlock()
	reason := "no link has the name " + shown(name) + ": hutch network " + g.opt.Sandbox + " --link " + shown(name)
	switch {
	case g.closed:
		reason = ended
	case g.rules.network.Mode == hutch.NetworkNone:
		reason = g.noneAtAll()
	default:
		for addr, l := range g.rules.links {
			if l.Name == name {
				return resources(q, []netip.Addr{addr}), dnsmessage.RCodeSuccess
			}
		}
	}
	g.deny(line, reason)
	return nil, dnsmessage.RCodeNameError
}

// reach connects to the destination of a verdict.
func (g *Gateway) reach(ctx context.Context, protocol string, dst netip.AddrPort, v verdict) (net.Conn, error) {
	if v.link == "" {
		return g.dial(ctx, protocol, dst)
	}
	if g.opt.Link == nil {
		return nil, hutch.Errorf(hutch.NotFound, "there is no sandbox %q", v.link)
	}
	return g.opt.Link(ctx, v.link, dst.Port())
}
