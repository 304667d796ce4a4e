package tenants

import (
	"net/http"
	"strings"
	"testing"
)

// TestPiston: the programs of two tenants share no sandbox, and the sandboxes of running programs belong to their
// owner.
func TestPiston(t *testing.T) {
	t.Parallel()
	h := open(t)
	ada, eve := h.adaAndEve(t)
	program := func(source string) string {
		return `{"language":"bash","version":"*","files":[{"content":"` + source + `"}],"run_timeout":20000}`
	}
	if a := ada.ask(t, "POST", "/piston/api/v2/execute", program("echo of ada | tee secret")); !strings.Contains(a.body, `"stdout":"of ada\n"`) {
		t.Errorf("ada's program: %d %s", a.status, a.body)
	}
	if a := eve.ask(t, "POST", "/piston/api/v2/execute", program("cat secret; ls -a")); a.status != http.StatusOK || strings.Contains(a.body, "of ada") {
		t.Errorf("eve's program: %d %s", a.status, a.body)
	}
	for _, who := range []*tenant{ada, eve} {
		if a := who.ask(t, "GET", "/v1/sandboxes", ""); strings.Contains(a.body, "sandboxId") {
			t.Errorf("a sandbox is left: %s", a.body)
		}
	}
	for _, route := range h.piston.Routes() {
		method, path, found := strings.Cut(route, " ")
		if !found {
			method, path = "GET", route
		}
		if a := h.stranger().ask(t, method, path, "{}"); a.status != http.StatusUnauthorized {
			t.Errorf("%s without a token: %d %s", route, a.status, a.body)
		}
	}
}

// stranger returns a tenant without a token of this server.
func (h *testServer) stranger() *tenant {
	who := h.root()
	who.Secret = "of-another-server"
	return who
}
