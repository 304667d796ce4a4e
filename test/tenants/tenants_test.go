package tenants

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"hutch"
)

// bodies are valid request bodies, by route.
var bodies = map[string]string{
	"POST /v1/sandboxes/{id}/exec":                       `{"command":"echo taken"}`,
	"POST /v1/sandboxes/{id}/processes":                  `{"command":"sleep 1"}`,
	"POST /v1/sandboxes/{id}/processes/{process}/signal": `{"signal":9}`,
	"POST /v1/sandboxes/{id}/processes/{process}/input":  "rm -rf .\n",
	"POST /v1/sandboxes/{id}/processes/{process}/resize": `{"columns":80,"rows":24}`,
	"POST /v1/sandboxes/{id}/processes/{process}/wait":   `{"timeout":1}`,
	"POST /v1/sandboxes/{id}/git/clone":                  `{"url":"/workspace"}`,
	"POST /v1/sandboxes/{id}/git/commit":                 `{"message":"mine"}`,
	"POST /v1/sandboxes/{id}/files/edit":                 `{"path":"secret","oldText":"ada","newText":"eve"}`,
	"POST /v1/sandboxes/{id}/contexts":                   `{"language":"bash"}`,
	"POST /v1/sandboxes/{id}/contexts/{context}/run":     `{"code":"cat secret"}`,
	"POST /v1/sandboxes/{id}/run":                        `{"language":"bash","code":"cat secret"}`,
	"POST /v1/sandboxes/{id}/backups":                    `{}`,
	"POST /v1/sandboxes/{id}/image":                      `{"name":"taken"}`,
	"POST /v1/sandboxes/{id}/ports":                      `{"port":8080}`,
	"POST /v1/sandboxes/{id}/screen":                     `{}`,
	"POST /v1/sandboxes/{id}/screen/actions":             `{"actions":[{"action":"type","text":"mine"}]}`,
	"POST /v1/sandboxes/{id}/screen/open":                `{"url":"https://example.com/"}`,
	"PUT /v1/sandboxes/{id}/screen/clipboard":            `{"text":"mine"}`,
	"POST /v1/sandboxes/{id}/ports/{port}/validate":      `{"token":"x"}`,
	"POST /v1/sandboxes/{id}/ports/{port}/link":          `{}`,
	"PUT /v1/sandboxes/{id}/grants/{token}":              `{"access":"write"}`,
	"PUT /v1/sandboxes/{id}/files/content":               "taken",
	"PUT /v1/sandboxes/{id}/files/archive":               "taken",
}

// queries are the parameters that routes need.
var queries = map[string]string{
	"/files/content": "path=secret", "/files/stat": "path=secret", "/files/mkdir": "path=d", "/files/move": "from=secret&to=taken",
	"/files/copy": "from=secret&to=taken", "/files/chmod": "path=secret&mode=777", "/files/search": "path=.&pattern=ada", "/files/watch": "path=.", "/files/archive": "path=.&format=tar",
	"/files": "path=secret",
}

// fine are routes that also succeed for something that never existed.
var fine = []string{"DELETE /v1/sandboxes/{id}", "DELETE /v1/sandboxes/{id}/grants/{token}",
	"GET /v1/sandboxes/{id}/processes/{process}/links", "DELETE /v1/sandboxes/{id}/processes/{process}/links/{link}"}

// TestEveryRoute: eve calls each route with the ids of everything in ada's sandbox, and with an id that never
// existed. She cannot distinguish the answers, and everything is still there afterwards.
func TestEveryRoute(t *testing.T) {
	t.Parallel()
	h := open(t)
	ada, eve := h.adaAndEve(t)
	ada.want(t, "POST", "/v1/sandboxes", `{"sandboxId":"adas-box"}`)
	ada.want(t, "PUT", "/v1/sandboxes/adas-box/files/content?path=secret", "of ada")
	process := ada.want(t, "POST", "/v1/sandboxes/adas-box/processes", `{"command":"exec sleep 600","terminal":{"columns":80,"rows":24}}`)["processId"].(string)
	code := ada.want(t, "POST", "/v1/sandboxes/adas-box/contexts", `{"language":"bash"}`)["contextId"].(string)

	exec := ada.leftExec(t, "adas-box")

	tried := 0
	for _, r := range h.rest.Routes() {
		route := r.Method + " " + r.Path
		if !strings.HasPrefix(r.Path, "/v1/sandboxes/{id}") {
			continue
		}
		tried++
		ask := func(id string) answer {
			path := strings.NewReplacer("{id}", id, "{process}", process, "{exec}", exec, "{context}", code, "{token}", "ada", "{port}", "8080").Replace(r.Path)
			_, below, _ := strings.Cut(r.Path, "{id}")
			a := eve.ask(t, r.Method, path+"?"+queries[below], bodies[route])
			a.body = strings.ReplaceAll(a.body, id, "ID")
			return a
		}
		hers, none := ask("adas-box"), ask("nobodys-x") // ids of the same length
		at := func(a answer) string {                   // the answer without the time in a receipt
			before, _, _ := strings.Cut(a.body, `"destroyedAt"`)
			return fmt.Sprint(a.status, " ", before)
		}
		if at(hers) != at(none) {
			t.Errorf("%s of ada's: %s\nand of nobody's: %s", route, at(hers), at(none))
		}
		socket := strings.Contains(hers.body, "a WebSocket") // TestEverySocket tests those
		if !socket && hers.status != http.StatusNotFound && !slices.Contains(fine, route) {
			t.Errorf("%s: %d %s: is the request whole? See bodies and queries", route, hers.status, hers.body)
		}
	}
	if tried < 40 {
		t.Errorf("only %d routes were tried", tried)
	}
	if a := ada.ask(t, "GET", "/v1/sandboxes/adas-box/files/content?path=secret", ""); a.body != "of ada" {
		t.Errorf("ada's file is now %d %q", a.status, a.body)
	}
	if p := ada.want(t, "GET", "/v1/sandboxes/adas-box/processes/"+process, ""); p["status"] != "running" {
		t.Errorf("ada's process is now %v", p)
	}
	if a := ada.ask(t, "DELETE", "/v1/sandboxes/adas-box/exec/"+exec, ""); a.status != http.StatusNoContent {
		t.Errorf("ada's command is now %d %s", a.status, a.body)
	}
	if a := ada.ask(t, "GET", "/v1/sandboxes/adas-box/grants", ""); strings.TrimSpace(a.body) != "[]" {
		t.Errorf("ada's sandbox is shared: %s", a.body)
	}
}

// TestEverySocket does the same over WebSockets.
func TestEverySocket(t *testing.T) {
	t.Parallel()
	h := open(t)
	ada, eve := h.adaAndEve(t)
	ada.want(t, "POST", "/v1/sandboxes", `{"sandboxId":"adas-box"}`)
	process := ada.want(t, "POST", "/v1/sandboxes/adas-box/processes", `{"command":"exec cat","terminal":{"columns":80,"rows":24}}`)["processId"].(string)
	for path, first := range map[string]string{
		"/exec": `{"command":"echo taken"}`, "/run": `{"language":"bash","code":"echo taken"}`, "/contexts/x/run": `{"language":"bash","code":"echo taken"}`,
		"/exec/" + ada.leftExec(t, "adas-box"): `{"cancel":true}`,
		"/processes/" + process + "/terminal":  `{}`, "/processes/" + process + "/logs": `{}`,
	} {
		dial := func(id string) (said string) {
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			conn, resp, err := websocket.Dial(ctx, h.URL+"/v1/sandboxes/"+id+path, &websocket.DialOptions{HTTPHeader: http.Header{"Authorization": {"Bearer " + eve.Secret}}})
			if err != nil {
				return fmt.Sprint("refused with ", resp.StatusCode)
			}
			defer conn.CloseNow()
			conn.Write(ctx, websocket.MessageText, []byte(first))
			for {
				_, b, err := conn.Read(ctx)
				if err != nil {
					return strings.ReplaceAll(said, id, "ID")
				}
				said += string(b)
			}
		}
		// Eve's own cancel can arrive before the answer. That shows nothing, so the call is repeated.
		answered := func(id string) (said string) {
			for said = dial(id); strings.Contains(said, "the command was cancelled"); said = dial(id) {
			}
			return said
		}
		hers, none := answered("adas-box"), answered("nobodys-x")
		if hers != none || !strings.Contains(hers, "not_found") && !strings.Contains(hers, "404") {
			t.Errorf("%s of ada's: %s\nand of nobody's: %s", path, hers, none)
		}
	}
}

// TestEveryTool does the same over MCP.
func TestEveryTool(t *testing.T) {
	t.Parallel()
	h := open(t)
	ada, eve := h.adaAndEve(t)
	ada.want(t, "POST", "/v1/sandboxes", `{"sandboxId":"adas-box"}`)
	process := ada.want(t, "POST", "/v1/sandboxes/adas-box/processes", `{"command":"exec sleep 600"}`)["processId"].(string)
	for tool, args := range map[string]map[string]any{
		"exec": {"command": "echo taken"}, "getSandbox": {}, "destroySandbox": {"force": true},
		"startBackgroundProcess": {"command": "sleep 1", "name": "x"}, "waitProcess": {"processId": process},
		"readFile": {"path": "secret"}, "writeFile": {"path": "secret", "content": "x"}, "listFiles": {"path": "."},
		"editFile": {"path": "secret", "oldText": "a", "newText": "b"},
	} {
		ask := func(id string) string {
			args["sandboxId"] = id
			a := eve.call(t, tool, args)
			before, _, _ := strings.Cut(strings.ReplaceAll(a.body, id, "ID"), "destroyedAt")
			return fmt.Sprint(a.status, " ", before)
		}
		hers, none := ask("adas-box"), ask("nobodys-x")
		if hers != none {
			t.Errorf("%s of ada's: %s\nand of nobody's: %s", tool, hers, none)
		}
		if tool != "destroySandbox" && !strings.Contains(hers, "-32001") {
			t.Errorf("%s: %s", tool, hers)
		}
	}
	ada.want(t, "GET", "/v1/sandboxes/adas-box/processes/"+process, "")
	if a := eve.call(t, "getSandbox", map[string]any{"filters": map[string]any{"owner": ada.ID}}); strings.Contains(a.body, "adas-box") {
		t.Errorf("eve lists %s", a.body)
	}
}

// TestLists: eve's lists show nothing of ada's, whether she asks for all or for ada's.
func TestLists(t *testing.T) {
	t.Parallel()
	h := open(t)
	ada, eve := h.adaAndEve(t)
	ada.want(t, "POST", "/v1/sandboxes", `{"sandboxId":"adas-box"}`)
	for _, query := range []string{"", "?owner=" + ada.ID, "?owner=ada", "?owner=", "?limit=10", "?status=running"} {
		if a := eve.ask(t, "GET", "/v1/sandboxes"+query, ""); a.status != 200 || strings.TrimSpace(a.body) != "[]" {
			t.Errorf("%s: %d %s", query, a.status, a.body)
		}
	}
	if a := eve.ask(t, "GET", "/v1/sandboxes?owner="+eve.ID+"&owner="+ada.ID, ""); a.status != 400 {
		t.Errorf("two owners: %d %s", a.status, a.body)
	}
}

// TestIdempotencyKey: eve does not get ada's answer for the same key, however both send their tokens, and cannot use up
// ada's key.
func TestIdempotencyKey(t *testing.T) {
	t.Parallel()
	h := open(t)
	ada, eve := h.adaAndEve(t)
	for place, of := range map[string]func(who *tenant) (query string, header []string){
		"Authorization": func(*tenant) (string, []string) { return "", nil },
		"X-API-Key":     func(who *tenant) (string, []string) { return "", []string{"X-Api-Key", who.Secret} },
		"X-Auth-Token":  func(who *tenant) (string, []string) { return "", []string{"X-Auth-Token", who.Secret} },
		"URL":           func(who *tenant) (string, []string) { return "?access_token=" + who.Secret, []string{"X-Other", ""} },
	} {
		create := func(who *tenant, body string) answer {
			query, header := of(who)
			if header != nil {
				header = append(header, "Authorization", "")
			}
			return who.ask(t, "POST", "/v1/sandboxes"+query, body, append(header, "Idempotency-Key", place)...)
		}
		first := create(ada, `{}`)
		if again := create(ada, `{}`); first.status != 200 || again.body != first.body || again.header.Get("Idempotency-Replayed") == "" {
			t.Errorf("%s: %d %s, and again %d %s", place, first.status, first.body, again.status, again.body)
		}
		if again := create(eve, `{}`); again.status != 200 || again.header.Get("Idempotency-Replayed") != "" || again.body == first.body {
			t.Errorf("%s: eve gets %d %v %s", place, again.status, again.header, again.body)
		}
	}
}

// TestEscalation: no token can extend its own rights.
func TestEscalation(t *testing.T) {
	t.Parallel()
	h := open(t)
	eve := h.tenant(t, hutch.TokenRequest{Name: "eve"})
	h.tenant(t, hutch.TokenRequest{Name: "ada"})
	for route, body := range map[string]string{
		"GET /v1/tokens": "", "GET /v1/tokens/ada": "", "DELETE /v1/tokens/ada": "", "POST /v1/tokens/ada/rotate": "", "POST /v1/tokens/eve/rotate": "",
		"POST /v1/tokens": `{"name":"more","scopes":["admin"]}`, "GET /v1/tokens/nobody": "",
	} {
		method, path, _ := strings.Cut(route, " ")
		if a := eve.ask(t, method, path, body); a.status != http.StatusForbidden || strings.Contains(a.body, "hutch_") {
			t.Errorf("%s: %d %s", route, a.status, a.body)
		}
	}
}

// TestTokensThatOpenNothing: all invalid tokens are refused alike.
func TestTokensThatOpenNothing(t *testing.T) {
	t.Parallel()
	h := open(t)
	ada := h.tenant(t, hutch.TokenRequest{Name: "ada"})
	expired := h.tenant(t, hutch.TokenRequest{Name: "expired", Lifetime: 0.001})
	for err := error(nil); err == nil; {
		_, err = h.tokens.Check(t.Context(), expired.Secret) // it is valid for a millisecond
	}
	revoked := h.tenant(t, hutch.TokenRequest{Name: "revoked"})
	_, err := h.tokens.RevokeToken(t.Context(), "revoked")
	must(t, err)
	bit := []byte(ada.Secret)
	bit[len(bit)-1] ^= 1
	var words string
	for name, token := range map[string]string{
		"expired": expired.Secret, "revoked": revoked.Secret, "a moved bit": string(bit), "shorter": ada.Secret[:len(ada.Secret)-1], "longer": ada.Secret + "a",
		"the id": ada.ID, "the name": "ada", "upper case": strings.ToUpper(ada.Secret), "the prefix": "hutch_", "null": "null", "unsigned": "eyJhbGciOiJub25lIn0.eyJzdWIiOiJhZGEifQ.",
	} {
		a := ada.ask(t, "GET", "/v1/sandboxes", "", "Authorization", "Bearer "+token)
		if a.status != 401 || !strings.Contains(a.header.Get("WWW-Authenticate"), "invalid_token") {
			t.Errorf("%s: %d %v", name, a.status, a.header)
		}
		if words == "" {
			words = a.body
		}
		if a.body != words {
			t.Errorf("%s is told apart: %s", name, a.body)
		}
	}
}

// TestSmuggledHeaders sends what no HTTP client would: none of it is taken for ada's request.
func TestSmuggledHeaders(t *testing.T) {
	t.Parallel()
	h := open(t)
	ada := h.tenant(t, hutch.TokenRequest{Name: "ada"})
	ada.want(t, "POST", "/v1/sandboxes", `{"sandboxId":"adas-box"}`)
	eve := h.tenant(t, hutch.TokenRequest{Name: "eve"})
	good := "Authorization: Bearer " + ada.Secret
	for name, head := range map[string]string{
		"two tokens":          "Authorization: Bearer " + eve.Secret + "\r\n" + good,
		"two tokens, swapped": good + "\r\nAuthorization: Bearer " + eve.Secret,
		"space before colon":  "Authorization : Bearer " + ada.Secret,
		"folded":              "Authorization:\r\n Bearer " + ada.Secret + "\r\n x",
		"underscore":          "Authorization_: Bearer " + ada.Secret,
		"in a list":           "Authorization: Basic x, Bearer " + ada.Secret,
		"another scheme":      "Authorization: Digest " + ada.Secret,
		"forwarded":           "X-Forwarded-User: ada\r\nX-Authorization: Bearer " + ada.Secret,
		"a cookie":            "Cookie: token=" + ada.Secret,
		"two lengths":         "Content-Length: 0\r\nContent-Length: 5\r\nAuthorization: Bearer " + ada.Secret,
		"length and chunks":   "Content-Length: 4\r\nTransfer-Encoding: chunked, identity\r\nAuthorization: Bearer " + ada.Secret,
		"two hosts":           "Host: evil.example\r\nAuthorization: Bearer " + ada.Secret,
	} {
		conn, err := net.Dial("tcp", h.Listener.Addr().String())
		must(t, err)
		defer conn.Close()
		conn.SetDeadline(time.Now().Add(20 * time.Second))
		fmt.Fprintf(conn, "GET /v1/sandboxes HTTP/1.1\r\nHost: localhost\r\n%s\r\nConnection: close\r\n\r\n", head)
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		must(t, err)
		resp.Body.Close()
		if resp.StatusCode < 400 || resp.StatusCode == 500 {
			t.Errorf("%s: %d", name, resp.StatusCode)
		}
	}
	// No header that eve sends changes who she is.
	for _, header := range []string{"X-Forwarded-User", "X-Owner", "X-Hutch-Owner", "Hutch-Answer", "hutch-answer", "X-Original-Url", "Mcp-Session-Id"} {
		if a := eve.ask(t, "GET", "/v1/sandboxes/adas-box", "", header, "ada"); a.status != 404 {
			t.Errorf("%s: %d %s", header, a.status, a.body)
		}
	}
	for _, path := range []string{"/v1/sandboxes/%61das-box", "/v1/sandboxes/nobody/../adas-box", "/v1/sandboxes/nobody%2f..%2fadas-box", "/v1/sandboxes/" + ada.ID + "%2fadas-box", "//v1/sandboxes/adas-box", "/v1/sandboxes/ADAS-BOX"} {
		if a := eve.ask(t, "GET", path, ""); a.status < 300 || a.status >= 500 || strings.Contains(a.body, ada.ID+`"`) {
			t.Errorf("%s: %d %s", path, a.status, a.body)
		}
	}
}

// TestStolenSession: eve cannot use the id of ada's MCP session.
func TestStolenSession(t *testing.T) {
	t.Parallel()
	h := open(t)
	ada, eve := h.adaAndEve(t)
	say := func(who *tenant, session, body string) answer {
		header := []string{"Content-Type", "application/json", "Accept", "application/json, text/event-stream"}
		if session != "" {
			header = append(header, "Mcp-Session-Id", session, "MCP-Protocol-Version", "2025-11-25")
		}
		return who.ask(t, "POST", "/mcp", body, header...)
	}
	session := say(ada, "", `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"x","version":"1"}}}`).header.Get("Mcp-Session-Id")
	say(ada, session, `{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	const exec = `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"exec","arguments":{"command":"echo here"}}}`
	if a := say(ada, session, exec); a.status != 200 || !strings.Contains(a.body, "here") {
		t.Fatalf("ada herself: %d %s", a.status, a.body)
	}
	if a := say(eve, session, exec); a.status != http.StatusForbidden {
		t.Errorf("eve: %d %s", a.status, a.body)
	}
	if a := eve.ask(t, "DELETE", "/mcp", "", "Mcp-Session-Id", session, "MCP-Protocol-Version", "2025-11-25"); a.status != http.StatusForbidden {
		t.Errorf("eve ends it: %d %s", a.status, a.body)
	}
	if a := say(ada, session, exec); a.status != 200 || !strings.Contains(a.body, "here") {
		t.Errorf("ada, afterwards: %d %s", a.status, a.body)
	}
	// The sandbox of the session is destroyed on behalf of ada, who created it.
	ada.ask(t, "DELETE", "/mcp", "", "Mcp-Session-Id", session, "MCP-Protocol-Version", "2025-11-25")
	for end := time.Now().Add(20 * time.Second); ; {
		if a := ada.ask(t, "GET", "/v1/sandboxes", ""); strings.TrimSpace(a.body) == "[]" {
			break
		} else if time.Now().After(end) {
			t.Fatalf("it is still there: %s", a.body)
		}
	}
}

// TestLimitOverMCP: a tool call over the limit gets the answer of a tool.
func TestLimitOverMCP(t *testing.T) {
	t.Parallel()
	h := open(t)
	eve := h.tenant(t, hutch.TokenRequest{Name: "eve", Limits: hutch.TokenLimits{Requests: 1}})
	eve.ask(t, "GET", "/v1/sandboxes", "")
	a := eve.call(t, "getSandbox", nil)
	if a.status != 200 || !strings.Contains(a.body, `"isError":true`) || !strings.Contains(a.body, `"code":-32003`) || !strings.Contains(a.body, `"retryAfter":`) || a.header.Get("Retry-After") == "" {
		t.Errorf("modern: %d %v %s", a.status, a.header, a.body)
	}
	const older = `{"jsonrpc":"2.0","id":"seven","method":"tools/call","params":{"name":"getSandbox"}}`
	a = eve.ask(t, "POST", "/mcp", older)
	if a.status != 429 || !strings.Contains(a.body, `"error":{"code":-32003`) {
		t.Errorf("without a handshake: %d %s", a.status, a.body)
	}
	a = eve.ask(t, "POST", "/mcp", older, "MCP-Protocol-Version", "2025-11-25")
	if a.status != 200 || !strings.Contains(a.body, `"error":{"code":-32003`) || !strings.Contains(a.body, `"id":"seven"`) || a.header.Get("X-RateLimit-Remaining") != "0" {
		t.Errorf("older: %d %v %s", a.status, a.header, a.body)
	}
	a = eve.ask(t, "POST", "/mcp", `{"jsonrpc":"2.0","id":1,"method":"initialize"}`)
	if a.status != 429 || !strings.Contains(a.body, "-32003") {
		t.Errorf("not a tool: %d %s", a.status, a.body)
	}
}

// TestRevokedStreams: everything that runs for a token ends within about a second.
func TestRevokedStreams(t *testing.T) {
	t.Parallel()
	h := open(t)
	ada := h.tenant(t, hutch.TokenRequest{Name: "ada"})
	ada.want(t, "POST", "/v1/sandboxes", `{"sandboxId":"adas-box"}`)
	ended := make(chan string, 2)
	go func() {
		ended <- ada.ask(t, "POST", "/v1/sandboxes/adas-box/exec", `{"command":"touch started; sleep 600","timeout":600}`, "Accept", "text/event-stream").body
	}()
	go func() {
		ended <- ada.call(t, "exec", map[string]any{"sandboxId": "adas-box", "command": "touch started-too; sleep 600", "timeout": 600}).body
	}()
	for _, file := range []string{"started", "started-too"} {
		for end := time.Now().Add(20 * time.Second); ada.ask(t, "GET", "/v1/sandboxes/adas-box/files/stat?path="+file, "").status != 200; {
			if time.Now().After(end) {
				t.Fatal("the commands do not start")
			}
		}
	}
	began := time.Now()
	_, err := h.tokens.RevokeToken(t.Context(), "ada")
	must(t, err)
	for range 2 {
		select {
		case body := <-ended:
			t.Logf("after %v: %s", time.Since(began), body)
		case <-time.After(10 * time.Second):
			t.Fatal("a stream is still open")
		}
	}
}

// TestTiming compares how long "not found" answers take.
func TestTiming(t *testing.T) {
	h := open(t)
	ada, eve := h.adaAndEve(t)
	ada.want(t, "POST", "/v1/sandboxes", `{"sandboxId":"adas-box"}`)
	times := map[string][]time.Duration{}
	for range 500 {
		for _, id := range []string{"adas-box", "nobodys-x"} {
			began := time.Now()
			eve.ask(t, "GET", "/v1/sandboxes/"+id, "")
			times[id] = append(times[id], time.Since(began))
		}
	}
	median := func(id string) time.Duration { slices.Sort(times[id]); return times[id][len(times[id])/2] }
	hers, none := median("adas-box"), median("nobodys-x")
	t.Logf("ada's %v, nobody's %v", hers, none)
	if ratio := float64(hers) / float64(none); ratio < 0.7 || ratio > 1.4 {
		t.Errorf("ada's takes %v, nobody's %v", hers, none)
	}
}

// leftExec starts a resumable command, and leaves its stream.
func (who *tenant) leftExec(t *testing.T, sandbox string) (id string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	body := strings.NewReader(`{"command":"sleep 600","timeout":600,"resumable":true}`)
	req, err := http.NewRequestWithContext(ctx, "POST", who.URL+"/v1/sandboxes/"+sandbox+"/exec", body)
	must(t, err)
	req.Header = http.Header{"Authorization": {"Bearer " + who.Secret}, "Accept": {"text/event-stream"}}
	resp, err := who.Client().Do(req)
	must(t, err)
	defer resp.Body.Close()
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		if _, data, ok := strings.Cut(lines.Text(), `{"execId":"`); ok {
			return strings.TrimSuffix(data, `"}`)
		}
	}
	t.Fatal("the stream ended without an id")
	return ""
}
