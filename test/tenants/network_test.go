package tenants

import (
	"net/http"
	"strings"
	"testing"

	"hutch"
)

// TestNetworkCeiling: a token cannot make its sandboxes reach more than its ceiling, in any way.
func TestNetworkCeiling(t *testing.T) {
	t.Parallel()
	h := open(t)
	most := &hutch.Network{Allow: hutch.Rules("pypi.org", "*.example.com:443"), Limits: hutch.NetworkLimits{Connections: 10}}
	eve := h.tenant(t, hutch.TokenRequest{Name: "eve", Network: most})
	within := eve.want(t, "POST", "/v1/sandboxes", `{"sandboxId":"box","network":{"allow":["pypi.org:443"]}}`)
	if text := message(t, within); !strings.Contains(text, `"allow":["pypi.org:443"]`) || !strings.Contains(text, `"connections":10`) {
		t.Errorf("below its ceiling: %s", text)
	}
	eve.want(t, "PUT", "/v1/sandboxes/box/network", `{"allow":["pypi.org","api.example.com:443"]}`)
	eve.want(t, "POST", "/v1/sandboxes/box/snapshots", `{"name":"kept","filesOnly":true}`)
	for _, n := range []string{
		`{"mode":"open"}`, `{"allow":["evil.example"]}`, `{"allow":["pypi.org:*"]}`, `{"allow":["*.example.com"]}`, `{"allow":["0.0.0.0/0"]}`,
		`{"allow":["pypi.org"],"limits":{"connections":11}}`, `{"allow":["pypi.org"],"proxy":{"address":"evil.example:1080"}}`, `{"proxy":{"address":"10.1.2.3:1080"}}`,
	} {
		for route, body := range map[string]string{
			"PUT /v1/sandboxes/box/network": n,
			"POST /v1/sandboxes":            `{"sandboxId":"more","network":` + n + `}`,
			"POST /v1/sandboxes ":           `{"sandboxId":"more","snapshot":"kept","filesOnly":true,"network":` + n + `}`,
		} {
			method, path, _ := strings.Cut(strings.TrimSpace(route), " ")
			if a := eve.ask(t, method, path, body); a.status != http.StatusForbidden || !strings.Contains(a.body, "beyond what this token may allow") {
				t.Errorf("%s with %s: %d %s", route, body, a.status, a.body)
			}
		}
	}
	if a := eve.call(t, "network", map[string]any{"sandboxId": "box", "allow": []string{"evil.example"}}); !strings.Contains(a.body, "beyond what this token may allow") {
		t.Errorf("by MCP: %s", a.body)
	}
	if a := eve.ask(t, "PUT", "/v1/secrets/KEY", `{"value":"a-long-value","brokered":{"hosts":["evil.example"]}}`); a.status != http.StatusForbidden {
		t.Errorf("by a brokered secret: %d %s", a.status, a.body)
	}
	if a := eve.ask(t, "GET", "/v1/sandboxes/more", ""); a.status != http.StatusNotFound {
		t.Errorf("a sandbox that was refused: %d %s", a.status, a.body)
	}
	if text := message(t, eve.want(t, "GET", "/v1/sandboxes/box/network", "")); strings.Contains(text, "evil") {
		t.Errorf("in the end: %s", text)
	}
}

// A text that is not a rule is refused after the scope is checked, and the audit log has the refusal with the text.
func TestRuleThatIsNone(t *testing.T) {
	t.Parallel()
	h := open(t)
	reader := h.tenant(t, hutch.TokenRequest{Name: "reader", Scopes: []hutch.Scope{hutch.ScopeRead}})
	const bad = `{"allow":["https://nothing.example/"]}`
	if a := reader.ask(t, "PUT", "/v1/sandboxes/box/network", bad); a.status != http.StatusForbidden {
		t.Errorf("without the scope: %d %s", a.status, a.body)
	}
	root := h.root()
	root.want(t, "POST", "/v1/sandboxes", `{"sandboxId":"box"}`)
	if a := root.ask(t, "PUT", "/v1/sandboxes/box/network", bad); a.status != http.StatusBadRequest || !strings.Contains(a.body, `"field":"network.allow"`) {
		t.Errorf("with the scope: %d %s", a.status, a.body)
	}
	for _, result := range []string{"denied", "invalid"} {
		a := root.ask(t, "GET", "/v1/audit?verb=SetNetwork&result="+result, "")
		if !strings.Contains(a.body, "https://nothing.example/") {
			t.Errorf("the record of %s: %s", result, a.body)
		}
	}
}

// A token that can create others has no ceiling; a token with a ceiling shows it.
func TestNetworkOfTokens(t *testing.T) {
	t.Parallel()
	h := open(t)
	root := h.root()
	for _, body := range []string{
		`{"name":"a","scopes":["exec","admin"],"network":{"mode":"none"}}`, `{"name":"a","network":{"links":["db"]}}`,
		`{"name":"a","network":{"allow":["*"]}}`, `{"name":"a","network":{"mode":"half"}}`,
	} {
		if a := root.ask(t, "POST", "/v1/tokens", body); a.status != http.StatusBadRequest {
			t.Errorf("%s: %d %s", body, a.status, a.body)
		}
	}
	root.want(t, "POST", "/v1/tokens", `{"name":"a","network":{"allow":["PyPI.org"]}}`)
	if text := message(t, root.want(t, "GET", "/v1/tokens/a", "")); !strings.Contains(text, `"network":{"allow":["pypi.org"],"mode":"allow-list"}`) {
		t.Errorf("the token: %s", text)
	}
	if a := root.ask(t, "GET", "/v1/audit?verb=CreateToken", ""); !strings.Contains(a.body, `"target":"a pypi.org"`) {
		t.Errorf("the record: %s", a.body)
	}
}

// TestHeaderRulesOfOthers: with a rule, a token reaches no more than before. No surface shows a value, and an owner
// with whom the sandbox is shared can neither read nor change it.
func TestHeaderRulesOfOthers(t *testing.T) {
	t.Parallel()
	h := open(t)
	most := &hutch.Network{Allow: hutch.Rules("pypi.org")}
	ann, eve := h.tenant(t, hutch.TokenRequest{Name: "ann", Network: most}), h.tenant(t, hutch.TokenRequest{Name: "eve"})
	const headers = `"headers":[{"host":"evil.example","headers":{"Authorization":"Bearer a-hidden-value"}}]`
	made := message(t, ann.want(t, "POST", "/v1/sandboxes", `{"sandboxId":"box","network":{"allow":["pypi.org"],`+headers+`}}`))
	if !strings.Contains(made, `"allow":["pypi.org"]`) || !strings.Contains(made, `"headers":{"Authorization":""}`) || strings.Contains(made, "hidden") {
		t.Errorf("made as %s", made)
	}
	if a := ann.ask(t, "PUT", "/v1/sandboxes/box/network", `{"allow":["evil.example"],`+headers+`}`); a.status != http.StatusForbidden || strings.Contains(a.body, "hidden") {
		t.Errorf("beyond the ceiling: %d %s", a.status, a.body)
	}
	ann.want(t, "PUT", "/v1/sandboxes/box/network", `{`+headers+`}`)
	ann.want(t, "PUT", "/v1/sandboxes/box/grants/eve", `{"access":"write"}`)
	if a := eve.ask(t, "PUT", "/v1/sandboxes/box/network", `{"headers":[{"host":"evil.example","headers":{"Authorization":""}}]}`); a.status == http.StatusOK {
		t.Errorf("another owner sets rules: %s", a.body)
	}
	root := h.root()
	for _, a := range []answer{
		eve.ask(t, "GET", "/v1/sandboxes/box", ""), eve.ask(t, "GET", "/v1/sandboxes/box/network", ""), eve.ask(t, "GET", "/v1/sandboxes", ""),
		eve.call(t, "network", map[string]any{"sandboxId": "box"}), ann.call(t, "network", map[string]any{"sandboxId": "box", "allow": []string{"pypi.org"}}),
		ann.ask(t, "GET", "/v1/sandboxes/box/timeline", ""), ann.ask(t, "GET", "/e2b/sandboxes/box", ""), root.ask(t, "GET", "/v1/audit", ""), root.ask(t, "GET", "/v1/sandboxes?owner=*", ""),
	} {
		if strings.Contains(a.body, "hidden") {
			t.Errorf("it shows the value: %s", a.body)
		}
	}
	if text := message(t, ann.want(t, "GET", "/v1/sandboxes/box/network", "")); !strings.Contains(text, `"Authorization":""`) || !strings.Contains(text, "pypi.org") {
		t.Errorf("after MCP added a rule: %s", text)
	}
	for route, body := range map[string]string{
		"POST /v1/tokens":    `{"name":"a","network":{` + headers + `}}`,
		"POST /v1/templates": `{"name":"a","network":{` + headers + `}}`,
	} {
		method, path, _ := strings.Cut(route, " ")
		if a := root.ask(t, method, path, body); a.status != http.StatusBadRequest || strings.Contains(a.body, "hidden") || !strings.Contains(a.body, "header rules") {
			t.Errorf("%s: %d %s", route, a.status, a.body)
		}
	}
}
