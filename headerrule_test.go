package hutch_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"hutch"
)

func headers(host string, pairs ...string) hutch.HeaderRule {
	r := hutch.HeaderRule{Host: host, Headers: map[string]hutch.HiddenValue{}}
	for i := 0; i < len(pairs); i += 2 {
		r.Headers[pairs[i]] = hutch.HiddenValue(pairs[i+1])
	}
	return r
}

// An exact host counts before a wildcard, and a long wildcard before a short one.
func TestHeaderRuleFor(t *testing.T) {
	t.Parallel()
	n, err := hutch.Network{Headers: hutch.HeaderRules{
		headers("*.com", "X", "com"), headers("*.Example.com.", "X", "below"), headers("API.example.com", "X", "exact"),
		headers("api.example.com:8443", "X", "port"), headers("*.example.com:8443", "X", "ports"),
	}}.Canonical()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		host string
		port uint16
		want string
	}{
		{"api.example.com", 443, "exact"}, {"a.api.example.com", 443, "below"}, {"www.example.com", 443, "below"}, {"example.com", 443, "com"},
		{"other.com", 443, "com"}, {"com", 443, ""}, {"xexample.com", 443, "com"}, {"api.example.com.evil.net", 443, ""}, {"api.example.net", 443, ""},
		{"api.example.com", 80, ""}, {"api.example.com", 8443, "port"}, {"www.example.com", 8443, "ports"}, {"example.com", 8443, ""}, {"", 443, ""},
	} {
		got := ""
		if r := n.Headers.For(c.host, c.port); r != nil {
			got = string(r.Headers["X"])
		}
		if got != c.want {
			t.Errorf("%s:%d: %q, want %q", c.host, c.port, got, c.want)
		}
	}
}

// No error shows the value that it is about.
func TestBadHeaderRules(t *testing.T) {
	t.Parallel()
	const value = "a-value-to-hide"
	many := headers("a.example.com")
	for i := range hutch.MaxRuleHeaders + 1 {
		many.Headers[fmt.Sprint("X-", i)] = value
	}
	var hosts, large hutch.HeaderRules
	for i := range hutch.MaxHeaderRules + 1 {
		hosts = append(hosts, headers(fmt.Sprintf("h%d.example.com", i), "X", value))
	}
	for i := range 9 {
		large = append(large, headers(fmt.Sprintf("h%d.example.com", i), "X", strings.Repeat("x", hutch.MaxHeaderValue)))
	}
	for _, c := range []struct {
		what, field string
		rules       hutch.HeaderRules
	}{
		{"too many headers", "", hutch.HeaderRules{many}}, {"too many hosts", "", hosts}, {"too large", ".value", large},
		{"no header", "", hutch.HeaderRules{headers("a.example.com")}},
		{"same host", ".host", hutch.HeaderRules{headers("a.example.com", "X", value), headers("A.example.com:443", "Y", value)}},
		{"same name", ".name", hutch.HeaderRules{headers("a.example.com", "X-A", value, "x-a", value)}},
		{"long", ".value", hutch.HeaderRules{headers("a.example.com", "X", value+strings.Repeat("x", hutch.MaxHeaderValue))}},
	} {
		refused(t, c.what, c.field, value, c.rules)
	}
	for _, host := range []string{"", "*", "*.", "*.*.example.com", "a.*.com", "203.0.113.7", "[2001:db8::1]", "10.0.0.0/8", "localhost", "a b.com", "https://a.example.com", "a.example.com/x", "a.example.com:0", "a.example.com:*", "*.1"} {
		refused(t, "host "+host, ".host", value, hutch.HeaderRules{headers(host, "X", value)})
	}
	for _, name := range []string{"", "Host", "content-length", "Transfer-Encoding", "Connection", "Proxy-Authorization", "Upgrade", "TE", "Trailer", "Keep-Alive", "Accept-Encoding", "Sec-WebSocket-Extensions", "a b", "a:b", "a\r\nb", "ü"} {
		refused(t, "header "+name, ".name", value, hutch.HeaderRules{headers("a.example.com", name, value)})
	}
	for _, bad := range []string{"\r\nHost: evil.example.net", "\n", "\r", "\x00", " ", "ü", "\x7f"} {
		refused(t, fmt.Sprintf("value with %q", bad), ".value", value, hutch.HeaderRules{headers("a.example.com", "X", value+bad)})
	}
}

// refused checks that rules are refused by an error that names a field of the rules, and hides their value.
func refused(t *testing.T, what, field, value string, rules hutch.HeaderRules) {
	t.Helper()
	n := hutch.Network{Headers: rules}
	_, err := n.Canonical()
	if !errors.Is(err, hutch.Invalid) || strings.Contains(err.Error(), value) {
		t.Errorf("%s: %v", what, err)
	} else if about, name := hutch.AsError(err).About(); about != hutch.AboutField || name != "network.headers"+field {
		t.Errorf("%s: the error is about %s %s, want the field network.headers%s", what, about, name, field)
	}
	for _, text := range []string{fmt.Sprint(n), fmt.Sprintf("%+v %q %s", n, n.Headers, rules)} {
		if strings.Contains(text, value) {
			t.Errorf("%s is printed as %s", what, text)
		}
	}
}

func TestHeaderValuesAreKept(t *testing.T) {
	t.Parallel()
	have := hutch.Network{Headers: hutch.HeaderRules{headers("a.example.com", "X", "one", "Y", "two")}}
	n, err := hutch.Network{Headers: hutch.HeaderRules{headers("a.example.com", "X", "", "Z", "three")}}.Completed(have)
	got := n.Headers
	if err != nil || len(got) != 1 || got[0].Headers["X"] != "one" || got[0].Headers["Z"] != "three" || len(got[0].Headers) != 2 {
		t.Errorf("%q, %v", got, err)
	}
	for _, rules := range []hutch.HeaderRules{{headers("b.example.com", "X", "")}, {headers("*.example.com", "X", "")}, {headers("a.example.com", "Z", "")}} {
		if _, err := (hutch.Network{Headers: rules}).Completed(have); !errors.Is(err, hutch.Invalid) {
			t.Errorf("%q takes a value of another rule: %v", rules, err)
		}
	}
	full := hutch.Network{Headers: hutch.HeaderRules{headers("a.example.com")}}
	for i := range hutch.MaxHeaderValues / hutch.MaxHeaderValue {
		full.Headers[0].Headers[fmt.Sprint("X-", i)] = hutch.HiddenValue(strings.Repeat("x", hutch.MaxHeaderValue))
	}
	more := full.Shown()
	if _, err := more.Completed(full); err != nil {
		t.Errorf("values that are as large as allowed: %v", err)
	}
	more.Headers = append(more.Headers, headers("b.example.com", "X", "1"))
	if _, err := more.Completed(full); !errors.Is(err, hutch.Invalid) {
		t.Errorf("one byte more than the sandbox can have: %v", err)
	}
	if names := have.Shown().Headers; len(names[0].Headers) != 2 || names[0].Headers["X"] != "" || have.Headers[0].Headers["X"] != "one" {
		t.Errorf("%q", names)
	}
}

// Header rules and a proxy are refused where they would outlive a sandbox or reach other owners.
func TestHiddenValuesOfSandboxesOnly(t *testing.T) {
	t.Parallel()
	for _, n := range []hutch.Network{
		{Headers: hutch.HeaderRules{headers("a.example.com", "X", "value")}},
		{Proxy: &hutch.NetworkProxy{Address: "proxy.example.com:1080"}},
	} {
		for what, err := range map[string]error{
			"a template": hutch.TemplateRequest{Name: "t", Network: n}.Check(),
			"a build":    hutch.BuildRequest{Network: n}.Check(),
			"a token":    hutch.TokenRequest{Name: "t", Scopes: []hutch.Scope{hutch.ScopeExec}, Network: &n}.Check(),
		} {
			if !errors.Is(err, hutch.Invalid) || !strings.Contains(err.Error(), what) {
				t.Errorf("%s with %+v: %v", what, n, err)
			}
		}
		if n.IsZero() {
			t.Errorf("%+v sets nothing", n)
		}
	}
}

// The value of a header gets the secrets that it refers to. Text that only looks like a reference stays.
func TestHeaderValueWithSecrets(t *testing.T) {
	t.Parallel()
	valueOf := func(name string) (string, error) {
		if name == "GONE" {
			return "", hutch.Errorf(hutch.NotFound, "there is no secret GONE")
		}
		return "<" + name + "}${secrets.A}>", nil // references in the value of a secret have no effect
	}
	for value, want := range map[hutch.HiddenValue]string{
		"":                                "",
		"Bearer a":                        "Bearer a",
		"${secrets.B}":                    "<B}${secrets.A}>",
		"x ${secrets.B}:${secrets.C_1} y": "x <B}${secrets.A}>:<C_1}${secrets.A}> y",
		"$secrets.B ${other.B} {B}":       "$secrets.B ${other.B} {B}",
	} {
		got, secrets, err := value.WithSecrets(valueOf)
		if got != want || err != nil || len(secrets) != strings.Count(want, "<") {
			t.Errorf("%q becomes %q with %q, %v", string(value), got, secrets, err)
		}
	}
	if _, _, err := hutch.HiddenValue("a ${secrets.B} ${secrets.GONE}").WithSecrets(valueOf); !errors.Is(err, hutch.NotFound) {
		t.Errorf("without the secret: %v", err)
	}
	long := func(string) (string, error) { return strings.Repeat("x", hutch.MaxSecret), nil }
	if _, _, err := hutch.HiddenValue("${secrets.A}${secrets.B}").WithSecrets(long); !errors.Is(err, hutch.Invalid) {
		t.Errorf("with long secrets: %v", err)
	}
	if hutch.SecretReference("A") != "${secrets.A}" {
		t.Error(hutch.SecretReference("A"))
	}
}
