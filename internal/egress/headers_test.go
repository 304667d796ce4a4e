package egress

import (
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"hutch"
)

const ruleToken = "Bearer rule-0a1b2c3d4e5f"

func ruleFor443(host string) hutch.HeaderRules {
	return hutch.HeaderRules{{Host: host, Headers: map[string]hutch.HiddenValue{"Authorization": ruleToken}}}
}

// withHeaders is a program without secrets whose sandbox has header rules.
func (w *world) withHeaders(n hutch.Network) *brokered {
	w.t.Helper()
	in := w.brokered("")
	in.has.Store(false)
	if err := in.g.Set(n); err != nil {
		w.t.Fatal(err)
	}
	return in
}

// got is the page of a host that received the token, as the program sees it.
func got(host string) string {
	return fmt.Sprintf("200 %s false %q", host, strings.Repeat("*", len(ruleToken)))
}

func TestHeaderRules(t *testing.T) {
	t.Parallel()
	for _, n := range []hutch.Network{
		{Mode: hutch.NetworkOpen, Headers: ruleFor443(allowedName)},
		{Allow: hutch.Rules(allowedName), Headers: ruleFor443(allowedName)},
		{Allow: hutch.Rules(shared), Headers: ruleFor443(allowedName)},
		{Allow: hutch.Rules("*.example.com"), Headers: ruleFor443("*.example.com")},
		{Mode: hutch.NetworkOpen, Headers: ruleFor443("*.com")},
	} {
		// A rule for an address allows no lookup of a name: a second rule allows it, at another port.
		if n.Allow.String() == shared {
			n.Allow = append(n.Allow, hutch.Rules(allowedName+":1")...)
		}
		in := newWorld(t).withHeaders(n)
		if page, err := in.get("https://api.example.com/"); page != got(allowedName) || err != nil {
			t.Errorf("%+v: %q, %v", n, page, err)
		}
		in.last()
		lines := in.g.Connections(t.Context(), hutch.ConnectionQuery{Limit: 100}).Connections
		if !slices.ContainsFunc(lines, func(c hutch.Connection) bool {
			return c.Protocol == "http" && strings.HasSuffix(c.Rule, ", header:Authorization") && c.Status == 200 && c.Host == allowedName
		}) {
			t.Errorf("%+v: the log has %+v", n, lines)
		}
		if strings.Contains(fmt.Sprintf("%+v", lines), "rule-0a") {
			t.Errorf("the log shows the value: %+v", lines)
		}
		if used := fmt.Sprint(in.uses); used != "[api.example.com:443 GET 200 [header:Authorization]]" {
			t.Errorf("%+v: used %s", n, used)
		}
	}
}

// TestHeaderRuleGivesNoAccess: a rule does not allow its host, and the value goes to no other host, port or protocol.
func TestHeaderRuleGivesNoAccess(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		url string
		n   hutch.Network
	}{
		{"https://api.example.com/", hutch.Network{}},
		{"https://api.example.com/", hutch.Network{Mode: hutch.NetworkNone}},
		{"https://api.example.com/", hutch.Network{Allow: hutch.Rules(evilName)}},
	} {
		c.n.Headers = ruleFor443(allowedName)
		in := newWorld(t).withHeaders(c.n)
		if page, err := in.get(c.url); err == nil {
			t.Errorf("%+v: %s says %q", c.n, c.url, page)
		}
		if len(in.uses) > 0 {
			t.Errorf("%+v: used %v", c.n, in.uses)
		}
	}
	for _, url := range []string{"http://api.example.com/", "https://api.example.com:8443/", "https://evil.example.net/", "https://www.example.com/"} {
		w := newWorld(t)
		w.name("www.example.com", shared)
		in := w.withHeaders(hutch.Network{Mode: hutch.NetworkOpen, Headers: ruleFor443(allowedName)})
		if err := in.resolve(allowedName); err != nil {
			t.Fatal(err)
		}
		page, err := in.get(url)
		if err != nil || strings.Contains(page, "*") || strings.Contains(page, "rule") || len(in.uses) > 0 {
			t.Errorf("%s: %q, %v, used %v", url, page, err, in.uses)
		}
	}
}

// TestHeaderRuleOfAClaimedName: a program connects to another machine, and claims the name of the rule. That machine
// receives no value, even if the rule covers its own name and it has a certificate for the claimed name.
func TestHeaderRuleOfAClaimedName(t *testing.T) {
	t.Parallel()
	for _, n := range []hutch.Network{{Mode: hutch.NetworkOpen}, {Allow: hutch.Rules(evilName, "*.example.com")}, {Allow: hutch.Rules(evilAddr, evilName, "*.example.com")}} {
		n.Headers = ruleFor443("*.example.com")
		w := newWorld(t)
		w.name(evilName, evilAddr)
		w.name("www.example.com", evilAddr)
		in := w.withHeaders(n)
		for _, name := range []string{allowedName, evilName, "www.example.com"} {
			if err := in.resolve(name); err != nil {
				t.Fatal(err)
			}
		}
		c, err := in.dial(t.Context(), "tcp", evilAddr+":443")
		if err != nil {
			t.Fatal(err)
		}
		claims := tls.Client(c, &tls.Config{ServerName: allowedName, InsecureSkipVerify: true})
		if err := claims.Handshake(); err == nil { // with the other machine itself
			fmt.Fprintf(claims, "GET / HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n", allowedName)
			io.Copy(io.Discard, claims)
		}
		claims.Close()
		in.last()
		if len(in.uses) > 0 {
			t.Errorf("%+v: used %v", n, in.uses)
		}
	}
}

// TestHeaderRuleOfAnotherHostOnTheConnection: under a wildcard, a connection is for one host.
func TestHeaderRuleOfAnotherHostOnTheConnection(t *testing.T) {
	t.Parallel()
	in := newWorld(t).withHeaders(hutch.Network{Mode: hutch.NetworkOpen, Headers: ruleFor443("*.example.com")})
	tr := &http.Transport{DialContext: in.dial, TLSClientConfig: &tls.Config{RootCAs: in.trusted}, ForceAttemptHTTP2: true}
	t.Cleanup(tr.CloseIdleConnections)
	for _, host := range []string{"www.example.com", evilName, "api.example.com:8443", shared} {
		req, _ := http.NewRequestWithContext(t.Context(), "GET", "https://api.example.com/", nil)
		req.Host = host
		resp, err := tr.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusMisdirectedRequest || resp.ProtoMajor != 2 {
			t.Errorf("%s: %s %s", host, resp.Proto, resp.Status)
		}
	}
	for _, use := range in.uses {
		if strings.Contains(use, "header:") {
			t.Errorf("used %s", use)
		}
	}
}

// A change is in force when it returns, also for connections that are open.
func TestHeaderRulesChange(t *testing.T) {
	t.Parallel()
	in := newWorld(t).withHeaders(hutch.Network{Mode: hutch.NetworkOpen})
	pool := in.trusted.Clone()
	tr := &http.Transport{DialContext: in.dial, TLSClientConfig: &tls.Config{RootCAs: pool}}
	t.Cleanup(tr.CloseIdleConnections)
	c := &http.Client{Transport: tr}
	ask := func(want string) {
		t.Helper()
		if page, err := fetch(c, "https://api.example.com/"); page != want || err != nil {
			t.Errorf("%q, %v; want %q", page, err, want)
		}
	}
	set := func(rules hutch.HeaderRules) {
		t.Helper()
		if err := in.g.Set(hutch.Network{Mode: hutch.NetworkOpen, Headers: rules}); err != nil {
			t.Fatal(err)
		}
	}
	none := fmt.Sprintf("200 %s false %q", allowedName, "")
	ask(none)
	set(ruleFor443(allowedName))
	ask(got(allowedName))
	other := hutch.HeaderRules{{Host: allowedName, Headers: map[string]hutch.HiddenValue{"Authorization": "Bearer " + apiKey}}}
	set(other)
	ask(fmt.Sprintf("200 %s true %q", allowedName, strings.Repeat("*", len("Bearer "+apiKey))))
	set(nil)
	ask(none)
	set(hutch.HeaderRules{{Host: evilName, Headers: map[string]hutch.HiddenValue{"X-Other": "a value"}}})
	ask(none)
}

// A header rule comes after a brokered secret for the same header.
func TestHeaderRuleBesideASecret(t *testing.T) {
	t.Parallel()
	in := newWorld(t).brokered("")
	if err := in.g.Set(hutch.Network{Headers: ruleFor443(allowedName)}); err != nil {
		t.Fatal(err)
	}
	if page, err := in.get("https://api.example.com/"); page != got(allowedName) || err != nil {
		t.Errorf("%q, %v", page, err)
	}
}

// TestHeaderRuleThatRefersToASecret: each request gets the present value of the secret, and no request is sent without
// it.
func TestHeaderRuleThatRefersToASecret(t *testing.T) {
	t.Parallel()
	in := newWorld(t).withHeaders(hutch.Network{Allow: hutch.Rules(allowedName), Headers: hutch.HeaderRules{
		{Host: allowedName, Headers: map[string]hutch.HiddenValue{"Authorization": "Bearer ${secrets.TOKEN}"}},
	}})
	tr := &http.Transport{DialContext: in.dial, TLSClientConfig: &tls.Config{RootCAs: in.trusted}}
	t.Cleanup(tr.CloseIdleConnections)
	c := &http.Client{Transport: tr}
	for value, want := range map[string]string{
		"":               "403",
		"rule-0a1b2c3d":  fmt.Sprintf("200 %s false %q", allowedName, strings.Repeat("*", len("Bearer rule-0a1b2c3d"))),
		apiKey:           fmt.Sprintf("200 %s true %q", allowedName, strings.Repeat("*", len("Bearer ")+len(apiKey))),
		"another secret": fmt.Sprintf("200 %s false %q", allowedName, strings.Repeat("*", len("Bearer another secret"))),
	} {
		in.set("TOKEN", value)
		if page, err := fetch(c, "https://api.example.com/"); !strings.HasPrefix(page, want) || err != nil {
			t.Errorf("with the secret %q: %q, %v", value, page, err)
		}
	}
}

// TestHeaderRuleWithLongSecrets: a short rule cannot make the server send unlimited text, or search answers for it.
func TestHeaderRuleWithLongSecrets(t *testing.T) {
	t.Parallel()
	headers := map[string]hutch.HiddenValue{}
	for i := range hutch.MaxRuleHeaders {
		headers[fmt.Sprintf("X-Header-%d", i)] = hutch.HiddenValue(strings.Repeat("${secrets.LONG}", hutch.MaxHeaderValue/len("${secrets.LONG}")/hutch.MaxRuleHeaders))
	}
	in := newWorld(t).withHeaders(hutch.Network{Allow: hutch.Rules(allowedName), Headers: hutch.HeaderRules{{Host: allowedName, Headers: headers}}})
	in.set("LONG", strings.Repeat("0123456789abcdef", hutch.MaxSecret/16))
	if page, err := in.get("https://api.example.com/"); !strings.HasPrefix(page, "403") || !strings.Contains(page, "long secrets") || err != nil {
		t.Errorf("%q, %v", page, err)
	}
	in.set("LONG", strings.Repeat("0123456789abcdef", 8))
	if page, err := in.get("https://api.example.com/"); !strings.HasPrefix(page, "403") || !strings.Contains(page, "long secrets") || err != nil {
		t.Errorf("all together: %q, %v", page, err)
	}
	in.set("LONG", "0123456789abcdef")
	if page, err := in.get("https://api.example.com/"); !strings.HasPrefix(page, "200") || err != nil {
		t.Errorf("%q, %v", page, err)
	}
}

// Without a broker there are no header rules, and connections pass as they are.
func TestHeaderRulesWithoutABroker(t *testing.T) {
	t.Parallel()
	in := newWorld(t).inside(hutch.NetworkOpen)
	if err := in.g.Set(hutch.Network{Mode: hutch.NetworkOpen, Headers: ruleFor443(allowedName)}); err != nil {
		t.Fatal(err)
	}
	if page, err := in.get("https://api.example.com/"); err != nil || !strings.HasPrefix(page, "200") {
		t.Errorf("%q, %v", page, err)
	}
}
