// Package conversation_test replaces an existing deployment by ours: like the clients of that deployment, it knows
// the server of conversations only by its environment and over HTTP.
package conversation_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"hutch/internal/hutchtest"
)

func TestMain(m *testing.M) { hutchtest.Main(m) }

// deployment is a server that is started as existing deployments are: without arguments, configured by its
// environment.
type deployment struct {
	program, url string
	env          []string
	cmd          *exec.Cmd
	ended        chan error
}

const token = "the-token-of-this-deployment"

func deploy(t *testing.T) *deployment {
	t.Helper()
	dir := hutchtest.Dir(t)
	d := &deployment{program: filepath.Join(dir, "hutch-conversation"), url: "http://" + freeAddress(t)}
	if err := os.Symlink(hutchtest.Program(t, "hutch"), d.program); err != nil {
		t.Fatal(err)
	}
	old := filepath.Join(dir, "root", "old-chat", "files") // a file from before the move
	if err := os.MkdirAll(old, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(old, "notes.txt"), []byte("from before\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	d.env = []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + dir, "HUTCH_DATA=" + filepath.Join(dir, "data"),
		"MCP_API_TOKEN=" + token, "FILE_SECRET=the-secret-of-this-deployment", "SANDBOX_ROOT=" + filepath.Join(dir, "root"),
		"PUBLIC_BASE_URL=" + d.url, "MCP_HTTP_ADDR=" + strings.TrimPrefix(d.url, "http://"),
		"DOCKER_HOST=unix:///var/run/docker.sock", "TUNNEL_TOKEN=a-tunnel", "ANTHROPIC_API_KEY=not-for-chats",
	}
	t.Cleanup(func() {
		if d.cmd != nil {
			d.end(t, syscall.SIGTERM)
		}
	})
	return d
}

func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// start starts the server and waits until it answers.
func (d *deployment) start(t *testing.T) {
	t.Helper()
	d.cmd, d.ended = exec.Command(d.program), make(chan error, 1)
	d.cmd.Env, d.cmd.Stderr, d.cmd.Stdout = d.env, t.Output(), t.Output()
	if err := d.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { d.ended <- d.cmd.Wait() }()
	for deadline := time.Now().Add(30 * time.Second); ; {
		resp, err := http.Get(d.url + "/health")
		if err == nil {
			resp.Body.Close()
			return
		}
		select {
		case err := <-d.ended:
			d.cmd = nil
			t.Fatalf("the server ended: %v", err)
		case <-time.After(10 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			t.Fatal("the server does not answer")
		}
	}
}

func (d *deployment) end(t *testing.T, sig syscall.Signal) {
	t.Helper()
	d.cmd.Process.Signal(sig)
	if err := <-d.ended; err != nil && sig != syscall.SIGKILL {
		t.Errorf("the server ended with %v", err)
	}
	d.cmd = nil
}

// request sends a request, and reads the answer.
func (d *deployment) request(t *testing.T, method, path, body string, header ...string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, d.url+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
		if header[i] == "Host" {
			req.Host = header[i+1]
		}
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	if id := resp.Header.Get("Mcp-Session-Id"); id != "" {
		return resp.StatusCode, id + "\n" + string(b)
	}
	return resp.StatusCode, string(b)
}

// session begins an MCP session and returns a function that makes calls in it.
func (d *deployment) session(t *testing.T) func(method, params string) json.RawMessage {
	t.Helper()
	send := func(body string, header ...string) string {
		header = append(header, "Authorization", "Bearer "+token, "Content-Type", "application/json", "Accept", "application/json, text/event-stream")
		status, answer := d.request(t, http.MethodPost, "/mcp", body, header...)
		if status >= 300 {
			t.Fatalf("%s: %d %s", body, status, answer)
		}
		return answer
	}
	first := send(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-03-26","capabilities":{},"clientInfo":{"name":"chat","version":"1"}}}`)
	id, _, _ := strings.Cut(first, "\n")
	send(`{"jsonrpc":"2.0","method":"notifications/initialized"}`, "Mcp-Session-Id", id)
	return func(method, params string) json.RawMessage {
		answer := send(`{"jsonrpc":"2.0","id":2,"method":"`+method+`","params":`+params+`}`, "Mcp-Session-Id", id)
		for line := range strings.Lines(answer) {
			var message struct{ Result json.RawMessage }
			if json.Unmarshal([]byte(strings.TrimPrefix(line, "data: ")), &message) == nil && message.Result != nil {
				return message.Result
			}
		}
		t.Fatalf("%s: no result in %s", method, answer)
		return nil
	}
}

type ran struct {
	ExitCode       int
	Stdout, Stderr string
	Files          []struct {
		Name, URL string
		Size      int64
	}
}

func (d *deployment) run(t *testing.T, conversation, language, code string) (out ran) {
	t.Helper()
	args, _ := json.Marshal(map[string]string{"conversationId": conversation, "language": language, "code": code})
	raw := d.session(t)("tools/call", `{"name":"sandbox.run_code","arguments":`+string(args)+`}`)
	var res struct{ StructuredContent *ran }
	if err := json.Unmarshal(raw, &res); err != nil || res.StructuredContent == nil {
		t.Fatalf("%s, %v", raw, err)
	}
	return *res.StructuredContent
}

// TestMoveOver starts the server in place of another server, and sends the requests that the clients of the other one
// send.
func TestMoveOver(t *testing.T) {
	t.Parallel()
	hutchtest.Driver(t, "gvisor", hutchtest.Dir(t)) // skips the test where the runtime does not work
	d := deploy(t)
	d.start(t)

	for _, c := range []struct {
		method, path, bearer string
		status               int
	}{
		{"GET", "/", "", 200},
		{"GET", "/mcp/events", "", 401},
		{"GET", "/mcp/events", "wrong", 401},
		{"POST", "/mcp", "", 401},
		{"POST", "/mcp", "wrong", 401},
		{"GET", "/files/old-chat/notes.txt", token, 403}, // files can be read only by their links
		{"GET", "/v1/sandboxes", token, 404},
	} {
		if status, body := d.request(t, c.method, c.path, "{}", "Authorization", "Bearer "+c.bearer, "Host", "code.example.com"); status != c.status {
			t.Errorf("%s %s with %q: %d, want %d: %s", c.method, c.path, c.bearer, status, c.status, body)
		}
	}

	var list struct{ Tools []struct{ Name string } }
	if err := json.Unmarshal(d.session(t)("tools/list", "{}"), &list); err != nil || len(list.Tools) != 2 || list.Tools[0].Name != "sandbox.list_runners" || list.Tools[1].Name != "sandbox.run_code" {
		t.Errorf("tools %+v, %v", list, err)
	}
	runners := string(d.session(t)("tools/call", `{"name":"sandbox.list_runners","arguments":{}}`))
	if !strings.Contains(runners, `"language":"python"`) || !strings.Contains(runners, `"language":"bash"`) {
		t.Errorf("runners %s", runners)
	}

	d.curl(t)
	events := d.listen(t)
	res := d.run(t, "old-chat", "python", "import os\nprint(open('/data/notes.txt').read(), os.getuid(), os.getcwd())\nopen('out.csv', 'w').write('a,b\\n')")
	if res.Stdout != "from before\n 1000 /data\n" || len(res.Files) != 1 || res.Files[0].Name != "out.csv" || res.Files[0].Size != 4 || !strings.HasPrefix(res.Files[0].URL, d.url+"/files/old-chat/out.csv?sig=") {
		t.Fatalf("result %+v", res)
	}
	for _, want := range []string{"run.started", "run.finished"} {
		if kind := events(); kind != want {
			t.Errorf("event %q, want %q", kind, want)
		}
	}
	link := strings.TrimPrefix(res.Files[0].URL, d.url)
	if status, body := d.request(t, "GET", link, ""); status != 200 || body != "a,b\n" {
		t.Errorf("download: %d %q", status, body)
	}
	if status, _ := d.request(t, "GET", strings.Replace(link, "out.csv", "notes.txt", 1), ""); status != 403 {
		t.Errorf("with the signature of another file: %d", status)
	}
	env := d.run(t, "env", "bash", "env; cat /proc/1/environ")
	for _, secret := range []string{token, "the-secret-of-this-deployment", "a-tunnel", "not-for-chats"} {
		if strings.Contains(env.Stdout+env.Stderr, secret) {
			t.Errorf("code finds %s", secret)
		}
	}

	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
		d.end(t, sig)
		d.start(t)
		if status, body := d.request(t, "GET", link, ""); status != 200 || body != "a,b\n" {
			t.Errorf("the link after %v: %d %q", sig, status, body)
		}
		if res := d.run(t, "old-chat", "bash", "cat out.csv notes.txt"); res.Stdout != "a,b\nfrom before\n" {
			t.Errorf("the files after %v: %+v", sig, res)
		}
	}
	d.example(t)
}

// listen returns a function that waits for the kind of the next event.
func (d *deployment) listen(t *testing.T) func() string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, d.url+"/mcp/events", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+token)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { resp.Body.Close() })
	if kind := resp.Header.Get("Content-Type"); resp.StatusCode != 200 || kind != "text/event-stream" {
		t.Fatalf("events: %s %s", resp.Status, kind)
	}
	lines := bufio.NewScanner(resp.Body)
	lines.Scan()
	return func() string {
		for lines.Scan() {
			if kind, ok := strings.CutPrefix(lines.Text(), "event: "); ok {
				return kind
			}
		}
		return fmt.Sprint("ended: ", lines.Err())
	}
}

// curl runs the documented curl lines of such deployments, word for word.
func (d *deployment) curl(t *testing.T) {
	t.Helper()
	for line, want := range map[string]string{
		`curl -sS -X POST "$PUBLIC_BASE_URL/mcp" -H "Authorization: Bearer $MCP_API_TOKEN" -H "Content-Type: application/json" -d '{"jsonrpc":"2.0","method":"tools/list","id":1}'`:                                                                                                                             `"name":"sandbox.run_code"`,
		`curl -sS -X POST "$PUBLIC_BASE_URL/mcp" -H "Authorization: Bearer $MCP_API_TOKEN" -H "Content-Type: application/json" -d '{"jsonrpc":"2.0","id":"1","method":"tools/call","params":{"name":"sandbox.run_code","arguments":{"conversationId":"test","language":"python","code":"print(\"Hello!\")"}}}'`: `"stdout":"Hello!\n"`,
		`curl -sS "$PUBLIC_BASE_URL/mcp" -H "Accept:" -H "Authorization: Bearer $MCP_API_TOKEN" -d '{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"sandbox.list_runners","arguments":{}}}'`:                                                                                                    `"language":"python"`,
		`curl -sS "$PUBLIC_BASE_URL/mcp" -H "Authorization: Bearer $MCP_API_TOKEN" -d '{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"sandbox.run_code","arguments":{"conversationId":"test"}}}'`:                                                                                              `"code":-32004`,
	} {
		cmd := exec.Command("bash", "-c", line)
		cmd.Env = append(os.Environ(), "PUBLIC_BASE_URL="+d.url, "MCP_API_TOKEN="+token)
		if out, err := cmd.CombinedOutput(); err != nil || !json.Valid(out) || !strings.Contains(string(out), want) {
			t.Errorf("%s\n%v: %s", line, err, out)
		}
	}
}

// example runs examples/conversation.
func (d *deployment) example(t *testing.T) {
	t.Helper()
	cmd := exec.Command("go", "run", "../../examples/conversation")
	cmd.Env = append(os.Environ(), "PUBLIC_BASE_URL="+d.url, "MCP_API_TOKEN="+token)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	const want = "collected\nvisits.csv:\n  day,visits\r\n  Mon,31\r\n  Tue,44\r\n  Wed,27\n3 days\nreport.txt:\n  best day: Tue with 44\n"
	if err != nil || string(out) != want {
		t.Errorf("the example: %v\n%s%s", err, out, stderr.Bytes())
	}
}

func TestRefusesToStartWithoutToken(t *testing.T) {
	t.Parallel()
	d := deploy(t)
	for i, kv := range d.env {
		if strings.HasPrefix(kv, "MCP_API_TOKEN=") {
			d.env[i] = "MCP_API_TOKEN="
		}
	}
	cmd := exec.Command(d.program)
	cmd.Env = d.env
	if out, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(out), "MCP_API_TOKEN is not set") {
		t.Errorf("%v %s", err, out)
	}
}
