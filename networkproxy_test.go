package hutch_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"hutch"
)

func TestNetworkProxy(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"Proxy.Example.com.:1080": "proxy.example.com:1080",
		"203.0.113.7:1":           "203.0.113.7:1",
		"10.1.2.3:1080":           "10.1.2.3:1080",
		"[2001:DB8::1]:1080":      "[2001:db8::1]:1080",
	} {
		n, err := hutch.Network{Proxy: &hutch.NetworkProxy{Address: text}}.Canonical()
		if err != nil || n.Proxy.Address != want || n.Proxy.Rule().String() != want {
			t.Errorf("%s: %+v, %v", text, n.Proxy, err)
		}
	}
	for _, text := range []string{
		"", "proxy", "proxy.example.com", "203.0.113.7", "2001:db8::1", "proxy.example.com:", "proxy.example.com:0", "proxy.example.com:65536", "proxy.example.com:*", "*.example.com:1080",
		"203.0.113.0/24:1080", "socks5://proxy.example.com:1080", "ann@proxy.example.com:1080", "127.0.0.1:1080", "[::1]:1080", "169.254.169.254:80", "0.0.0.0:1080", "a b:1080", strings.Repeat("a", 300) + ":1080",
	} {
		badProxy(t, text, "address", hutch.NetworkProxy{Address: text})
	}
	const at = "proxy.example.com:1080"
	for _, c := range []struct {
		what, field string
		proxy       hutch.NetworkProxy
	}{
		{"a password alone", "username", hutch.NetworkProxy{Address: at, Password: "the-password"}},
		{"a long user name", "username", hutch.NetworkProxy{Address: at, Username: strings.Repeat("u", 256)}},
		{"a long password", "password", hutch.NetworkProxy{Address: at, Username: "u", Password: hutch.HiddenValue(strings.Repeat("the-password", 22))}},
		{"a line break in a name", "username", hutch.NetworkProxy{Address: at, Username: "a\nb"}},
		{"a line break in a password", "password", hutch.NetworkProxy{Address: at, Username: "u", Password: "the-password\r\n"}},
		{"a zero byte in the password", "password", hutch.NetworkProxy{Address: at, Username: "u", Password: "the-password\x00"}},
	} {
		badProxy(t, c.what, c.field, c.proxy)
	}
}

// badProxy checks that a proxy is refused, that the error names the field of the proxy, and that no error or printed
// value shows the password.
func badProxy(t *testing.T, what, field string, p hutch.NetworkProxy) {
	t.Helper()
	n := hutch.Network{Proxy: &p}
	_, err := n.Canonical()
	if !errors.Is(err, hutch.Invalid) || strings.Contains(err.Error(), "the-password") {
		t.Errorf("%s: %v", what, err)
	} else if about, name := hutch.AsError(err).About(); about != hutch.AboutField || name != "network.proxy."+field {
		t.Errorf("%s: the error names %s %s, not %s", what, about, name, field)
	}
	if text := fmt.Sprintf("%v %+v %q", n, p, p); strings.Contains(text, "the-password") {
		t.Errorf("%s is printed as %s", what, text)
	}
}

// A password is kept for the same server and user name only.
func TestProxyPasswordIsKept(t *testing.T) {
	t.Parallel()
	have := hutch.Network{Proxy: &hutch.NetworkProxy{Address: "a.example.com:1", Username: "ann", Password: "one"}}
	for _, c := range []struct {
		asked hutch.NetworkProxy
		want  hutch.HiddenValue
	}{
		{hutch.NetworkProxy{Address: "a.example.com:1", Username: "ann"}, "one"},
		{hutch.NetworkProxy{Address: "a.example.com:1", Username: "ann", Password: "two"}, "two"},
		{hutch.NetworkProxy{Address: "a.example.com:1", Username: "bob"}, ""},
		{hutch.NetworkProxy{Address: "a.example.com:2", Username: "ann"}, ""},
		{hutch.NetworkProxy{Address: "b.example.com:1", Username: "ann"}, ""},
		{hutch.NetworkProxy{Address: "a.example.com:1"}, ""},
	} {
		n, err := hutch.Network{Proxy: &c.asked}.Completed(have)
		if err != nil || n.Proxy.Password != c.want {
			t.Errorf("%+v has %q, %v", c.asked, string(n.Proxy.Password), err)
		}
	}
	if n, err := (hutch.Network{}).Completed(have); n.Proxy != nil || err != nil {
		t.Errorf("no proxy becomes %+v, %v", n.Proxy, err)
	}
	text, err := json.Marshal(have.Shown())
	if string(text) != `{"proxy":{"address":"a.example.com:1","username":"ann"}}` || err != nil || have.Proxy.Password != "one" {
		t.Errorf("%s, %v", text, err)
	}
}
