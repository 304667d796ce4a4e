package tenants

import (
	"net/http"
	"strings"
	"testing"
)

// TestDify: the runs of two tenants share no sandbox, no run leaves a sandbox, and no route answers without a token.
func TestDify(t *testing.T) {
	t.Parallel()
	h := open(t)
	ada, eve := h.adaAndEve(t)
	code := func(source string) string {
		return `{"language":"python3","code":"` + source + `","enable_network":true}`
	}
	if a := ada.ask(t, "POST", "/dify/v1/sandbox/run", code("open('secret', 'w').write('of ada'); print('of ada')")); !strings.Contains(a.body, `"stdout":"of ada\n"`) {
		t.Errorf("ada's run: %d %s", a.status, a.body)
	}
	if a := eve.ask(t, "POST", "/dify/v1/sandbox/run", code("import os; print(os.listdir()); print(open('secret').read())")); a.status != http.StatusOK || !strings.Contains(a.body, "FileNotFoundError") || strings.Contains(a.body, "of ada") {
		t.Errorf("eve's run: %d %s", a.status, a.body)
	}
	for _, who := range []*tenant{ada, eve} {
		if a := who.ask(t, "GET", "/v1/sandboxes", ""); strings.Contains(a.body, "sandboxId") {
			t.Errorf("a sandbox is left: %s", a.body)
		}
	}
	for _, route := range h.dify.Routes() {
		method, path, _ := strings.Cut(route, " ")
		if a := h.stranger().ask(t, method, path+"?language=python3", "{}"); a.status != http.StatusUnauthorized {
			t.Errorf("%s without a token: %d %s", route, a.status, a.body)
		}
	}
}
