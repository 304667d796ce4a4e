package hutch

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
