package hutch

import (
	"net/netip"
	"slices"
	"strings"
)

// NetworkRules is a list of rules. Its JSON is a list of texts.
type NetworkRules []NetworkRule

// Rules reads rules as ParseNetworkRule does. A text that is not a rule stays in the list, and the request that it is
// for is refused.
func Rules(texts ...string) NetworkRules { return readAll(texts, readNetworkRule) }

// String returns the rules in their canonical form, with spaces between them.
func (rules NetworkRules) String() string { return joinTexts(rules) }

// UnmarshalJSON implements json.Unmarshaler. Of a list that is too long it keeps enough for the request to be refused.
func (rules *NetworkRules) UnmarshalJSON(b []byte) (err error) {
	*rules, err = readList(b, MaxNetworkRules, readNetworkRule)
	return err
}

// ruleIndex finds the rules that cover another rule. A lookup takes time by the length of a name or prefix, not by the
// number of rules.
type ruleIndex struct {
	names map[string][]NetworkRule // rules without *, by name
	below map[string][]NetworkRule // rules with *, by name
	nets  map[netip.Prefix][]NetworkRule
	bits  []int // the prefix lengths in use
}

// indexRules makes an index. It skips unread rules: they cover nothing.
func indexRules(rules NetworkRules) ruleIndex {
	x := ruleIndex{map[string][]NetworkRule{}, map[string][]NetworkRule{}, map[netip.Prefix][]NetworkRule{}, nil}
	for _, rule := range rules {
		switch {
		case rule.isZero():
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
func (x ruleIndex) cover(rule NetworkRule) bool {
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
