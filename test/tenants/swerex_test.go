package tenants

import (
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"testing"
)

// swerexBodies are valid request bodies, by the last part of a route of SWE-ReX.
var swerexBodies = map[string]string{
	"create_session": `{"session":"hers"}`, "run_in_session": `{"action_type":"bash","command":"cat secret; echo $mark","timeout":20}`, "close_session": `{}`,
	"execute": `{"command":["cat","secret"]}`, "read_file": `{"path":"secret"}`, "write_file": `{"path":"secret","content":"of eve"}`,
	"upload": "--B\r\nContent-Disposition: form-data; name=\"file\"; filename=\"f\"\r\n\r\nof eve\r\n--B\r\nContent-Disposition: form-data; name=\"target_path\"\r\n\r\nsecret\r\n--B--\r\n",
}

// ofThisMachine matches the output of a shell, which can contain a prompt, and the folder of a fake sandbox.
var ofThisMachine = regexp.MustCompile(`"output":"[^"]*"|[^" ]*/secret`)

// TestSWEReXRoutes: eve calls each route of SWE-ReX with the id of ada's sandbox, and with an id that never existed.
// She cannot distinguish the answers: either id gives her a sandbox of her own. Ada's sandbox and session are as before.
func TestSWEReXRoutes(t *testing.T) {
	t.Parallel()
	h := open(t)
	ada, eve := h.adaAndEve(t)
	ada.want(t, "POST", "/swerex/adasbox/write_file", `{"path":"secret","content":"of ada"}`)
	ada.want(t, "POST", "/swerex/adasbox/create_session", `{}`)
	ada.want(t, "POST", "/swerex/adasbox/run_in_session", `{"action_type":"bash","command":"mark=of-ada","timeout":20}`)

	tried := 0
	for _, route := range h.swerex.Routes() {
		tried++
		method, path, _ := strings.Cut(route, " ")
		body := swerexBodies[path[strings.LastIndexByte(path, '/')+1:]]
		ask := func(id string) string {
			a := eve.ask(t, method, strings.Replace(path, "{sandbox}", id, 1), body, "Content-Type", "multipart/form-data; boundary=B")
			if strings.Contains(a.body, "of ada") || strings.Contains(a.body, "of-ada") {
				t.Errorf("%s: %d %s", route, a.status, a.body)
			}
			if a.status == http.StatusUnprocessableEntity || a.status == http.StatusNotFound {
				t.Errorf("%s: %d %s: is the request whole? See swerexBodies", route, a.status, a.body)
			}
			return fmt.Sprint(a.status, " ", ofThisMachine.ReplaceAllString(strings.ReplaceAll(a.body, id, "ID"), "X"))
		}
		if hers, none := ask("adasbox"), ask("nobodyx"); hers != none { // both ids have the same length
			t.Errorf("%s of ada's: %s\nand of nobody's: %s", route, hers, none)
		}
	}
	if tried != 9 {
		t.Errorf("%d routes were tried", tried)
	}
	if a := ada.ask(t, "POST", "/swerex/adasbox/run_in_session", swerexBodies["run_in_session"]); !strings.Contains(a.body, "of ada") || !strings.Contains(a.body, "of-ada") {
		t.Errorf("ada's session is now %d %s", a.status, a.body)
	}
}
