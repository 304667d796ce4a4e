package tenants

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
)

// e2bBodies are valid request bodies, by route.
var e2bBodies = map[string]string{
	"POST /sandboxes/{id}/timeout":   `{"timeout":1}`,
	"POST /sandboxes/{id}/refreshes": `{"duration":1}`,
	"PUT /sandboxes/{id}/network":    `{"denyOut":["0.0.0.0/0"]}`,

	"POST /v2/templates/{id}/builds/{build}": `{"steps":[]}`,
}

// TestE2BRoutes: eve calls each route of E2B's API with ada's ids, and with ids that never existed. She cannot
// distinguish the answers, and ada's sandbox and snapshot are still there afterwards.
func TestE2BRoutes(t *testing.T) {
	t.Parallel()
	h := open(t)
	ada, eve := h.adaAndEve(t)
	made := ada.want(t, "POST", "/e2b/v2/sandboxes", `{"templateID":"base"}`)
	box, access := made["sandboxID"].(string), made["envdAccessToken"].(string)
	ada.want(t, "PUT", "/v1/sandboxes/"+box+"/files/content?path=secret", "of ada")
	snapshot := ada.want(t, "POST", "/e2b/sandboxes/"+box+"/snapshots", `{}`)["snapshotID"].(string)
	built := ada.want(t, "POST", "/e2b/v3/templates", `{"name":"of-ada"}`)
	link := ada.want(t, "GET", "/e2b/templates/of-ada/files/"+strings.Repeat("a", 64), "")["url"].(string)
	rest := strings.NewReplacer("{build}", built["buildID"].(string), "{hash}", strings.Repeat("a", 64), "{part}", "tags")

	tried := 0
	for _, route := range h.e2b.Routes() {
		method, path, _ := strings.Cut(route, " ")
		if !strings.Contains(path, "{id}") {
			continue
		}
		tried++
		ask := func(box, snapshot string) string {
			id := box
			if strings.Contains(path, "/templates/") {
				id = snapshot
			}
			a := eve.ask(t, method, "/e2b"+rest.Replace(strings.Replace(path, "{id}", id, 1)), e2bBodies[route])
			if a.status != http.StatusNotFound && a.status != http.StatusNotImplemented {
				t.Errorf("%s: %d %s: is the request whole? See e2bBodies", route, a.status, a.body)
			}
			return fmt.Sprint(a.status, " ", strings.ReplaceAll(a.body, id, "ID"))
		}
		of, nobodys := snapshot, "sn-"+strings.Repeat("a", len(snapshot)-3)
		if strings.Contains(path, "{build}") || strings.Contains(path, "{hash}") {
			of, nobodys = "of-ada", "of-eva"
		}
		hers, none := ask(box, of), ask("i"+strings.Repeat("a", len(box)-1), nobodys)
		if hers != none {
			t.Errorf("%s of ada's: %s\nand of nobody's: %s", route, hers, none)
		}
	}
	if tried < 12 {
		t.Errorf("only %d routes were tried", tried)
	}
	if a := eve.ask(t, "POST", "/e2b/v2/sandboxes", `{"templateID":"`+snapshot+`"}`); a.status < 400 {
		t.Errorf("eve begins with ada's snapshot: %s", a.body)
	}
	if a := eve.ask(t, "GET", "/e2b/v2/sandboxes", ""); strings.TrimSpace(a.body) != "[]" {
		t.Errorf("eve lists %s", a.body)
	}
	eve.want(t, "POST", "/e2b/v3/templates", `{"name":"of-ada"}`) // eve's own template with that name
	if a := eve.ask(t, "GET", "/e2b/templates/of-ada/builds/"+built["buildID"].(string)+"/status", ""); a.status != http.StatusNotFound {
		t.Errorf("eve sees ada's build: %d %s", a.status, a.body)
	}
	signed, err := url.Parse(link)
	if err != nil {
		t.Fatal(err)
	}
	if a := eve.ask(t, "PUT", strings.Replace(signed.RequestURI(), "owner=", "owner=65", 1), "x"); a.status != http.StatusNotFound {
		t.Errorf("a signed URL with another owner: %d %s", a.status, a.body)
	}

	// The services inside: eve has a sandbox, too, and its access token opens no other.
	other := eve.want(t, "POST", "/e2b/v2/sandboxes", `{"templateID":"base"}`)
	for name, header := range map[string][]string{
		"her token":                 {"E2b-Sandbox-Id", box},
		"her sandbox's":             {"E2b-Sandbox-Id", box, "X-Access-Token", other["envdAccessToken"].(string)},
		"ada's, of another sandbox": {"E2b-Sandbox-Id", other["sandboxID"].(string), "X-Access-Token", access},
	} {
		for _, port := range []string{"49983", "49999"} {
			if a := eve.ask(t, "POST", "/any", "", append(header, "E2b-Sandbox-Port", port)...); a.status != http.StatusUnauthorized || strings.Contains(a.body, "of ada") {
				t.Errorf("%s at port %s: %d %s", name, port, a.status, a.body)
			}
		}
	}
	shown := func() answer {
		return ada.ask(t, "POST", "/any", "", "E2b-Sandbox-Id", box, "X-Access-Token", access)
	}
	if a := shown(); a.body != "of ada" {
		t.Errorf("ada's file is now %d %q", a.status, a.body)
	}
	ada.want(t, "DELETE", "/e2b/templates/"+snapshot, "")

	// An access token ends with the token of its owner.
	if _, err := h.tokens.RevokeToken(t.Context(), "ada"); err != nil {
		t.Fatal(err)
	}
	if a := shown(); a.status != http.StatusUnauthorized {
		t.Errorf("after ada's token: %d %s", a.status, a.body)
	}
}
