package tenants

import (
	"net/http"
	"strings"
	"testing"
)

// TestExecute: the conversations of two tenants share no sandbox, also not under one id.
func TestExecute(t *testing.T) {
	t.Parallel()
	h := open(t)
	ada, eve := h.adaAndEve(t)
	code := func(source, conversation string) string {
		return `{"language":"bash","code":"` + source + `","conversationId":"` + conversation + `"}`
	}
	if a := ada.ask(t, "POST", "/execute", code("echo of ada | tee secret", "talk")); !strings.Contains(a.body, `"output":"of ada\n"`) || !strings.Contains(a.body, `"sandboxId":"ask-talk"`) {
		t.Errorf("ada's program: %d %s", a.status, a.body)
	}
	if a := eve.ask(t, "POST", "/execute", code("cat secret; ls -a", "talk")); a.status != http.StatusOK || strings.Contains(a.body, "of ada") {
		t.Errorf("eve's program: %d %s", a.status, a.body)
	}
	if a := ada.ask(t, "POST", "/execute", code("cat secret", "talk")); !strings.Contains(a.body, `"output":"of ada\n"`) {
		t.Errorf("ada's second program: %d %s", a.status, a.body)
	}
	if a := eve.ask(t, "POST", "/execute", code("ls -a", "")); a.status != http.StatusOK || strings.Contains(a.body, "secret") {
		t.Errorf("eve without a conversation: %d %s", a.status, a.body)
	}
	if a := h.stranger().ask(t, "POST", "/execute", code("true", "")); a.status != http.StatusUnauthorized {
		t.Errorf("without a token: %d %s", a.status, a.body)
	}
}
