package tenants

import (
	"net/http"
	"strings"
	"testing"
)

// TestAgents: for another tenant, the sessions of a tenant do not exist. A token without the scopes of these calls
// cannot begin a session.
func TestAgents(t *testing.T) {
	t.Parallel()
	h := open(t)
	ada, eve := h.adaAndEve(t)
	if a := ada.ask(t, "POST", "/v1/sandboxes", `{"sandboxId":"adas","labels":{"hutch.agent":"claude"}}`); a.status >= 300 {
		t.Fatalf("ada's session: %d %s", a.status, a.body)
	}
	for _, c := range []struct{ method, path, body string }{
		{"GET", "/agents/SESSION", ""}, {"POST", "/agents/SESSION", `{"prompt":"x"}`}, {"POST", "/agents/SESSION/stop", ""},
	} {
		ask := func(who *tenant, session string) (int, string) {
			a := who.ask(t, c.method, strings.Replace(c.path, "SESSION", session, 1), c.body)
			return a.status, strings.ReplaceAll(a.body, session, "SESSION")
		}
		status, body := ask(eve, "adas")
		if never, text := ask(eve, "none"); status != http.StatusNotFound || status != never || body != text {
			t.Errorf("%s %s: ada's session is %d %s, and one that never was %d %s", c.method, c.path, status, body, never, text)
		}
		if status, body := ask(h.stranger(), "adas"); status != http.StatusUnauthorized {
			t.Errorf("%s %s without a token: %d %s", c.method, c.path, status, body)
		}
	}
	if a := ada.ask(t, "POST", "/agents/adas/stop", ""); !strings.Contains(a.body, "no prompt") {
		t.Errorf("ada is told %d %s", a.status, a.body)
	}
	if a := eve.ask(t, "GET", "/v1/sandboxes", ""); strings.Contains(a.body, "sandboxId") {
		t.Errorf("eve has a sandbox: %s", a.body)
	}
}
