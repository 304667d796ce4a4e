package bridge_test

import (
	"archive/tar"
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"hutch"
	"hutch/internal/compat/bridge"
	"hutch/internal/fakeservice"
	"hutch/internal/hutchtest/fakeengine"
)

type bench struct {
	*httptest.Server
	t *testing.T
}

func serve(t *testing.T, svc hutch.Service, opt bridge.Options) *bench {
	t.Helper()
	h := bridge.NewHandler(svc, opt)
	srv := httptest.NewServer(h)
	t.Cleanup(func() {
		h.Close()
		srv.Close()
	})
	return &bench{srv, t}
}

type answer struct {
	status int
	body   string
	http.Header
}

func (b *bench) ask(method, path, body string, header ...string) answer {
	b.t.Helper()
	req, err := http.NewRequestWithContext(b.t.Context(), method, b.URL+path, strings.NewReader(body))
	if err != nil {
		b.t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		b.t.Fatal(err)
	}
	defer resp.Body.Close()
	got, _ := io.ReadAll(resp.Body)
	return answer{resp.StatusCode, string(got), resp.Header}
}

// want sends a request, and fails the test unless the answer has status 200.
func (b *bench) want(method, path, body string, header ...string) answer {
	b.t.Helper()
	a := b.ask(method, path, body, header...)
	if a.status != http.StatusOK {
		b.t.Fatalf("%s %s: %d %s", method, path, a.status, a.body)
	}
	return a
}

// refused sends a request, and fails the test unless the answer is an error with the status and the code.
func (b *bench) refused(status int, code, method, path, body string, header ...string) string {
	b.t.Helper()
	a := b.ask(method, path, body, header...)
	var f bridge.Failure
	if err := json.Unmarshal([]byte(a.body), &f); err != nil || a.status != status || f.Code != code || f.Error == "" {
		b.t.Errorf("%s %s: %d %.300s; want %d %s", method, path, a.status, a.body, status, code)
	}
	return f.Error
}

// ran is how a command of the bridge ended.
type ran struct {
	stdout, stderr []byte
	exit           int
	failure        string
}

func events(t *testing.T, text string) (res ran) {
	t.Helper()
	res.exit = -1
	lines := bufio.NewScanner(strings.NewReader(text))
	lines.Buffer(nil, 8<<20)
	var name string
	for lines.Scan() {
		line := lines.Text()
		if n, ok := strings.CutPrefix(line, "event: "); ok {
			name = n
		}
		data, ok := strings.CutPrefix(line, "data: ")
		if !ok {
			continue
		}
		b, _ := base64.StdEncoding.DecodeString(data)
		switch name {
		case "stdout":
			res.stdout = append(res.stdout, b...)
		case "stderr":
			res.stderr = append(res.stderr, b...)
		case "exit":
			if _, err := fmt.Sscanf(data, `{"exit_code":%d}`, &res.exit); err != nil {
				t.Errorf("the exit is %q", data)
			}
		case "error":
			res.failure = data
		}
	}
	return res
}

func (b *bench) exec(id string, body any, header ...string) ran {
	b.t.Helper()
	raw, err := json.Marshal(body)
	if err != nil {
		b.t.Fatal(err)
	}
	a := b.want("POST", "/v1/sandbox/"+id+"/exec", string(raw), header...)
	if kind := a.Get("Content-Type"); kind != "text/event-stream" {
		b.t.Errorf("the output is %q", kind)
	}
	return events(b.t, a.body)
}

func argv(words ...string) map[string]any { return map[string]any{"argv": words} }

// TestLife uses a sandbox from its creation to its end.
func TestLife(t *testing.T) {
	t.Parallel()
	b := serve(t, fakeengine.Start(t), bridge.Options{})
	var made struct{ ID string }
	if err := json.Unmarshal([]byte(b.want("POST", "/v1/sandbox", "").body), &made); err != nil || len(made.ID) != 26 {
		t.Fatalf("the id is %q: %v", made.ID, err)
	}
	at := "/v1/sandbox/" + made.ID
	if a := b.want("GET", at+"/running", ""); a.body != `{"running":true}` {
		t.Errorf("running: %s", a.body)
	}
	if res := b.exec(made.ID, argv("echo", "a  b", "$HOME", "it's\n")); res.exit != 0 || string(res.stdout) != "a  b $HOME it's\n\n" {
		t.Errorf("echo: %+v", res)
	}
	for range 2 {
		if a := b.ask("DELETE", at, ""); a.status != http.StatusNoContent {
			t.Errorf("delete: %d %s", a.status, a.body)
		}
	}
	if a := b.want("GET", at+"/running", ""); a.body != `{"running":false}` {
		t.Errorf("running after the end: %s", a.body)
	}
	if a := b.want("GET", "/health", ""); a.body != `{"ok":true}` {
		t.Errorf("health: %s", a.body)
	}
}

// TestExec: output is byte-exact, and a command that fails or takes too long ends as the client expects.
func TestExec(t *testing.T) {
	t.Parallel()
	b := serve(t, fakeengine.Start(t), bridge.Options{})
	id := "unknownids" + "arecreated"
	if res := b.exec(id, argv("printf", `\377\0\376no newline`)); res.exit != 0 || string(res.stdout) != "\xff\x00\xfeno newline" {
		t.Errorf("bytes: %+v", res)
	}
	if res := b.exec(id, argv("sh", "-c", "echo out; echo err >&2; exit 3")); res.exit != 3 || string(res.stdout) != "out\n" || string(res.stderr) != "err\n" {
		t.Errorf("exit code: %+v", res)
	}
	slow := map[string]any{"argv": []string{"sh", "-c", "printf half >&2; exec sleep 60"}, "timeout_ms": 300}
	if res := b.exec(id, slow); res.exit != 124 || string(res.stderr) != "half\nCommand timed out after 300ms\n" {
		t.Errorf("time limit: %+v %q", res, res.stderr)
	}
	at := "/v1/sandbox/" + id + "/exec"
	if text := b.refused(400, "invalid_request", "POST", at, `{"argv":[]}`); text != "argv must be a non-empty array" {
		t.Errorf("no argv: %s", text)
	}
	b.refused(400, "invalid_request", "POST", at, `{"argv":"ls"}`)
	b.refused(400, "invalid_request", "POST", at, `{`)
	b.refused(403, "invalid_request", "POST", at, `{"argv":["ls"],"cwd":"/workspace/../etc"}`)
	b.refused(501, "exec_transport_error", "POST", at, `{"argv":["ls"],"env":{"A":"b"}}`)
	b.refused(400, "invalid_request", "POST", at, `{"argv":["ls"]}`, "Session-Id", "../x")
	b.refused(400, "invalid_request", "POST", "/v1/sandbox/Upper/exec", `{"argv":["ls"]}`)
}

// TestSession: cd and export stay in a session, and in no other.
func TestSession(t *testing.T) {
	t.Parallel()
	b := serve(t, fakeengine.Start(t), bridge.Options{})
	const id = "withsessions"
	if a := b.want("POST", "/v1/sandbox/"+id+"/session", `{"id":"My.Session","env":{"GIVEN":"yes"}}`); a.body != `{"id":"My.Session"}` {
		t.Errorf("create: %s", a.body)
	}
	b.refused(502, "session_error", "POST", "/v1/sandbox/"+id+"/session", `{"id":"My.Session"}`)
	in := []string{"Session-Id", "My.Session"}
	b.exec(id, argv("export", "A=stays"), in...)
	if res := b.exec(id, argv("eval", "printf %s-%s $A $GIVEN"), in...); string(res.stdout) != "stays-yes" {
		t.Errorf("in the session: %+v", res)
	}
	if res := b.exec(id, argv("sh", "-c", "printf %s $A"), "Session-Id", "other"); len(res.stdout) != 0 {
		t.Errorf("in another: %s", res.stdout)
	}
	if res := b.exec(id, map[string]any{"argv": []string{"sleep", "60"}, "timeout_ms": 200}, in...); res.exit != 124 {
		t.Errorf("time limit: %+v", res)
	}
	a := b.want("DELETE", "/v1/sandbox/"+id+"/session/My.Session", "")
	if !strings.Contains(a.body, `"success":true,"sessionId":"My.Session","timestamp":"`) {
		t.Errorf("delete: %s", a.body)
	}
	if a := b.want("POST", "/v1/sandbox/"+id+"/session", ""); !strings.Contains(a.body, `{"id":"session-`) {
		t.Errorf("without a body: %s", a.body)
	}
}

// TestFiles: files can have any bytes, and only files of the workspace can be reached.
func TestFiles(t *testing.T) {
	t.Parallel()
	b := serve(t, fakeengine.Start(t), bridge.Options{})
	at := "/v1/sandbox/files/file"
	content := "data: {\x00\xff" + strings.Repeat("x", 1<<20)
	if a := b.want("PUT", at+"/workspace/new/dir/a%20b", content); a.body != `{"ok":true}` {
		t.Errorf("write: %s", a.body)
	}
	a := b.want("GET", at+"/workspace/new/dir/a%20b", "")
	if a.body != content || a.Get("Content-Type") != "application/octet-stream" {
		t.Errorf("read %d bytes as %s", len(a.body), a.Get("Content-Type"))
	}
	if text := b.refused(404, "workspace_read_not_found", "GET", at+"/workspace/none", ""); text != "File not found: /workspace/none" {
		t.Error(text)
	}
	b.refused(403, "invalid_request", "GET", at+"/etc/passwd", "")
	b.refused(403, "invalid_request", "GET", at+"/workspacex/a", "")
	b.refused(403, "invalid_request", "PUT", at+"/tmp/a", "x")
	b.refused(400, "invalid_request", "GET", at+"/", "")
	b.refused(502, "workspace_archive_write_error", "PUT", at+"/workspace/new", "a folder is in the way")
	if a := b.ask("GET", at+"/workspace/..%2f..%2fetc/passwd", ""); a.status == http.StatusOK {
		t.Errorf("dots lead out: %s", a.body)
	}
}

// TestArchives: hydrate accepts the archive of persist, without the excluded files.
func TestArchives(t *testing.T) {
	t.Parallel()
	b := serve(t, fakeengine.Start(t), bridge.Options{})
	for _, name := range []string{"a", "d/b", "d/skip/c", "e.log"} {
		b.want("PUT", "/v1/sandbox/from/file/workspace/"+name, "of "+name)
	}
	packed := b.want("POST", "/v1/sandbox/from/persist?excludes=d/skip,./*.log", "")
	if a := b.want("POST", "/v1/sandbox/to/hydrate", packed.body); a.body != `{"ok":true}` {
		t.Errorf("hydrate: %s", a.body)
	}
	for name, status := range map[string]int{"a": 200, "d/b": 200, "d/skip/c": 404, "e.log": 404} {
		if a := b.ask("GET", "/v1/sandbox/to/file/workspace/"+name, ""); a.status != status || status == 200 && a.body != "of "+name {
			t.Errorf("%s: %d %s", name, a.status, a.body)
		}
	}
	if whole := b.want("POST", "/v1/sandbox/from/persist", ""); !strings.Contains(whole.body, "of e.log") {
		t.Error("the whole archive lacks a file")
	}
	b.refused(400, "invalid_request", "POST", "/v1/sandbox/from/persist?excludes=../x", "")
	if text := b.refused(400, "invalid_request", "POST", "/v1/sandbox/to/hydrate", ""); text != "Empty tar payload" {
		t.Error(text)
	}
}

// TestHostileArchives: no entry lands outside of the workspace, and the error is the one that clients know.
func TestHostileArchives(t *testing.T) {
	t.Parallel()
	b := serve(t, fakeengine.Start(t), bridge.Options{})
	outside := t.TempDir()
	for name, entries := range map[string][]tar.Header{
		"dots":           {{Name: "../out", Typeflag: tar.TypeReg, Mode: 0o600}},
		"absolute":       {{Name: outside + "/out", Typeflag: tar.TypeReg, Mode: 0o600}},
		"through a link": {{Name: "l", Typeflag: tar.TypeSymlink, Linkname: outside}, {Name: "l/out", Typeflag: tar.TypeReg, Mode: 0o600}},
		"a hard link":    {{Name: "l", Typeflag: tar.TypeLink, Linkname: "/etc/passwd"}},
	} {
		var buf bytes.Buffer
		w := tar.NewWriter(&buf)
		for _, e := range entries {
			if err := w.WriteHeader(&e); err != nil {
				t.Fatal(err)
			}
		}
		w.Close()
		a := b.ask("POST", "/v1/sandbox/hostile/hydrate", buf.String())
		if a.status != http.StatusBadGateway || !strings.Contains(a.body, `"code":"workspace_archive_write_error"`) {
			t.Errorf("%s: %d %s", name, a.status, a.body)
		}
	}
	b.refused(502, "workspace_archive_write_error", "POST", "/v1/sandbox/hostile/hydrate", strings.Repeat("not a tar archive", 100))
	if left, _ := listDir(outside); len(left) > 0 {
		t.Errorf("outside are %v", left)
	}
}

// TestTerminal uses a shell over a WebSocket.
func TestTerminal(t *testing.T) {
	t.Parallel()
	b := serve(t, fakeengine.Start(t), bridge.Options{})
	if text := b.refused(400, "invalid_request", "GET", "/v1/sandbox/shells/pty", ""); text != "WebSocket upgrade required" {
		t.Error(text)
	}
	b.refused(400, "invalid_request", "GET", "/v1/sandbox/shells/pty?cols=abc", "", "Upgrade", "websocket", "Connection", "Upgrade")
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	conn := b.dial(ctx, "/v1/sandbox/shells/pty?cols=100&rows=30")
	write(t, ctx, conn, websocket.MessageBinary, "stty size; exit 7\n")
	text, last := shown(t, ctx, conn)
	if !strings.Contains(text, "30 100") || last != `{"type":"exit","code":7}` {
		t.Errorf("shown %q, at the end %s", text, last)
	}
}

// TestSharedTerminal: clients of one session see one shell, and the shell stays when they leave.
func TestSharedTerminal(t *testing.T) {
	t.Parallel()
	b := serve(t, fakeengine.Start(t), bridge.Options{})
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	one := b.dial(ctx, "/v1/sandbox/shells/pty?session=s1")
	write(t, ctx, one, websocket.MessageBinary, "mark=of-one; echo set-$mark\n")
	until(t, ctx, one, "set-of-one")
	one.CloseNow()
	two := b.dial(ctx, "/v1/sandbox/shells/pty?session=s1")
	write(t, ctx, two, websocket.MessageText, `{"type":"resize","cols":0,"rows":0}`)
	write(t, ctx, two, websocket.MessageText, `{"type":"resize","cols":90,"rows":20}`)
	write(t, ctx, two, websocket.MessageText, `no json`)
	write(t, ctx, two, websocket.MessageBinary, "until [ \"$(stty size)\" = '20 90' ]; do sleep .05; done; echo still-$mark-; exit\n")
	if text, last := shown(t, ctx, two); !strings.Contains(text, "still-of-one-") || last != `{"type":"exit","code":0}` {
		t.Errorf("shown %q, at the end %s", text, last)
	}
}

// TestTerminalEndsWithItsClient: a shell without a session does not outlive its client.
func TestTerminalEndsWithItsClient(t *testing.T) {
	t.Parallel()
	svc := fakeengine.Start(t)
	b := serve(t, svc, bridge.Options{})
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	b.dial(ctx, "/v1/sandbox/shells/pty").CloseNow()
	for {
		list, err := svc.Processes(ctx, "shells")
		if err != nil {
			t.Fatal(err)
		}
		if len(list) == 1 && !list[0].Status.Live() {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// TestTunnels: a port gets a URL, and its tunnel can be deleted twice.
func TestTunnels(t *testing.T) {
	t.Parallel()
	b := serve(t, &fakeservice.Service{}, bridge.Options{})
	a := b.want("POST", "/v1/sandbox/served/tunnel/8080", `{"name":"app"}`)
	var got struct {
		ID, URL, Hostname, Name, CreatedAt string
		Port                               int
	}
	if err := json.Unmarshal([]byte(a.body), &got); err != nil || got.Port != 8080 || got.Name != "app" || got.ID == "" || !strings.Contains(got.URL, got.Hostname) || got.Hostname == "" {
		t.Errorf("%s: %v", a.body, err)
	}
	for range 2 {
		if a := b.ask("DELETE", "/v1/sandbox/served/tunnel/8080", ""); a.status != http.StatusNoContent {
			t.Errorf("delete: %d %s", a.status, a.body)
		}
	}
	for _, port := range []string{"80", "0", "65536", "x"} {
		b.refused(400, "invalid_request", "POST", "/v1/sandbox/served/tunnel/"+port, "")
	}
}

// TestUnsupported: what this server does not have is named, with status 501.
func TestUnsupported(t *testing.T) {
	t.Parallel()
	b := serve(t, &fakeservice.Service{}, bridge.Options{})
	for route, body := range map[string]string{
		"POST /v1/pool/shutdown-prewarmed": "", "GET /v1/pool/stats": "", "POST /v1/pool/prime": "",
		"POST /v1/sandbox/x/mount": `{"binding":"data","mountPath":"/workspace/d","options":{}}`,
	} {
		method, path, _ := strings.Cut(route, " ")
		if a := b.ask(method, path, body); a.status != http.StatusNotImplemented {
			t.Errorf("%s: %d %s", route, a.status, a.body)
		}
	}
	for option, value := range map[string]string{
		"endpoint": `"https://s3.amazonaws.com"`, "prefix": `"sub"`, "credentials": `{"accessKeyId":"a","secretAccessKey":"b"}`, "credentialProxy": "true", "s3fsOptions": `["x"]`,
	} {
		body := `{"bucket":"data","mountPath":"/workspace/d","options":{"endpoint":"hutch:volumes","` + option + `":` + value + `}}`
		if text := b.refused(501, "mount_error", "POST", "/v1/sandbox/x/mount", body); !strings.Contains(text, option) {
			t.Errorf("%s is refused with %s", option, text)
		}
	}
}

// TestDocuments: the description names each route that is served.
func TestDocuments(t *testing.T) {
	t.Parallel()
	h := bridge.NewHandler(&fakeservice.Service{}, bridge.Options{})
	defer h.Close()
	b := serve(t, &fakeservice.Service{}, bridge.Options{})
	var doc struct {
		Paths map[string]map[string]any
	}
	if err := json.Unmarshal([]byte(b.want("GET", "/v1/openapi.json", "").body), &doc); err != nil {
		t.Fatal(err)
	}
	described := 0
	for _, operations := range doc.Paths {
		described += len(operations)
	}
	for _, route := range h.Routes() {
		method, path, _ := strings.Cut(route, " ")
		if doc.Paths[strings.ReplaceAll(path, "...", "")][strings.ToLower(method)] == nil {
			t.Errorf("%s is not described", route)
		}
	}
	if described != len(h.Routes()) {
		t.Errorf("%d operations are described, and %d served", described, len(h.Routes()))
	}
	for _, path := range []string{"/bridge/v1/openapi.json", "/bridge/v1/openapi", "/bridge/health"} {
		if !bridge.Open(httptest.NewRequestWithContext(t.Context(), "GET", path+"?token=x", nil)) {
			t.Errorf("%s needs a token", path)
		}
	}
	for _, path := range []string{"/v1/openapi.html", "/v1/openapi?token=x"} {
		if a := b.want("GET", path, ""); !strings.Contains(a.body, "createSandbox") || strings.Contains(a.body, "<script") {
			t.Errorf("%s: %.100s", path, a.body)
		}
	}
}
