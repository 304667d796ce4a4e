package hutch

import "slices"

// NetworkRules is a list of rules. Its JSON is a list of texts.
type NetworkRules []NetworkRule

// Rules reads rules as ParseNetworkRule does. It keeps a text that is not a rule, so that the request is refused later.
func Rules(texts ...string) NetworkRules { return readAll(texts, readNetworkRule) }

// Changed returns the rules with some added and others removed.
func (rules NetworkRules) Changed(add, remove NetworkRules) (NetworkRules, error) {
	rules = append(slices.Clone(rules), add...)
	for _, rule := range remove {
		if err := rule.Check(); err != nil {
			return rules, err
		}
		before := len(rules)
		rules = slices.DeleteFunc(rules, func(have NetworkRule) bool { return have == rule })
		if len(rules) == before {
			return rules, Errorf(NotFound, "there is no rule %s to remove: show the network to see all rules", rule)
		}
	}
	return rules, nil
}

// canonical returns each rule once. Its error names the field.
func (rules NetworkRules) canonical(field string) (NetworkRules, error) {
	if len(rules) > MaxNetworkRules {
		return rules, Errorf(Invalid, "a sandbox may have at most %d rules: name a domain by *.example.com, or a net by its prefix", MaxNetworkRules).Naming(AboutField, field)
	}
	var once NetworkRules
	seen := map[NetworkRule]bool{}
	for _, rule := range rules {
		if err := rule.Check(); err != nil {
			return rules, err
		}
		if !seen[rule] {
			seen[rule] = true
			once = append(once, rule)
		}
	}
	return once, nil
}

// String returns the rules in their canonical form, with spaces between them.
func (rules NetworkRules) String() string { return joinTexts(rules) }

// UnmarshalJSON implements json.Unmarshaler. It keeps only the beginning of a list that is too long, which is enough to
// refuse the request.
func (rules *NetworkRules) UnmarshalJSON(b []byte) (err error) {
	*rules, err = readList(b, MaxNetworkRules, readNetworkRule)
	return err
}
