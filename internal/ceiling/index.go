package ceiling

import (
	"net/netip"
	"slices"
	"strings"

	"hutch"
)

// ruleIndex finds the rules that cover another rule. The time of a lookup depends on the length of a name or prefix,
// not on the number of rules.
type ruleIndex struct {
	names map[string][]hutch.NetworkRule // rules without *, by name
	below map[string][]hutch.NetworkRule // rules with *, by name
	nets  map[netip.Prefix][]hutch.NetworkRule
	bits  []int // the prefix lengths in use
}

// indexRules makes an index. It skips invalid rules: they cover nothing.
func indexRules(rules hutch.NetworkRules) ruleIndex {
	x := ruleIndex{map[string][]hutch.NetworkRule{}, map[string][]hutch.NetworkRule{}, map[netip.Prefix][]hutch.NetworkRule{}, nil}
	for _, rule := range rules {
		switch {
		case rule.Check() != nil:
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
func (x ruleIndex) cover(rule hutch.NetworkRule) bool {
	covers := func(have hutch.NetworkRule) bool { return have.Covers(rule) }
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
