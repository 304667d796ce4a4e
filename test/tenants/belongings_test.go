package tenants

import (
	"archive/tar"
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"hutch"
	"hutch/internal/engine"
	"hutch/internal/hutchtest"
	"hutch/internal/secret"
	"hutch/internal/volume"
)

func TestMain(m *testing.M) { hutchtest.Main(m) }

// TestSecrets: eve cannot see, change, use or guess ada's secrets, also in a sandbox that ada shares with her.
func TestSecrets(t *testing.T) {
	t.Parallel()
	h := open(t)
	ada, eve := h.adaAndEve(t)
	const value = "sk-of-ada-and-of-nobody-else"
	ada.want(t, "PUT", "/v1/secrets/ADAS_KEY", `{"value":"`+value+`"}`)
	ada.want(t, "POST", "/v1/sandboxes", `{"sandboxId":"adas-box"}`)
	ada.want(t, "PUT", "/v1/sandboxes/adas-box/grants/eve", `{"access":"write"}`)
	eve.want(t, "POST", "/v1/sandboxes", `{"sandboxId":"eves-box"}`)

	use := func(box, name string) string {
		a := eve.ask(t, "POST", "/v1/sandboxes/"+box+"/exec", `{"command":"env","secrets":["`+name+`"]}`)
		if a.status < 400 || strings.Contains(a.body, value) {
			t.Errorf("eve uses %s in %s: %d %s", name, box, a.status, a.body)
		}
		return fmt.Sprint(a.status, strings.ReplaceAll(a.body, name, "NAME"))
	}
	if hers, none := use("eves-box", "ADAS_KEY"), use("eves-box", "NOBODYS"); hers != none {
		t.Errorf("ada's: %s\nand nobody's: %s", hers, none)
	}
	use("adas-box", "ADAS_KEY")
	if a := eve.call(t, "exec", map[string]any{"sandboxId": "adas-box", "command": "env", "secrets": []string{"ADAS_KEY"}}); !strings.Contains(a.body, `"isError":true`) || strings.Contains(a.body, value) {
		t.Errorf("eve uses it over MCP: %s", a.body)
	}
	// If a value were redacted in eve's output, she would know that she guessed it.
	if res := eve.want(t, "POST", "/v1/sandboxes/eves-box/exec", `{"command":"echo `+value+`"}`); res["stdout"] != value+"\n" {
		t.Errorf("eve's guess came back as %q", res["stdout"])
	}
	if a := eve.ask(t, "GET", "/v1/secrets", ""); strings.Contains(a.body, "ADAS_KEY") {
		t.Errorf("eve lists %s", a.body)
	}
	if hers, none := eve.ask(t, "DELETE", "/v1/secrets/ADAS_KEY", ""), eve.ask(t, "DELETE", "/v1/secrets/NOBODYS", ""); hers.status != none.status {
		t.Errorf("eve deletes ada's: %d, and nobody's: %d", hers.status, none.status)
	}
	eve.want(t, "PUT", "/v1/secrets/ADAS_KEY", `{"value":"eves-own-value-of-that-name"}`)
	res := ada.want(t, "POST", "/v1/sandboxes/adas-box/exec", `{"command":"printf %s \"$ADAS_KEY\" | sha256sum; printf %s `+value+` >f; sha256sum <f","secrets":["ADAS_KEY"]}`)
	if sums := strings.Fields(res["stdout"].(string)); len(sums) != 4 || sums[0] != sums[2] {
		t.Errorf("ada's secret is not what it was: %v", res)
	}
}

// TestBackups: knowing the id of a backup gives no access.
func TestBackups(t *testing.T) {
	t.Parallel()
	h := open(t)
	ada, eve := h.adaAndEve(t)
	ada.want(t, "POST", "/v1/sandboxes", `{"sandboxId":"adas-box"}`)
	ada.want(t, "PUT", "/v1/sandboxes/adas-box/files/content?path=secret", "of ada")
	eve.want(t, "POST", "/v1/sandboxes", `{"sandboxId":"eves-box"}`)
	id := ada.want(t, "POST", "/v1/sandboxes/adas-box/backups", `{"dir":"."}`)["id"].(string)
	none := id[:len(id)-1] + string('a'+(id[len(id)-1]-'a'+1)%26)
	for route, body := range map[string]string{"DELETE /v1/backups/ID": "", "POST /v1/backups/ID/restore": `{"sandboxId":"eves-box"}`} {
		method, path, _ := strings.Cut(route, " ")
		at := func(id string) string {
			a := eve.ask(t, method, strings.Replace(path, "ID", id, 1), body)
			return fmt.Sprint(a.status, " ", strings.ReplaceAll(a.body, id, "ID"))
		}
		if hers, nobodys := at(id), at(none); hers != nobodys || !strings.HasPrefix(hers, "404") {
			t.Errorf("%s of ada's: %s\nand of nobody's: %s", route, hers, nobodys)
		}
	}
	if a := eve.ask(t, "GET", "/v1/backups", ""); strings.TrimSpace(a.body) != "[]" {
		t.Errorf("eve lists %s", a.body)
	}
	if a := ada.ask(t, "GET", "/v1/backups", ""); !strings.Contains(a.body, id) {
		t.Errorf("ada's is gone: %s", a.body)
	}
}

// TestVolumes: knowing the name of a volume gives no access, and eve can use the name herself.
func TestVolumes(t *testing.T) {
	t.Parallel()
	h := open(t)
	ada, eve := h.adaAndEve(t)
	ada.want(t, "POST", "/v1/volumes", `{"name":"adas-data"}`)
	ada.want(t, "PUT", "/v1/volumes/adas-data/archive", packed(t, "file", "of ada"))
	dir := filepath.Join(t.TempDir(), "v")
	use := `{"sandboxId":"box-of","volumes":[{"name":"NAME","path":"` + dir + `","readOnly":RO}]}`
	for route, body := range map[string]string{
		"GET /v1/volumes/NAME": "", "DELETE /v1/volumes/NAME": "", "DELETE /v1/volumes/NAME?force=true": "", "POST /v1/volumes/NAME/sync": "", "GET /v1/volumes/NAME/archive": "", "PUT /v1/volumes/NAME/archive": packed(t, "file", "of eve"),
		"POST /v1/sandboxes": strings.Replace(use, "RO", "false", 1), "POST /v1/sandboxes?": strings.Replace(use, "RO", "true", 1),
	} {
		method, path, _ := strings.Cut(route, " ")
		at := func(name string) string {
			a := eve.ask(t, method, strings.Replace(path, "NAME", name, 1), strings.Replace(body, "NAME", name, 1))
			return fmt.Sprint(a.status, " ", strings.ReplaceAll(a.body, name, "NAME"))
		}
		if hers, none := at("adas-data"), at("no-volume"); hers != none || !strings.HasPrefix(hers, "404") {
			t.Errorf("%s of ada's: %s\nand of nobody's: %s", route, hers, none)
		}
	}
	if a := eve.ask(t, "GET", "/v1/volumes", ""); strings.TrimSpace(a.body) != "[]" {
		t.Errorf("eve lists %s", a.body)
	}
	eve.want(t, "POST", "/v1/volumes", `{"name":"adas-data"}`)
	eve.want(t, "POST", "/v1/sandboxes", strings.NewReplacer("RO", "false", "NAME", "adas-data").Replace(use))
	eve.want(t, "POST", "/v1/sandboxes/box-of/exec", `{"command":"echo of eve > `+dir+`/file"}`)
	if a := ada.ask(t, "POST", "/v1/sandboxes/box-of/volumes", ""); a.status != http.StatusNotFound {
		t.Errorf("ada saves the volumes of eve's sandbox: %d %s", a.status, a.body)
	}
	if a := eve.ask(t, "POST", "/v1/sandboxes/box-of/volumes", ""); a.status != http.StatusOK {
		t.Errorf("eve saves her own: %d %s", a.status, a.body)
	}
	if a := ada.ask(t, "GET", "/v1/volumes/adas-data/archive?path=file", ""); !strings.Contains(a.body, "of ada") {
		t.Errorf("ada's file is now %q", a.body)
	}
	if v := ada.want(t, "GET", "/v1/volumes/adas-data", ""); fmt.Sprint(v["uses"]) != "[]" {
		t.Errorf("ada sees who uses eve's volume: %v", v)
	}
	ada.want(t, "POST", "/v1/sandboxes", `{"sandboxId":"adas-box","volumes":[{"name":"adas-data","path":"`+dir+`-ada"}]}`)
	if a := ada.ask(t, "DELETE", "/v1/volumes/adas-data", ""); a.status != http.StatusConflict || !strings.Contains(a.body, "adas-box") {
		t.Errorf("a volume in use is deleted: %d %s", a.status, a.body)
	}
}

// TestOwners: only an administrator sees and deletes the things of a revoked token.
func TestOwners(t *testing.T) {
	t.Parallel()
	h := open(t)
	ada, eve := h.adaAndEve(t)
	root := h.root()
	for _, who := range []*tenant{ada, eve} {
		who.want(t, "POST", "/v1/volumes", `{"name":"data"}`)
		who.want(t, "PUT", "/v1/volumes/data/archive", packed(t, "file", "text"))
		who.want(t, "PUT", "/v1/secrets/KEY", `{"value":"a secret of hers"}`)
		who.want(t, "POST", "/v1/sandboxes", `{"sandboxId":"box"}`)
		who.want(t, "POST", "/v1/sandboxes/box/backups", `{"dir":"`+t.TempDir()+`"}`)
	}
	for _, route := range []string{"GET /v1/owners", "DELETE /v1/owners/" + ada.ID, "DELETE /v1/owners/none"} {
		method, path, _ := strings.Cut(route, " ")
		if a := eve.ask(t, method, path, ""); a.status != http.StatusForbidden {
			t.Errorf("eve: %s: %d %s", route, a.status, a.body)
		}
	}
	has := func(who *tenant) string {
		var list []hutch.Owned
		must(t, json.Unmarshal([]byte(root.ask(t, "GET", "/v1/owners", "").body), &list))
		for _, o := range list {
			if o.Owner == who.ID {
				return fmt.Sprintf("%s %t %d %d %d %d", o.Name, o.Live, o.Sandboxes, o.Volumes, o.Backups, o.Secrets)
			}
		}
		return "nothing"
	}
	if got := has(ada); got != "ada true 1 1 1 1" {
		t.Errorf("ada has %s", got)
	}
	if a := root.ask(t, "DELETE", "/v1/owners/"+ada.ID, ""); a.status != http.StatusConflict || !strings.Contains(a.body, "revoke") {
		t.Errorf("an owner with a valid token is deleted: %d %s", a.status, a.body)
	}
	root.want(t, "DELETE", "/v1/tokens/"+ada.ID, "")
	if left := root.want(t, "DELETE", "/v1/owners/"+ada.ID, ""); fmt.Sprint(left["sandboxes"], left["volumes"], left["backups"], left["secrets"], left["size"]) != "0 0 0 0 0" {
		t.Errorf("left of ada's: %v", left)
	}
	root.want(t, "DELETE", "/v1/owners/"+ada.ID, "") // deleting again succeeds
	if a := eve.ask(t, "GET", "/v1/volumes/data/archive?path=file", ""); !strings.Contains(a.body, "text") {
		t.Errorf("eve's volume is gone: %d %s", a.status, a.body)
	}
	if got := has(eve); !strings.Contains(got, "1 1 1 1") {
		t.Errorf("eve has %s", got)
	}
	if a := root.ask(t, "DELETE", "/v1/owners/%20", ""); a.status != http.StatusBadRequest {
		t.Errorf("the server's own: %d %s", a.status, a.body)
	}
}

// packed returns a tar archive with one file.
func packed(t *testing.T, name, text string) string {
	t.Helper()
	var b strings.Builder
	w := tar.NewWriter(&b)
	must(t, w.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(text))}))
	_, err := io.WriteString(w, text)
	must(t, err)
	must(t, w.Close())
	return b.String()
}

// TestRecords: eve cannot read what ada did and used, and eve's attempts are recorded.
func TestRecords(t *testing.T) {
	t.Parallel()
	h := open(t)
	ada, eve := h.adaAndEve(t)
	ada.want(t, "POST", "/v1/sandboxes", `{"sandboxId":"adas-box"}`)
	for _, path := range []string{"/v1/audit", "/v1/audit?token=ada", "/v1/audit?token=" + eve.ID, "/v1/audit?sandbox=adas-box", "/v1/audit/", "/v1/audit/verification", "/v1/doctor", "/v1//audit", "/v1/pool"} {
		if a := eve.ask(t, "GET", path, ""); a.status < 300 || strings.Contains(a.body, "adas-box") || strings.Contains(a.body, ada.ID) {
			t.Errorf("%s: %d %s", path, a.status, a.body)
		}
	}
	for _, query := range []string{"", "?owner=" + ada.ID} {
		if a := eve.ask(t, "GET", "/v1/usage"+query, ""); strings.Contains(a.body, "adas-box") || strings.Contains(a.body, ada.ID) {
			t.Errorf("usage%s: %d %s", query, a.status, a.body)
		}
	}
	eve.ask(t, "DELETE", "/v1/tokens/ada", "")
	found := h.root().ask(t, "GET", "/v1/audit?token=eve", "")
	for _, want := range []string{`"RevokeToken"`, `"Audit"`, `"denied"`} {
		if !strings.Contains(found.body, want) {
			t.Errorf("the record of eve lacks %s: %d %s", want, found.status, found.body)
		}
	}
}

// TestMissingScope: a caller without a scope gets an error that names it, in the form that clients understand (RFC
// 6750).
func TestMissingScope(t *testing.T) {
	t.Parallel()
	h := open(t)
	eve := h.tenant(t, hutch.TokenRequest{Name: "eve", Scopes: []hutch.Scope{hutch.ScopeRead}})
	for route, scope := range map[string]string{"POST /v1/sandboxes": "exec", "GET /v1/tokens": "admin", "PUT /v1/sandboxes/x/files/content?path=f": "files"} {
		method, path, _ := strings.Cut(route, " ")
		a := eve.ask(t, method, path, `{}`)
		if want := `Bearer realm="hutch", error="insufficient_scope", scope="` + scope + `"`; a.status != http.StatusForbidden || a.header.Get("WWW-Authenticate") != want {
			t.Errorf("%s: %d %v %s", route, a.status, a.header, a.body)
		}
	}
}

// TestConversations: conversations of ada and eve with the same id are separate, and no link to a file opens another.
func TestConversations(t *testing.T) {
	t.Parallel()
	h := openWith(t, func(v *secret.Vault, _ *volume.Store) *engine.Engine {
		return hutchtest.Engine(t, "native", func(o *engine.Options) { o.Secret = v.Value })
	})
	ada, eve := h.adaAndEve(t)
	type file struct{ Name, URL string }
	chat := func(who *tenant, code string) (stdout string, files []file) {
		a := who.call(t, "sandbox.run_code", map[string]any{"conversationId": "chat", "language": "bash", "code": code})
		var msg struct {
			Result struct {
				StructuredContent struct {
					Stdout string
					Files  []file
				}
			}
		}
		_, data, _ := strings.Cut(a.body, "data: ")
		if err := json.Unmarshal([]byte(data), &msg); err != nil {
			t.Fatalf("%v: %s", err, a.body)
		}
		return msg.Result.StructuredContent.Stdout, msg.Result.StructuredContent.Files
	}
	events := eve.follow(t, "/mcp/events")
	_, adas := chat(ada, "echo of ada > secret.txt")
	stdout, eves := chat(eve, "ls -A; echo of eve > mine.txt")
	if len(adas) != 1 || len(eves) != 1 || stdout != "" {
		t.Fatalf("ada's %v, eve's %v, and eve sees %q", adas, eves, stdout)
	}
	if first := events(); strings.Contains(first, "ada") || !strings.Contains(first, "run.started") {
		t.Errorf("eve hears %q", first) // the first message has to be about her own run
	}
	if a := eve.ask(t, "GET", "/conversations", ""); a.status != http.StatusOK || strings.Count(a.body, `"chat"`) != 1 {
		t.Errorf("eve lists %d %s", a.status, a.body)
	}
	if a := eve.ask(t, "GET", "/conversations?all=true", ""); a.status != http.StatusForbidden {
		t.Errorf("eve lists those of all: %d %s", a.status, a.body)
	}
	folder := func(f file) string { return strings.Split(f.URL, "/")[2] }
	_, sig, _ := strings.Cut(eves[0].URL, "?")
	for _, path := range []string{
		strings.Split(adas[0].URL, "?")[0],
		"/files/" + folder(adas[0]) + "/secret.txt?" + sig,
		"/files/" + folder(eves[0]) + "/../" + folder(adas[0]) + "/secret.txt?" + sig,
		"/files/" + folder(eves[0]) + "/..%2f" + folder(adas[0]) + "%2fsecret.txt?" + sig,
		"/files/" + folder(eves[0]) + "%2f..%2f" + folder(adas[0]) + "/secret.txt?" + sig,
		"/files/" + folder(eves[0]) + "/%2e%2e/" + folder(adas[0]) + "/secret.txt?" + sig,
		"/files/" + folder(eves[0]) + "/mine.txt%00/../secret.txt?" + sig,
	} {
		if a := eve.ask(t, "GET", path, ""); a.status < 300 || strings.Contains(a.body, "of ada") {
			t.Errorf("%s: %d %s", path, a.status, a.body)
		}
	}
	if a := eve.ask(t, "GET", eves[0].URL, ""); a.body != "of eve\n" {
		t.Errorf("eve's own: %d %s", a.status, a.body)
	}
}

// follow begins to listen and returns a function that waits for the next event.
func (who *tenant) follow(t *testing.T, path string) func() string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	req, err := http.NewRequestWithContext(ctx, "GET", who.URL+path, nil)
	must(t, err)
	req.Header.Set("Authorization", "Bearer "+who.Secret)
	resp, err := who.Client().Do(req)
	must(t, err)
	t.Cleanup(func() { resp.Body.Close() })
	lines := bufio.NewScanner(resp.Body)
	lines.Scan() // the server sends the first event at once
	return func() (event string) {
		for lines.Scan() && (lines.Text() != "" || event == "") {
			event += lines.Text() + "\n"
		}
		return event
	}
}

// TestPathsAround requests ada's file by paths that no client would send. None of them gives eve the file.
func TestPathsAround(t *testing.T) {
	t.Parallel()
	h := open(t)
	ada, eve := h.adaAndEve(t)
	ada.want(t, "POST", "/v1/sandboxes", `{"sandboxId":"adas-box"}`)
	ada.want(t, "PUT", "/v1/sandboxes/adas-box/files/content?path=secret", "of ada")
	eve.want(t, "POST", "/v1/sandboxes", `{"sandboxId":"eves-box"}`)
	for _, path := range []string{
		"/v1/sandboxes/eves-box/../adas-box/files/content?path=secret",
		"/v1/sandboxes/eves-box/..%2fadas-box/files/content?path=secret",
		"/v1/sandboxes/eves-box%2f..%2fadas-box/files/content?path=secret",
		"/v1/sandboxes/eves-box/%2e%2e/adas-box/files/content?path=secret",
		"/v1/sandboxes/eves-box%00adas-box/files/content?path=secret",
		"/v1/sandboxes/eves-box;adas-box/files/content?path=secret",
		"/v1/sandboxes/eves-box/files/content?path=secret&id=adas-box",
		"/v1/sandboxes/eves-box/files/content?path=../adas-box/secret",
		"/v1/sandboxes/eves-box/files/archive?path=..%2f..%2fadas-box&format=tar",
		"/v1/sandboxes/adas-box/files/archive?path=.&format=tar&createSandbox=true",
		"/v1/sandboxes/" + ada.ID + "/adas-box/files/content?path=secret",
		"http://other.example/v1/sandboxes/adas-box/files/content?path=secret",
	} {
		if a := raw(t, h, "GET "+path+" HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer "+eve.Secret); strings.Contains(a, "of ada") {
			t.Errorf("%s: %s", path, a)
		}
	}
}

// raw writes the head of a request unchanged, and returns all that comes back.
func raw(t *testing.T, h *testServer, head string) string {
	t.Helper()
	conn, err := net.Dial("tcp", h.Listener.Addr().String())
	must(t, err)
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(20 * time.Second))
	fmt.Fprintf(conn, "%s\r\nConnection: close\r\n\r\n", head)
	var b strings.Builder
	bufio.NewReader(conn).WriteTo(&b)
	return b.String()
}

// TestTwice sends headers twice, once as ada and once as eve: nothing is done for ada, and requests that two servers
// could parse differently are refused.
func TestTwice(t *testing.T) {
	t.Parallel()
	h := open(t)
	ada, eve := h.adaAndEve(t)
	const call = `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"exec","arguments":{"command":"echo done"},"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}`
	send := func(token, headers string) string {
		return raw(t, h, fmt.Sprintf("POST /mcp HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\nAccept: application/json, text/event-stream\r\n%sContent-Length: %d\r\nConnection: close\r\n\r\n%s",
			token, headers, len(call), call))
	}
	const version, method, name = "MCP-Protocol-Version: 2026-07-28\r\n", "Mcp-Method: tools/call\r\n", "Mcp-Name: exec\r\n"
	if a := send(ada.Secret, version+method+name); !strings.Contains(a, "done") {
		t.Fatalf("once: %s", a)
	}
	for what, headers := range map[string]string{
		"another name":     version + method + "Mcp-Name: getSandbox\r\n" + name,
		"another method":   version + "Mcp-Method: tools/list\r\n" + method + name,
		"another token":    version + method + name + "Authorization: Bearer " + ada.Secret + "\r\n",
		"another length":   version + method + name + "Content-Length: 1\r\n",
		"chunks":           version + method + name + "Transfer-Encoding: chunked\r\n",
		"another host":     version + method + name + "Host: evil.example\r\n",
		"name in the body": version + method + "Mcp-Name: Exec\r\n",
	} {
		if a := send(eve.Secret, headers); strings.Contains(a, "done") {
			t.Errorf("%s: %s", what, a)
		}
	}
}
