package tenants

import (
	"net/http"
	"strings"
	"testing"
)

// TestStatsHistories: what a sandbox used can be read by those who can read the sandbox.
func TestStatsHistories(t *testing.T) {
	t.Parallel()
	h := open(t)
	ada, eve := h.adaAndEve(t)
	ada.want(t, "POST", "/v1/sandboxes", `{"sandboxId":"adas-box"}`)
	eve.want(t, "POST", "/v1/sandboxes", `{"sandboxId":"eves-box"}`)
	look := func(who *tenant, box string) answer {
		return who.ask(t, "GET", "/v1/sandboxes/"+box+"/stats?step=10", "")
	}
	hers, none := look(eve, "adas-box"), look(eve, "nobodys-x")
	if hers.status != http.StatusNotFound || strings.ReplaceAll(hers.body, "adas-box", "ID") != strings.ReplaceAll(none.body, "nobodys-x", "ID") {
		t.Errorf("of ada's: %d %s\nand of nobody's: %s", hers.status, hers.body, none.body)
	}
	if a := look(ada, "adas-box"); a.status != http.StatusOK || !strings.Contains(a.body, `"step":10`) || !strings.Contains(a.body, `"samples":[`) {
		t.Errorf("ada's own: %d %s", a.status, a.body)
	}
	ada.want(t, "PUT", "/v1/sandboxes/adas-box/grants/eve", `{"access":"read"}`)
	if a := look(eve, "adas-box"); a.status != http.StatusOK {
		t.Errorf("of the shared one: %d %s", a.status, a.body)
	}
	for _, query := range []string{"step=-1", "step=x", "since=yesterday", "since=2026-01-02T00:00:00Z&until=2026-01-01T00:00:00Z", "from=2026-01-01"} {
		if a := ada.ask(t, "GET", "/v1/sandboxes/adas-box/stats?"+query, ""); a.status != http.StatusBadRequest {
			t.Errorf("%s: %d %s", query, a.status, a.body)
		}
	}
}
