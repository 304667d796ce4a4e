package e2b

import (
	"maps"
	"slices"
	"strings"

	"hutch"
)

// rules are E2B's rules of a network, by host. They mean the same as Hutch's header rules: they give no access to a
// host, an exact host counts before a wildcard, and matching rules are not merged.
type rules map[string][]rule

type rule struct {
	Transform *transform `json:"transform,omitempty"`
}

type transform struct {
	Headers map[string]string `json:"headers,omitempty"`
}

// UnmarshalJSON implements json.Unmarshaler. It refuses fields of a rule that this server does not support.
func (r *rule) UnmarshalJSON(b []byte) error {
	type plain rule
	return decode(b, (*plain)(r))
}

// UnmarshalJSON implements json.Unmarshaler.
func (t *transform) UnmarshalJSON(b []byte) error {
	type plain transform
	return decode(b, (*plain)(t))
}

const (
	// hidden stands for a value that is not shown. A client that sends it back keeps the value.
	hidden = "[redacted]"
	// placeholder begins a text that E2B replaces by a token or a secret of the account. Server.referTo replaces the
	// references to secrets.
	placeholder = "${e2b."
)

// translate returns the rules of Hutch. E2B allows one rule for a host. Of several rules, the last that sets a header
// counts.
func (all rules) translate() (list hutch.HeaderRules, err error) {
	for _, host := range slices.Sorted(maps.Keys(all)) {
		headers := map[string]hutch.HiddenValue{}
		for _, r := range all[host] {
			if r.Transform == nil {
				continue
			}
			for name, value := range r.Transform.Headers {
				if headers[name], err = headerValue(host, name, value); err != nil {
					return nil, err
				}
			}
		}
		if len(headers) > 0 {
			list = append(list, hutch.HeaderRule{Host: host, Headers: headers})
		}
	}
	return list, nil
}

func headerValue(host, name, value string) (hutch.HiddenValue, error) {
	switch {
	case value == hidden:
		return "", nil
	case value == "":
		return "", hutch.Errorf(hutch.Invalid, "network.rules has no value for the header %.80q of %.80q: give one, or leave the header out", name, host).Naming(hutch.AboutField, "network.rules")
	case strings.Contains(secretPlaceholder.ReplaceAllString(value, ""), placeholder):
		return "", unsupported("network.rules with a placeholder " + placeholder + "…} that is not of a secret")
	}
	return hutch.HiddenValue(value), nil
}

// rulesOf returns header rules in E2B's form, without their values.
func rulesOf(list hutch.HeaderRules) rules {
	if len(list) == 0 {
		return nil
	}
	all := rules{}
	for _, r := range list {
		t := transform{Headers: map[string]string{}}
		for name := range r.Headers {
			t.Headers[name] = hidden
		}
		all[r.Host] = []rule{{&t}}
	}
	return all
}
