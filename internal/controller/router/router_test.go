package router_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"mime/multipart"
	"net"
	"net/http"
	"net/http/httptest"
	"net/textproto"
	"strings"
	"testing"
	"time"

	"hutch"
	"hutch/internal/compat"
	"hutch/internal/controller/router"
	"hutch/internal/fakeservice"
	"hutch/internal/hutchtest"
)

func TestMain(m *testing.M) { hutchtest.Main(m) }

// directory has the object box in the namespace ns, whose token is "ns".
type directory struct{}

func (directory) Allow(_ context.Context, token, namespace, _ string) error {
	if token == "" {
		return hutch.Errorf(hutch.Denied, "no token").With("unauthenticated", true)
	}
	if token != namespace {
		return hutch.Errorf(hutch.Denied, "not in this namespace")
	}
	return nil
}

func (directory) Find(_ context.Context, namespace, name, uid string) (router.Target, error) {
	if namespace != "ns" || name != "box" || uid != "" && uid != "u1" {
		return router.Target{}, hutch.Errorf(hutch.NotFound, "no object")
	}
	return router.Target{Sandbox: "box-u1", Dir: "/workspace"}, nil
}

type bench struct {
	t   *testing.T
	url string
}

func serve(t *testing.T, svc hutch.Service) bench {
	t.Helper()
	if _, err := svc.Create(t.Context(), hutch.CreateRequest{ID: "box-u1"}); err != nil {
		t.Fatal(err)
	}
	h := router.New(router.Options{Service: svc, Directory: directory{}})
	srv := httptest.NewServer(h)
	t.Cleanup(func() {
		h.Close()
		srv.Close()
	})
	return bench{t, srv.URL}
}

// ask sends a request with the headers of a client; header replaces some of them.
func (b bench) ask(method, path, body string, header ...string) (int, string, http.Header) {
	b.t.Helper()
	req, err := http.NewRequestWithContext(b.t.Context(), method, b.url+path, strings.NewReader(body))
	if err != nil {
		b.t.Fatal(err)
	}
	for _, h := range [][2]string{{"X-Sandbox-ID", "box"}, {"X-Sandbox-Namespace", "ns"}, {"Authorization", "Bearer ns"}} {
		req.Header.Set(h[0], h[1])
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
	return resp.StatusCode, string(got), resp.Header
}

func (b bench) want(status int, part, method, path, body string, header ...string) {
	b.t.Helper()
	if got, text, _ := b.ask(method, path, body, header...); got != status || !strings.Contains(text, part) {
		b.t.Errorf("%s %s %v: %d %s, not %d %s", method, path, header, got, text, status, part)
	}
}

func form(name, filename, content string) (body, kind string) {
	var b bytes.Buffer
	w := multipart.NewWriter(&b)
	h := textproto.MIMEHeader{"Content-Disposition": {fmt.Sprintf(`form-data; name="%s"; filename="%s"`, name, filename)}}
	part, _ := w.CreatePart(h)
	io.WriteString(part, content)
	w.Close()
	return b.String(), w.FormDataContentType()
}

// The routes of the runtime, on an engine.
func TestRuntime(t *testing.T) {
	t.Parallel()
	b := serve(t, hutchtest.Engine(t, "native", nil))
	b.want(200, `"ok"`, "GET", "/healthz", "", "X-Sandbox-ID", "")
	b.want(200, `"ok"`, "GET", "/", "")
	b.want(200, `{"stdout":"a<b\n","stderr":"err\n","exit_code":3,"timed_out":false}`, "POST", "/execute", `{"command": "echo 'a<b'; echo err >&2; exit 3"}`)
	b.want(200, `"exit_code":124,"timed_out":true`, "POST", "/execute", `{"command": "sleep 60", "timeout_seconds": 0.2}`)
	b.want(400, "timeout_seconds", "POST", "/execute", `{"command": "true", "timeout_seconds": 0}`)
	b.want(400, "timeout_seconds", "POST", "/execute", `{"command": "true", "timeout_seconds": -1}`)
	b.want(422, "cwd", "POST", "/execute", `{"command": "true", "cwd": "/"}`)
	b.want(400, "JSON", "POST", "/execute", `{`)
	b.want(405, "Not Allowed", "GET", "/execute", "")
	b.want(404, "/execute", "GET", "/v1/files/x", "")

	for _, name := range []string{"plain.txt", "sub/deeper/ä b%20#.txt"} {
		body, kind := form("file", name, "content of "+name)
		b.want(200, "written", "POST", "/upload", body, "Content-Type", kind)
		escaped := strings.NewReplacer("/", "%2F", "%", "%25", "#", "%23", " ", "%20", "ä", "%C3%A4").Replace(name)
		b.want(200, "content of "+name, "GET", "/download/"+escaped, "")
		b.want(200, `"exists":true`, "GET", "/exists/"+escaped, "")
	}
	status, text, _ := b.ask("GET", "/list/", "")
	var list []struct {
		Name, Type string
		Size       int64
		Mod        float64 `json:"mod_time"`
	}
	if err := json.Unmarshal([]byte(text), &list); err != nil || status != 200 {
		t.Fatalf("%d %s %v", status, text, err)
	}
	kinds := map[string]string{}
	for _, e := range list {
		kinds[e.Name] = e.Type
		if since := time.Since(time.UnixMilli(int64(e.Mod * 1000))); since < -time.Minute || since > time.Hour {
			t.Errorf("%s is %v old", e.Name, since)
		}
	}
	if kinds["plain.txt"] != "file" || kinds["sub"] != "directory" {
		t.Errorf("listed %v", kinds)
	}
	b.want(200, `"exists":false`, "GET", "/exists/none", "")
	b.want(404, "", "GET", "/download/none", "")
	b.want(404, "", "GET", "/download/sub", "")
	b.want(404, "", "GET", "/list/plain.txt", "")
	b.want(403, "leads out", "GET", "/download/..%2F..%2Fetc%2Fpasswd", "")
	b.want(403, "leads out", "GET", "/list/..", "")
	body, kind := form("file", "../x", "x")
	b.want(403, "leads out", "POST", "/upload", body, "Content-Type", kind)
	body, kind = form("other", "x", "x")
	b.want(400, `part \"file\"`, "POST", "/upload", body, "Content-Type", kind)
	b.want(400, "multipart", "POST", "/upload", "x")
	body, kind = form("file", "half.txt", "x")
	b.want(400, "", "POST", "/upload", body[:len(body)-20], "Content-Type", kind)
}

// Which sandbox a request reaches is decided by its token and its headers, and by nothing else.
func TestWhoGetsIn(t *testing.T) {
	t.Parallel()
	ran := false
	b := serve(t, &fakeservice.Service{OnExec: func(context.Context, string, hutch.ExecRequest, func(hutch.Output) error) (hutch.ExecResult, error) {
		ran = true
		return hutch.ExecResult{}, nil
	}})
	run := func(status int, part string, header ...string) {
		t.Helper()
		b.want(status, part, "POST", "/execute", `{"command": "true"}`, header...)
	}
	run(400, "X-Sandbox-ID header is required.", "X-Sandbox-ID", "")
	for _, bad := range []string{"../x", "a/b", "A", "a_b", "-a", "a..b", ".", strings.Repeat("a", 254)} {
		run(400, "Invalid sandbox ID format.", "X-Sandbox-ID", bad)
	}
	for _, bad := range []string{"../x", "a.b", "A", strings.Repeat("a", 64)} {
		run(400, "Invalid namespace format.", "X-Sandbox-Namespace", bad)
	}
	for _, bad := range []string{"0", "-1", "65536", "http", "1e3"} {
		run(400, "Invalid port format.", "X-Sandbox-Port", bad)
	}
	run(401, "no token", "Authorization", "")
	run(401, "no token", "Authorization", "Basic bnM=")
	run(403, "not in this namespace", "Authorization", "Bearer other")
	run(403, "not in this namespace", "X-Sandbox-Namespace", "") // means the namespace default
	run(404, "no object", "X-Sandbox-Namespace", "x", "Authorization", "Bearer x")
	run(404, "no object", "X-Sandbox-ID", "box-u1") // an id of the server is not a valid name
	run(404, "no object", "X-Sandbox-UID", "u2")
	if ran {
		t.Error("a command ran")
	}
	run(200, "exit_code", "X-Sandbox-UID", "u1", "X-Sandbox-Pod-IP", "169.254.169.254", "X-Sandbox-Port", "8888")
	if !ran {
		t.Error("no command ran")
	}
}

// Web pages that point their own name at a router on loopback cannot use it, although it asks for no token.
func TestLoopback(t *testing.T) {
	t.Parallel()
	for _, only := range []bool{true, false} {
		h := router.New(router.Options{Service: &fakeservice.Service{}, Directory: directory{}, Loopback: only})
		t.Cleanup(h.Close)
		for host, local := range map[string]bool{
			"localhost": true, "LOCALHOST:8080": true, "127.0.0.1:8080": true, "[::1]:8080": true, "[::1]": true,
			"evil.example:8080": false, "localhost.evil.example": false, "127.0.0.1.evil.example": false, "10.0.0.1:8080": false, "": false,
		} {
			r := httptest.NewRequest("GET", "/healthz", nil)
			r.Host = host
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			if want := map[bool]int{true: 200, false: 403}[local || !only]; w.Code != want {
				t.Errorf("%q, loopback only %v: %d", host, only, w.Code)
			}
		}
	}
}

// A namespace can use a quarter of the memory for answers, and the output of a command is bounded.
func TestMemory(t *testing.T) {
	t.Parallel()
	ran := false
	b := serve(t, &fakeservice.Service{OnExec: func(ctx context.Context, _ string, req hutch.ExecRequest, _ func(hutch.Output) error) (hutch.ExecResult, error) {
		ran = true
		if !compat.Take(ctx, 100<<20) || compat.Take(ctx, 100<<20) {
			t.Error("a namespace cannot take 100 MiB, or can take 200")
		}
		if req.MaxOutput != 1<<20 {
			t.Errorf("the output has up to %d bytes", req.MaxOutput)
		}
		return hutch.ExecResult{}, nil
	}})
	b.want(200, "exit_code", "POST", "/execute", `{"command": "true"}`)
	if !ran {
		t.Error("no command ran")
	}
}

// dialed serves requests that DialPort leads to it.
func dialed(t *testing.T, h http.HandlerFunc) func(context.Context, string, int) (net.Conn, error) {
	srv := httptest.NewServer(h)
	t.Cleanup(srv.Close)
	return func(_ context.Context, sandbox string, port int) (net.Conn, error) {
		if sandbox != "box-u1" || port != 3000 {
			return nil, hutch.Errorf(hutch.Unavailable, "nothing listens on port %d", port)
		}
		return net.Dial("tcp", srv.Listener.Addr().String())
	}
}

// Another port is a server in the sandbox. It sees no credential of the caller.
func TestForward(t *testing.T) {
	t.Parallel()
	b := serve(t, &fakeservice.Service{OnDial: dialed(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" {
			<-r.Context().Done()
			return
		}
		body, _ := io.ReadAll(r.Body)
		fmt.Fprintf(w, "%s %s %s auth=%q id=%q host=%s", r.Method, r.URL.RequestURI(), body, r.Header.Get("Authorization"), r.Header.Get("X-Sandbox-ID"), r.Host)
	})})
	b.want(200, `POST /a%2Fb?c=d hello auth="" id="" host=localhost:3000`, "POST", "/a%2Fb?c=d", "hello", "X-Sandbox-Port", "3000")
	b.want(502, "Could not connect to the backend sandbox: box: nothing listens on port 3001", "GET", "/", "", "X-Sandbox-Port", "3001")
	b.want(504, "Could not connect", "GET", "/slow", "", "X-Sandbox-Port", "3000", "X-Sandbox-Timeout", "0.2")
	b.want(401, "no token", "GET", "/", "", "X-Sandbox-Port", "3000", "Authorization", "")
}

// WebSockets go through, and outlive the time limit for an answer.
func TestUpgrade(t *testing.T) {
	t.Parallel()
	b := serve(t, &fakeservice.Service{OnDial: dialed(t, func(w http.ResponseWriter, r *http.Request) {
		conn, buffered, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		fmt.Fprintf(buffered, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\nOrigin-Was: %q\r\n\r\n", r.Header.Get("Origin"))
		buffered.Flush()
		io.Copy(conn, buffered)
	})})
	conn, err := net.Dial("tcp", strings.TrimPrefix(b.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(30 * time.Second))
	fmt.Fprintf(conn, "GET / HTTP/1.1\r\nHost: router\r\nX-Sandbox-ID: box\r\nX-Sandbox-Namespace: ns\r\nX-Sandbox-Port: 3000\r\nX-Sandbox-Timeout: 0.2\r\nAuthorization: Bearer ns\r\nOrigin: http://router\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
	in := bufio.NewReader(conn)
	resp, err := http.ReadResponse(in, nil)
	if err != nil || resp.StatusCode != 101 || resp.Header.Get("Origin-Was") != `""` {
		t.Fatalf("%v %v", resp, err)
	}
	time.Sleep(400 * time.Millisecond)
	fmt.Fprintln(conn, "hello")
	if line, err := in.ReadString('\n'); line != "hello\n" {
		t.Errorf("%q, %v", line, err)
	}
}

// A command ends in the sandbox when its client no longer waits for it.
func TestClientGoes(t *testing.T) {
	t.Parallel()
	ended := make(chan struct{})
	b := serve(t, &fakeservice.Service{OnExec: func(ctx context.Context, _ string, _ hutch.ExecRequest, _ func(hutch.Output) error) (hutch.ExecResult, error) {
		<-ctx.Done()
		close(ended)
		return hutch.ExecResult{}, ctx.Err()
	}})
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, "POST", b.url+"/execute", strings.NewReader(`{"command": "sleep 1d"}`))
	if err != nil {
		t.Fatal(err)
	}
	req.Header = http.Header{"X-Sandbox-Id": {"box"}, "X-Sandbox-Namespace": {"ns"}, "Authorization": {"Bearer ns"}}
	if _, err := http.DefaultClient.Do(req); err == nil {
		t.Error("it was answered")
	}
	select {
	case <-ended:
	case <-time.After(30 * time.Second):
		t.Error("the command still runs")
	}
}
