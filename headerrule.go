package hutch

import (
	"iter"
	"maps"
	"net/textproto"
	"slices"
	"strconv"
	"strings"
)

// HeaderRule sets headers of the requests that a sandbox sends to a host over TLS. The sandbox does not get the values:
// the server adds them on the way out. A rule gives no access to its host: [Network] must allow the host separately.
type HeaderRule struct {
	// Host is a name such as "api.example.com", or "*.example.com" for all names below it, with the port unless it is
	// 443.
	Host string `json:"host"`
	// Headers are the headers by name. Each replaces a header of the request. A value can refer to secrets of the
	// sandbox's owner, as in "Bearer ${secrets.API_KEY}". Each request then gets their present values.
	Headers map[string]HiddenValue `json:"headers"`
}

// HeaderRules are the header rules of a sandbox. If a rule names the exact host of a request, that rule applies;
// otherwise the longest matching rule does. Rules are not merged.
type HeaderRules []HeaderRule

// Limits of the header rules of a sandbox.
const (
	MaxHeaderRules = 32
	// MaxRuleHeaders is the highest number of headers of a rule.
	MaxRuleHeaders = 20
	// MaxHeaderValue is the longest value, in bytes; MaxHeaderValues limits all values of a sandbox together.
	MaxHeaderValue  = 4 << 10
	MaxHeaderValues = 32 << 10
)

// For returns the rule for a host in lower case and a port; nil if there is none.
func (rules HeaderRules) For(host string, port uint16) *HeaderRule {
	var best *HeaderRule
	for i := range rules {
		pattern, ok := rules[i].at(port)
		if pattern == host && ok {
			return &rules[i]
		}
		above, wild := strings.CutPrefix(pattern, "*")
		if ok && wild && strings.HasSuffix(host, above) && len(host) > len(above) && (best == nil || len(rules[i].Host) > len(best.Host)) {
			best = &rules[i]
		}
	}
	return best
}

// at returns the host of a canonical rule, and whether the rule applies to a port.
func (r HeaderRule) at(port uint16) (host string, ok bool) {
	host, number, given := strings.Cut(r.Host, ":")
	if !given {
		return host, port == 443
	}
	return host, number == strconv.Itoa(int(port))
}

// names returns the rules without their values.
func (rules HeaderRules) names() HeaderRules {
	names := slices.Clone(rules)
	for i, r := range rules {
		names[i].Headers = maps.Clone(r.Headers)
		for name := range r.Headers {
			names[i].Headers[name] = ""
		}
	}
	return names
}

// completed returns the rules with empty values replaced by the values that the sandbox already has. These values count
// towards the limit of all values, too.
func (rules HeaderRules) completed(have HeaderRules) (HeaderRules, error) {
	whole := slices.Clone(rules)
	for i, r := range rules {
		whole[i].Headers = maps.Clone(r.Headers)
		for name, value := range r.Headers {
			if value == "" {
				value = have.value(r.Host, name)
			}
			if value == "" {
				return nil, badField(inValue, "the header %s for %s has no value: give one; an empty value keeps an earlier one, and the sandbox has none for this header and host", name, r.Host)
			}
			whole[i].Headers[name] = value
		}
	}
	return whole, whole.checkSize()
}

// checkSize refuses values that are too large together.
func (rules HeaderRules) checkSize() error {
	size := 0
	for _, r := range rules {
		for _, value := range r.Headers {
			size += len(value)
		}
	}
	if size > MaxHeaderValues {
		return badField(inValue, "the values of the header rules have %d bytes together: give %d at most", size, MaxHeaderValues)
	}
	return nil
}

// value returns the value of a header in the rule for exactly this host.
func (rules HeaderRules) value(host, name string) HiddenValue {
	if i := slices.IndexFunc(rules, func(r HeaderRule) bool { return r.Host == host }); i >= 0 {
		return rules[i].Headers[name]
	}
	return ""
}

// canonical returns the rules with hosts in lower case and names in the usual case, sorted by host. Its error quotes no
// value.
func (rules HeaderRules) canonical() (HeaderRules, error) {
	if len(rules) > MaxHeaderRules {
		return nil, badField(inRules, "there are header rules for %d hosts: give %d at most", len(rules), MaxHeaderRules)
	}
	var done HeaderRules
	for _, r := range rules {
		r, err := r.canonical()
		if err != nil {
			return nil, err
		}
		if slices.ContainsFunc(done, func(d HeaderRule) bool { return d.Host == r.Host }) {
			return nil, badField(inHost, "there are two header rules for %s: write one with the headers of both", r.Host)
		}
		done = append(done, r)
	}
	if err := done.checkSize(); err != nil {
		return nil, err
	}
	slices.SortFunc(done, func(a, b HeaderRule) int { return strings.Compare(a.Host, b.Host) })
	return done, nil
}

func (r HeaderRule) canonical() (HeaderRule, error) {
	host, err := ruleHost(r.Host)
	if err != nil {
		return r, err
	}
	if n := len(r.Headers); n == 0 || n > MaxRuleHeaders {
		return r, badField(inRules, "the header rule for %s has %d headers: give 1 to %d", host, n, MaxRuleHeaders)
	}
	headers := make(map[string]HiddenValue, len(r.Headers))
	for name, value := range r.Headers {
		if err := checkHeader(host, name, string(value)); err != nil {
			return r, err
		}
		name = textproto.CanonicalMIMEHeaderKey(name)
		if _, twice := headers[name]; twice {
			return r, badField(inName, "the header rule for %s has the header %s twice, in different cases: give it once", host, name)
		}
		headers[name] = value
	}
	return HeaderRule{Host: host, Headers: headers}, nil
}

// ruleHost returns the canonical form of the host of a rule.
func ruleHost(text string) (string, error) {
	below, wild := strings.CutPrefix(text, "*.")
	if wild {
		below = "any." + below
	}
	name, port, err := ParseBrokeredHost(below)
	if err != nil {
		return "", badField(inHost, "%.80q is not a host for a header rule: write a full name, such as api.example.com, or *.example.com for all names below it, and with a port as api.example.com:8443; an address has no rule", text)
	}
	if wild {
		name = "*" + strings.TrimPrefix(name, "any")
	}
	if port != 443 {
		name += ":" + strconv.Itoa(int(port))
	}
	return name, nil
}

func checkHeader(host, name, value string) error {
	switch {
	case !headerName().MatchString(name):
		return badField(inName, "%.80q in the header rule for %s is not the name of a header: it has 1 to 64 letters, digits and hyphens", name, host)
	case slices.Contains(unplaceable, strings.ToLower(name)):
		return badField(inName, "the header rule for %s cannot set %s, which decides how a request is read and where it goes: leave it out", host, name)
	case len(value) > MaxHeaderValue:
		return badField(inValue, "the value of %s for %s has %d bytes: give %d at most", name, host, len(value), MaxHeaderValue)
	case !headerText(value) || strings.TrimSpace(value) != value:
		return badField(inValue, "the value of %s for %s does not fit in a header: it must be printable ASCII, without line breaks and without spaces around it", name, host)
	}
	for part := range HiddenValue(value).parts() {
		if part.broken {
			return badField(inValue, "the value of %s for %s refers to no secret: write ${secrets.NAME} with the name of one, such as ${secrets.API_KEY}", name, host)
		}
	}
	return nil
}

// valuePart is a part of a header's value: text, or the name of a secret whose value belongs there.
type valuePart struct {
	text   string
	secret string
	broken bool // text that looks like a reference but has no valid name
}

// secretReference begins a reference to a secret in the value of a header; a brace ends it.
const secretReference = "${secrets."

// SecretReference refers to a secret in the value of a header.
func SecretReference(name string) string { return secretReference + name + "}" }

// parts returns the parts of a header's value.
func (v HiddenValue) parts() iter.Seq[valuePart] {
	return func(yield func(valuePart) bool) {
		for rest := string(v); rest != ""; {
			text, reference, found := strings.Cut(rest, secretReference)
			if text != "" && !yield(valuePart{text: text}) || !found {
				return
			}
			name, after, closed := strings.Cut(reference, "}")
			if !yield(valuePart{secret: name, broken: !closed || CheckSecretName(name) != nil}) {
				return
			}
			rest = after
		}
	}
}

// WithSecrets returns a header's value with each reference replaced by the value of its secret, and lists these secret
// values. The error is the first one that valueOf returns, or says that a value is too long.
func (v HiddenValue) WithSecrets(valueOf func(name string) (string, error)) (value string, secrets []string, err error) {
	var whole strings.Builder
	for part := range v.parts() {
		text := part.text
		if part.secret != "" {
			if text, err = valueOf(part.secret); err != nil {
				return "", nil, err
			}
			secrets = append(secrets, text)
		}
		if whole.WriteString(text); whole.Len() > MaxHeaderValues {
			return "", nil, Errorf(Invalid, "the header would have more than %d bytes, as it refers to long secrets", MaxHeaderValues)
		}
	}
	return whole.String(), secrets, nil
}

// Errors about header rules name one of these fields, so that a form can show the error at its input.
const (
	inRules = "network.headers"
	inHost  = "network.headers.host"
	inName  = "network.headers.name"
	inValue = "network.headers.value"
)
