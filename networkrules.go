package hutch

import (
	"net/netip"
	"slices"
	"strings"
)

// networkRules is an index of rules. A lookup takes time by the length of a name or prefix, not by the number of
// rules.
type networkRules struct {
	names map[string][]NetworkRule // rules without *, by name
	below map[string][]NetworkRule // rules with *, by name
	nets  map[netip.Prefix][]NetworkRule
	bits  []int // the prefix lengths in use
}

// indexRules parses rules. It skips invalid ones: they cover nothing.
func indexRules(texts []string) networkRules {
	x := networkRules{map[string][]NetworkRule{}, map[string][]NetworkRule{}, map[netip.Prefix][]NetworkRule{}, nil}
	for _, text := range texts {
		rule, err := ParseNetworkRule(text)
		switch {
		case err != nil:
		case rule.Net.IsValid():
			x.nets[rule.Net] = append(x.nets[rule.Net], rule)
			if !slices.Contains(x.bits, rule.Net.Bits()) {
				x.bits = append(x.bits, rule.Net.Bits())
			}
		case rule.Below:
			x.below[rule.Name] = append(x.below[rule.Name], rule)
		default:
			x.names[rule.Name] = append(x.names[rule.Name], rule)
		}
	}
	return x
}

// cover reports whether one of the rules covers another rule.
func (x networkRules) cover(rule NetworkRule) bool {
	covers := func(have NetworkRule) bool { return have.Covers(rule) }
	if rule.Net.IsValid() {
		return slices.ContainsFunc(x.bits, func(bits int) bool {
			p, err := rule.Net.Addr().Prefix(bits)
			return err == nil && slices.ContainsFunc(x.nets[p], covers)
		})
	}
	if slices.ContainsFunc(x.names[rule.Name], covers) {
		return true
	}
	for name, more := rule.Name, true; more; _, name, more = strings.Cut(name, ".") {
		if slices.ContainsFunc(x.below[name], covers) {
			return true
		}
	}
	return false
}
