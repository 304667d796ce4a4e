package tenants

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
)

// TestTakenNames: eve knows the names of sandboxes that are created on first use, because her own have the same names.
// She shares hers with ada before ada has any. Ada and her users still get ada's own sandboxes, and eve gets nothing of
// theirs.
func TestTakenNames(t *testing.T) {
	t.Parallel()
	h := open(t)
	ada, eve := h.adaAndEve(t)
	const user = "X-User-Id"
	all := func(who *tenant, text string) {
		t.Helper()
		upload := "--B\r\nContent-Disposition: form-data; name=\"file\"; filename=\"secret.txt\"\r\n\r\n" + text + "\r\n--B--\r\n"
		for _, a := range []answer{
			who.ask(t, "POST", "/openterminal/files/write", `{"path":"secret","content":"`+text+`"}`, user, "people-1"),
			who.ask(t, "POST", "/librechat/v1/upload", upload, "Content-Type", "multipart/form-data; boundary=B"),
			who.ask(t, "POST", "/librechat/v1/exec", `{"lang":"bash","code":"cat secret 2> /dev/null; echo `+text+` > secret","runtime_session_hint":"chat-1"}`),
			who.ask(t, "POST", "/jupyter/api/kernels", "", user, "people-1"),
			who.ask(t, "POST", "/swerex/my-box/execute", `{"command":"cat secret 2> /dev/null; echo `+text+` > secret","shell":true}`),
			who.ask(t, "PUT", "/v1/sandbox/bridged/file/workspace/secret", text),
		} {
			if a.status != http.StatusOK && a.status != http.StatusCreated || strings.Contains(a.body, "of eve") {
				t.Errorf("%s: %d %s", text, a.status, a.body)
			}
		}
	}
	all(eve, "of eve")
	var hers []struct {
		ID string `json:"sandboxId"`
	}
	a := eve.ask(t, "GET", "/v1/sandboxes", "")
	if err := json.Unmarshal([]byte(a.body), &hers); err != nil || len(hers) != 6 {
		t.Fatalf("%d sandboxes of eve: %v: %s", len(hers), err, a.body)
	}
	for _, sb := range hers {
		eve.want(t, "PUT", "/v1/sandboxes/"+sb.ID+"/grants/ada", `{"access":"write"}`)
	}
	if a := ada.ask(t, "GET", "/jupyter/api/kernels", "", user, "people-1"); strings.TrimSpace(a.body) != "[]" {
		t.Errorf("kernels of ada's user: %s", a.body)
	}
	all(ada, "of ada")
	for _, sb := range hers {
		for _, path := range []string{"secret", "secret.txt"} {
			if a := eve.ask(t, "GET", "/v1/sandboxes/"+sb.ID+"/files/content?path="+path, ""); strings.Contains(a.body, "of ada") {
				t.Errorf("eve's %s has %s", sb.ID, a.body)
			}
		}
	}
}
