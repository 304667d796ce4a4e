package tenants

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
)

// TestJudge0: only the owner of a submission can use it, whatever another tenant knows of it.
func TestJudge0(t *testing.T) {
	t.Parallel()
	h := open(t)
	ada, eve := h.adaAndEve(t)
	a := ada.ask(t, "POST", "/judge0/submissions?wait=true", `{"language_id":46,"source_code":"echo of ada | tee secret"}`)
	var made struct{ Token, Stdout string }
	if err := json.Unmarshal([]byte(a.body), &made); err != nil || a.status != http.StatusCreated || made.Stdout != "of ada\n" {
		t.Fatalf("ada's submission: %d %s", a.status, a.body)
	}
	for _, path := range []string{"/judge0/submissions/" + made.Token, "/judge0/submissions/batch?tokens=" + made.Token, "/judge0/submissions"} {
		if b := ada.ask(t, "GET", path, ""); b.status != http.StatusOK || !strings.Contains(b.body, "of ada") {
			t.Errorf("ada, %s: %d %s", path, b.status, b.body)
		}
		never := strings.ReplaceAll(path, made.Token, "00000000-0000-4000-8000-000000000000")
		mine, other := eve.ask(t, "GET", path, ""), eve.ask(t, "GET", never, "")
		if strings.Contains(mine.body, "of ada") || mine.status != other.status || strings.ReplaceAll(mine.body, made.Token, "") != strings.ReplaceAll(other.body, "00000000-0000-4000-8000-000000000000", "") {
			t.Errorf("eve, %s: %d %s, and one that never was: %d %s", path, mine.status, mine.body, other.status, other.body)
		}
	}
	if b := eve.ask(t, "DELETE", "/judge0/submissions/"+made.Token, ""); b.status != http.StatusNotFound {
		t.Errorf("eve deletes ada's submission: %d %s", b.status, b.body)
	}
	if b := eve.ask(t, "POST", "/judge0/submissions?wait=true", `{"language_id":46,"source_code":"cat secret; ls -a"}`); strings.Contains(b.body, "of ada") {
		t.Errorf("eve's program: %s", b.body)
	}
	for _, who := range []*tenant{ada, eve} {
		if b := who.ask(t, "GET", "/v1/sandboxes", ""); strings.Contains(b.body, "sandboxId") {
			t.Errorf("a sandbox is left: %s", b.body)
		}
	}
	for _, route := range h.judge0.Routes() {
		method, path, _ := strings.Cut(route, " ")
		if b := h.stranger().ask(t, method, path, "{}"); b.status != http.StatusUnauthorized {
			t.Errorf("%s without a token: %d %s", route, b.status, b.body)
		}
	}
}
