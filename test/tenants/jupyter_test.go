package tenants

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
)

// jupyterBodies are valid request bodies, by route of Jupyter.
var jupyterBodies = map[string]string{
	"PATCH /jupyter/api/sessions/{session}": `{"path":"eves.ipynb"}`, "POST /jupyter/api/sessions": `{"path":"of-ada.ipynb"}`,
}

// TestJupyterRoutes: eve calls each route of Jupyter with the ids of ada's kernel and session, and with ids that never
// existed. She cannot distinguish the answers, and ada's kernel is as it was.
func TestJupyterRoutes(t *testing.T) {
	t.Parallel()
	h := open(t)
	ada, eve := h.adaAndEve(t)
	made := ada.want(t, "POST", "/jupyter/api/sessions", `{"path":"of-ada.ipynb"}`)
	session := made["id"].(string)
	kernel := made["kernel"].(map[string]any)["id"].(string)
	if said := ada.inKernel(t, h.URL, kernel, "mark = 'of-ada'"); !strings.Contains(said, `"idle"`) {
		t.Fatal(said)
	}
	const nobodys = "00112233-4455-6677-8899-aabbccddeeff"

	tried := 0
	for _, route := range h.jupyter.Routes() {
		method, path, _ := strings.Cut(route, " ")
		if !strings.Contains(path, "{kernel}") && !strings.Contains(path, "{session}") {
			continue
		}
		tried++
		ask := func(kernel, session string) string {
			a := eve.ask(t, method, strings.NewReplacer("{kernel}", kernel, "{session}", session).Replace(path), jupyterBodies[route])
			if a.status != http.StatusNotFound {
				t.Errorf("%s: %d %s", route, a.status, a.body)
			}
			return fmt.Sprint(a.status, " ", strings.NewReplacer(kernel, "ID", session, "ID").Replace(a.body))
		}
		if hers, none := ask(kernel, session), ask(nobodys, nobodys); hers != none {
			t.Errorf("%s of ada's: %s\nand of nobody's: %s", route, hers, none)
		}
	}
	if tried != 8 {
		t.Errorf("%d routes were tried", tried)
	}
	for _, list := range []string{"kernels", "sessions", "kernels?user=ada"} {
		if a := eve.ask(t, "GET", "/jupyter/api/"+list, ""); strings.TrimSpace(a.body) != "[]" {
			t.Errorf("%s: %s", list, a.body)
		}
	}
	if hers, none := eve.inKernel(t, h.URL, kernel, "mark"), eve.inKernel(t, h.URL, nobodys, "mark"); hers != none || hers != "refused with 404" {
		t.Errorf("%s\n%s", hers, none)
	}
	// The same path and the same user lead to a sandbox and a session of eve's own.
	if s := eve.want(t, "POST", "/jupyter/api/sessions", `{"path":"of-ada.ipynb"}`); s["id"] == session {
		t.Errorf("eve has ada's session: %v", s)
	}
	if a := eve.ask(t, "POST", "/jupyter/api/sessions", `{"path":"x","kernel":{"id":"`+kernel+`"}}`); a.status != http.StatusNotFound {
		t.Errorf("%d %s", a.status, a.body)
	}
	if said := ada.inKernel(t, h.URL, kernel, "mark"); !strings.Contains(said, "of-ada") {
		t.Errorf("ada's kernel now says %s", said)
	}
}

// TestJupyterUsers: if two tenants use the same name of a user, each tenant has its own sandbox for it.
func TestJupyterUsers(t *testing.T) {
	t.Parallel()
	h := open(t)
	ada, eve := h.adaAndEve(t)
	start := func(who *tenant) string {
		return who.want(t, "POST", "/jupyter/api/kernels?user=bob", "")["id"].(string)
	}
	adas, eves := start(ada), start(eve)
	if adas[:18] != eves[:18] {
		t.Fatalf("%s and %s: the test needs one name for two sandboxes", adas, eves)
	}
	ada.inKernel(t, h.URL, adas, "open('secret', 'w').write('of ada')")
	if said := eve.inKernel(t, h.URL, eves, "import os; os.path.exists('secret')"); !strings.Contains(said, "False") {
		t.Errorf("eve's bob sees ada's: %s", said)
	}
	if a := eve.ask(t, "DELETE", "/jupyter/api/kernels/"+adas, ""); a.status != http.StatusNotFound {
		t.Errorf("%d %s", a.status, a.body)
	}
}

// TestJupyterSharing: eve shares with ada a sandbox that has the labels of a kernel, and a session with the path of ada's
// notebook. Ada's notebook does not run there.
func TestJupyterSharing(t *testing.T) {
	t.Parallel()
	h := open(t)
	ada, eve := h.adaAndEve(t)
	eve.want(t, "POST", "/v1/sandboxes", `{"sandboxId":"jupyter-0011223344556677","labels":{"jupyter":"kernels","jupyter-kernel-8899aabbccddeeff":"{\"name\":\"python3\",\"session\":{\"id\":\"s\",\"path\":\"a.ipynb\"}}"}}`)
	eve.want(t, "PUT", "/v1/sandboxes/jupyter-0011223344556677/grants/ada", `{"access":"write"}`)
	const eves = "00112233-4455-6677-8899-aabbccddeeff"
	if s := ada.want(t, "POST", "/jupyter/api/sessions", `{"path":"a.ipynb"}`); s["id"] == "s" || s["kernel"].(map[string]any)["id"] == eves {
		t.Errorf("ada's notebook runs in eve's sandbox: %v", s)
	}
	if said := ada.inKernel(t, h.URL, eves, "1"); said != "refused with 404" {
		t.Errorf("eve's kernel for ada: %s", said)
	}
	if a := eve.ask(t, "GET", "/jupyter/api/kernels/"+eves, ""); a.status != http.StatusOK {
		t.Errorf("eve's kernel for eve: %d %s", a.status, a.body)
	}
}

// inKernel runs code in a kernel, and returns all messages that the client gets.
func (who *tenant) inKernel(t *testing.T, url, kernel, code string) (said string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	conn, resp, err := websocket.Dial(ctx, url+"/jupyter/api/kernels/"+kernel+"/channels?token="+who.Secret, nil)
	if err != nil {
		return fmt.Sprint("refused with ", resp.StatusCode)
	}
	defer conn.CloseNow()
	conn.SetReadLimit(1 << 20)
	conn.Write(ctx, websocket.MessageText, fmt.Appendf(nil, `{"header":{"msg_id":"m","msg_type":"execute_request","session":"s"},"channel":"shell","content":{"code":%q,"allow_stdin":false}}`, code))
	for {
		_, b, err := conn.Read(ctx)
		said += string(b)
		if err != nil || strings.Contains(string(b), `"execution_state":"idle"`) {
			return said
		}
	}
}
