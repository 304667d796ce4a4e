// Package ceiling decides how much of the network a caller can give to a sandbox. There are two ceilings:
//
//   - A token can have a ceiling. The token's sandboxes reach nothing above it: neither by a request, nor by a copy's
//     inherited rules, nor by the server's default.
//   - The server's default network is the ceiling of requests whose token has none. It does not apply to a caller with
//     the scope admin, nor to a copy, which can reach what its original reaches.
//
// Policy calls Ask before anything else happens, so that a refusal is recorded. The engine calls Give, because only the
// engine knows what a copy inherits.
package ceiling

import (
	"cmp"
	"slices"

	"hutch"
	"hutch/internal/caller"
)

// Ask returns an error if the caller is not allowed to ask for a network, on a server with the given default.
func Ask(who *caller.Principal, asked, server hutch.Network) error {
	if asked.IsZero() || who.Has(hutch.ScopeAdmin) {
		return nil
	}
	if who.Network != nil {
		server = *who.Network
	}
	asked, err := asked.Canonical()
	if err != nil {
		return err
	}
	return within(asked, server)
}

// Give returns the network of a sandbox whose creator asked for the network asked, on a server with the given default.
// For an empty request it returns the server's default or, if that allows more than the token's ceiling, the ceiling. It
// refuses a request above the ceiling.
func Give(token *hutch.Network, asked, server hutch.Network) (hutch.Network, error) {
	if token == nil {
		return Fill(asked, server).Canonical()
	}
	server, err := server.Canonical()
	if err != nil {
		return asked, err
	}
	if within(server, *token) != nil {
		server = *token
	}
	n, err := Fill(Fill(asked, server), hutch.Network{Limits: token.Limits}).Canonical()
	if err != nil {
		return n, err
	}
	return n, within(n, *token)
}

// Fill returns n, with missing fields filled from another network.
func Fill(n, from hutch.Network) hutch.Network {
	if n.Mode == "" && len(n.Allow) == 0 {
		n.Mode, n.Allow, n.Block = from.Mode, from.Allow, slices.Concat(n.Block, from.Block)
		n.Proxy = cmp.Or(n.Proxy, from.Proxy)
	}
	l, other := &n.Limits, from.Limits
	l.Connections, l.Rate = cmp.Or(l.Connections, other.Connections), cmp.Or(l.Rate, other.Rate)
	l.Bandwidth, l.Total = cmp.Or(l.Bandwidth, other.Bandwidth), cmp.Or(l.Total, other.Total)
	return n
}

// within returns an error if the network n allows more than a ceiling. n must be in canonical form.
func within(n, ceiling hutch.Network) error {
	beyond := func(format string, args ...any) error {
		return hutch.Errorf(hutch.Denied, "%s, which is beyond what this token may allow: ask someone with the scope admin", hutch.Errorf(hutch.Denied, format, args...).Message).Naming(hutch.AboutField, "network")
	}
	if n.Mode == hutch.NetworkOpen && ceiling.Mode != hutch.NetworkOpen {
		return beyond("the network is to be open")
	}
	if rule, ok := firstBeyond(n, ceiling); ok {
		return beyond("the network is to reach %s", rule)
	}
	over := func(l, most int64) bool { return most > 0 && l > most }
	if l, most := n.Limits, ceiling.Limits; over(int64(l.Connections), int64(most.Connections)) || over(int64(l.Rate), int64(most.Rate)) || over(l.Bandwidth, most.Bandwidth) || over(l.Total, most.Total) {
		return beyond("a limit of the network is over the most, which is %+v", most)
	}
	return nil
}

// firstBeyond returns the first rule that the ceiling does not allow. An open ceiling allows every rule about names. A
// rule about addresses always needs a rule of the ceiling, because it can name private networks. A proxy needs to be
// allowed as well, because it decides where connections lead.
func firstBeyond(n, ceiling hutch.Network) (beyond hutch.NetworkRule, ok bool) {
	rules, asked := indexRules(ceiling.Allow), n.Allow
	if n.Proxy != nil {
		asked = append(slices.Clone(asked), n.Proxy.Rule())
	}
	for _, rule := range asked {
		if !rules.cover(rule) && (ceiling.Mode != hutch.NetworkOpen || rule.Name == "") {
			return rule, true
		}
	}
	return hutch.NetworkRule{}, false
}
