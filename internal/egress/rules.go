package egress

import (
	"net/netip"
	"slices"

	"hutch"
)

// rules are a sandbox's rules, prepared for decisions.
type rules struct {
	network  hutch.Network
	list     hutch.NetworkRules
	links    map[netip.Addr]hutch.NetworkLink
	brokered func(host string, port uint16) string // as Brokering.rule
	headers  hutch.HeaderRules
	proxy    *hutch.NetworkProxy // nil for none
}

func newRules(n hutch.Network) (*rules, error) {
	n, err := n.Canonical()
	if err != nil {
		return nil, err
	}
	r := &rules{network: n, links: linked(n.Links), headers: n.Headers, proxy: n.Proxy}
	if n.Mode != hutch.NetworkNone {
		r.list = n.Allow
	}
	return r, nil
}

// find returns the first matching rule, or "".
func (r *rules) find(holds func(hutch.NetworkRule) bool) string {
	if i := slices.IndexFunc(r.list, holds); i >= 0 {
		return r.list[i].String()
	}
	return ""
}

// name returns the rule that allows a name at a port, or "".
func (r *rules) name(name string, port uint16) string {
	if rule := r.brokered(name, port); rule != "" {
		return rule
	}
	return r.find(func(rule hutch.NetworkRule) bool { return rule.HasName(name) && rule.HasPort(port) })
}

// opened reports whether the TLS connection to a name at a port ends in the broker. A brokered secret allows its hosts; a
// header rule does not.
func (r *rules) opened(name string, port uint16) bool {
	return r.brokered(name, port) != "" || r.headers.For(name, port) != nil
}

// asks reports whether the sandbox is allowed to look up a name.
func (r *rules) asks(name string) bool {
	return r.network.Mode == hutch.NetworkOpen || r.brokered(name, 0) != "" || r.find(func(rule hutch.NetworkRule) bool { return rule.HasName(name) }) != ""
}

// addr returns the rule that allows an address at a port, or "". Port 0 matches any.
func (r *rules) addr(h *host, a netip.Addr, port uint16) string {
	how, net := h.reachOf(a)
	if how == never {
		return ""
	}
	block, blocked := r.blocked(a, port)
	rule := r.find(func(rule hutch.NetworkRule) bool {
		return rule.HasAddr(a) && (port == 0 || rule.HasPort(port)) && (how == public || net.Bits() <= rule.Net.Bits()) && (!blocked || block.Net.Bits() <= rule.Net.Bits())
	})
	if rule == "" && how == public && !blocked && r.network.Mode == hutch.NetworkOpen {
		return string(hutch.NetworkOpen)
	}
	return rule
}

// reaches reports whether the owner of a name can point it at an address: the address is public, or a rule names the
// address.
func (r *rules) reaches(h *host, a netip.Addr, port uint16) bool {
	how, _ := h.reachOf(a)
	_, blocked := r.blocked(a, port)
	return how == public && !blocked || r.addr(h, a, port) != ""
}

// blocked returns the narrowest rule that blocks an address at a port; at port 0, at all ports. An IPv4 address is
// blocked in its IPv6 form, too.
func (r *rules) blocked(a netip.Addr, port uint16) (narrowest hutch.NetworkRule, ok bool) {
	inner := a
	if nat64.Contains(a) {
		b := a.As16()
		inner = netip.AddrFrom4([4]byte(b[12:]))
	}
	for _, rule := range r.network.Block {
		if (rule.HasAddr(a) || rule.HasAddr(inner)) && (rule.AllPorts || port != 0 && rule.HasPort(port)) && (!ok || rule.Net.Bits() > narrowest.Net.Bits()) {
			narrowest, ok = rule, true
		}
	}
	return narrowest, ok
}
