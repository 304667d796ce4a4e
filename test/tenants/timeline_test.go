package tenants

import (
	"net/http"
	"strings"
	"testing"
)

// TestTimelines: eve cannot read the timeline of ada's sandbox, not even when it is shared with her or destroyed. Her
// own timeline shows nothing about ada's secrets. Ada sees what eve did.
func TestTimelines(t *testing.T) {
	t.Parallel()
	h := open(t)
	ada, eve := h.adaAndEve(t)
	const value = "sk-of-ada-and-of-nobody-else"
	ada.want(t, "PUT", "/v1/secrets/ADAS_KEY", `{"value":"`+value+`"}`)
	ada.want(t, "POST", "/v1/sandboxes", `{"sandboxId":"adas-box"}`)
	eve.want(t, "POST", "/v1/sandboxes", `{"sandboxId":"eves-box"}`)
	ada.want(t, "POST", "/v1/sandboxes/adas-box/exec", `{"command":"echo by-ada `+value+`"}`)
	eve.want(t, "POST", "/v1/sandboxes/eves-box/exec", `{"command":"echo guess `+value+`"}`)

	look := func(who *tenant, box string) answer { return who.ask(t, "GET", "/v1/sandboxes/"+box+"/timeline", "") }
	hers, none := look(eve, "adas-box"), look(eve, "nobodys-x")
	if hers.status != http.StatusNotFound || strings.ReplaceAll(hers.body, "adas-box", "ID") != strings.ReplaceAll(none.body, "nobodys-x", "ID") {
		t.Errorf("of ada's: %d %s\nand of nobody's: %s", hers.status, hers.body, none.body)
	}
	ada.want(t, "PUT", "/v1/sandboxes/adas-box/grants/eve", `{"access":"write"}`)
	eve.want(t, "POST", "/v1/sandboxes/adas-box/exec", `{"command":"echo by-eve"}`)
	if a := look(eve, "adas-box"); a.status != http.StatusForbidden || strings.Contains(a.body, "by-ada") {
		t.Errorf("of the shared one: %d %s", a.status, a.body)
	}
	if a := look(eve, "eves-box"); !strings.Contains(a.body, "echo guess "+value) {
		t.Errorf("eve's own, where a redacted guess tells her that it is right: %s", a.body)
	}
	if a := look(ada, "adas-box"); strings.Contains(a.body, value) || !strings.Contains(a.body, "by-eve") || !strings.Contains(a.body, `"tokenName":"eve"`) || !strings.Contains(a.body, `"Share"`) {
		t.Errorf("ada's own: %s", a.body)
	}
	ada.want(t, "DELETE", "/v1/sandboxes/adas-box?force=true", "")
	if a := look(ada, "adas-box"); !strings.Contains(a.body, "by-eve") {
		t.Errorf("after the end: %d %s", a.status, a.body)
	}
	if a := look(eve, "adas-box"); a.status != http.StatusNotFound {
		t.Errorf("after the end, for eve: %d %s", a.status, a.body)
	}
}
