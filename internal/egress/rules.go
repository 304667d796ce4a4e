package egress

import (
	"net/netip"
	"slices"

	"hutch"
)

// rules are what a sandbox may reach, ready to decide.
type rules struct {
	network  hutch.Network
	list     []hutch.NetworkRule
	links    map[netip.Addr]hutch.NetworkLink
	brokered func(host string, port uint16) string // as Brokering.rule
}

func newRules(n hutch.Network) (*rules, error) {
	n, err := n.Canonical()
	if err != nil {
		return nil, err
	}
	r := &rules{network: n}
	for _, text := range n.Allow {
		rule, err := hutch.ParseNetworkRule(text)
		if err != nil {
			return nil, err
		}
		r.list = append(r.list, rule)
	}
	if n.Mode == hutch.NetworkNone {
		r.list = nil
	}
	r.links, err = linked(n.Links)
	return r, err
}

// find is the first rule that holds, or "".
func (r *rules) find(holds func(hutch.NetworkRule) bool) string {
	if i := slices.IndexFunc(r.list, holds); i >= 0 {
		return r.list[i].String()
	}
	return ""
}

// name is the rule that allows a name at a port, or "".
func (r *rules) name(name string, port uint16) string {
	if rule := r.brokered(name, port); rule != "" {
		return rule
	}
	return r.find(func(rule hutch.NetworkRule) bool { return rule.HasName(name) && rule.HasPort(port) })
}

// asks reports whether the address of a name may be asked for.
func (r *rules) asks(name string) bool {
	return r.network.Mode == hutch.NetworkOpen || r.brokered(name, 0) != "" || r.find(func(rule hutch.NetworkRule) bool { return rule.HasName(name) }) != ""
}

// addr is what allows an address at a port, or "". With port 0 it is what
// allows it at any.
func (r *rules) addr(h *host, a netip.Addr, port uint16) string {
	how, net := h.reachOf(a)
	if how == never {
		return ""
	}
	rule := r.find(func(rule hutch.NetworkRule) bool {
		return rule.HasAddr(a) && (port == 0 || rule.HasPort(port)) && (how == public || net.Bits() <= rule.Net.Bits())
	})
	if rule == "" && how == public && r.network.Mode == hutch.NetworkOpen {
		return string(hutch.NetworkOpen)
	}
	return rule
}
