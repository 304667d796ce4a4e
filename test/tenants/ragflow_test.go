package tenants

import (
	"encoding/base64"
	"net/http"
	"strings"
	"testing"
)

// TestRAGFlow: the runs of two tenants share no sandbox, no run leaves a sandbox, and no route answers without a token.
func TestRAGFlow(t *testing.T) {
	t.Parallel()
	h := open(t)
	ada, eve := h.adaAndEve(t)
	code := func(source string) string {
		return `{"code_b64":"` + base64.StdEncoding.EncodeToString([]byte(source)) + `"}`
	}
	if a := ada.ask(t, "POST", "/ragflow/run", code("def main():\n    open('secret.csv', 'w').write('of ada')\n    return 'of ada'")); !strings.Contains(a.body, `"value":"of ada"`) {
		t.Errorf("ada's run: %d %s", a.status, a.body)
	}
	if a := eve.ask(t, "POST", "/ragflow/run", code("import os\ndef main(): return os.listdir()")); a.status != http.StatusOK || !strings.Contains(a.body, `"value":["artifacts"`) || strings.Contains(a.body, "secret") || !strings.Contains(a.body, `"artifacts":[]`) {
		t.Errorf("eve's run: %d %s", a.status, a.body)
	}
	for _, who := range []*tenant{ada, eve} {
		if a := who.ask(t, "GET", "/v1/sandboxes", ""); strings.Contains(a.body, "sandboxId") {
			t.Errorf("a sandbox is left: %s", a.body)
		}
	}
	for _, route := range h.ragflow.Routes() {
		method, path, _ := strings.Cut(route, " ")
		if a := h.stranger().ask(t, method, path, "{}"); a.status != http.StatusUnauthorized {
			t.Errorf("%s without a token: %d %s", route, a.status, a.body)
		}
	}
}
