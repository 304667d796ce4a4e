package dify_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"hutch"
	"hutch/internal/caller"
	"hutch/internal/compat/dify"
	"hutch/internal/hutchtest/fakeengine"
	"hutch/internal/scripted"
)

type bench struct {
	*httptest.Server
	t *testing.T
}

func serve(t *testing.T, svc hutch.Service, opt dify.Options) *bench {
	t.Helper()
	h := dify.NewHandler(svc, opt)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { // as a guard does
		h.ServeHTTP(w, r.WithContext(caller.WithOwner(r.Context(), caller.Owner{ID: r.Header.Get("Owner")})))
	}))
	t.Cleanup(func() {
		h.Close()
		srv.Close()
	})
	return &bench{srv, t}
}

func (b *bench) ask(method, path, body string, header ...string) (int, string) {
	b.t.Helper()
	req, err := http.NewRequestWithContext(b.t.Context(), method, b.URL+"/dify/"+path, strings.NewReader(body))
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
	got, err := io.ReadAll(resp.Body)
	if err != nil {
		b.t.Fatal(err)
	}
	return resp.StatusCode, string(got)
}

// response is what Dify reads of an answer.
type response struct {
	Code    int
	Message string
	Data    *struct {
		Stdout, Stderr, Error string
		ExitCode              int `json:"exit_code"`
		Dependencies          []struct{ Name, Version string }
	}
}

func (b *bench) read(method, path, body string) (int, response) {
	b.t.Helper()
	status, text := b.ask(method, path, body)
	var r response
	if err := json.Unmarshal([]byte(text), &r); err != nil {
		b.t.Fatalf("%s %s: %d %.300s", method, path, status, text)
	}
	return status, r
}

// run sends a program as Dify does.
func (b *bench) run(language, preload, code string) response {
	b.t.Helper()
	body, err := json.Marshal(map[string]any{"language": language, "code": code, "preload": preload, "enable_network": true})
	if err != nil {
		b.t.Fatal(err)
	}
	status, r := b.read("POST", "v1/sandbox/run", string(body))
	if status != http.StatusOK || r.Code != 0 || r.Data == nil {
		b.t.Fatalf("%s: %d %+v", code[:min(len(code), 100)], status, r)
	}
	return r
}

// node is a code node of Dify: the code of the user, called with inputs, and its result between two marks on stdout.
func node(language, code string, inputs any) string {
	given, _ := json.Marshal(inputs)
	text := base64.StdEncoding.EncodeToString(given)
	if language == "nodejs" {
		return code + "\nvar given = JSON.parse(Buffer.from('" + text + "', 'base64').toString('utf-8'))\nconsole.log('<<RESULT>>' + JSON.stringify(main(given)) + '<<RESULT>>')\n"
	}
	return code + "\nimport json\nfrom base64 import b64decode\ngiven = json.loads(b64decode('" + text + "').decode('utf-8'))\nprint('<<RESULT>>' + json.dumps(main(**given), indent=4) + '<<RESULT>>')\n"
}

// resultOf reads a result as Dify does.
func resultOf(t *testing.T, r response) map[string]any {
	t.Helper()
	parts := strings.Split(r.Data.Stdout, "<<RESULT>>")
	var v map[string]any
	if len(parts) != 3 || json.Unmarshal([]byte(parts[1]), &v) != nil || r.Data.Error != "" {
		t.Fatalf("no result: %+v", r.Data)
	}
	return v
}

// TestCodeNodes: code nodes in both languages get their inputs and give their results, of any size, each in a sandbox
// of its own.
func TestCodeNodes(t *testing.T) {
	t.Parallel()
	svc := fakeengine.Start(t)
	b := serve(t, svc, dify.Options{})
	long := strings.Repeat("ä<&>\"\n", 50_000) // its base64 is longer than a command can be
	r := b.run("python3", "", node("python3", "def main(text, n):\n    open('left', 'x').close()\n    return {'text': text, 'twice': 2 * n}", map[string]any{"text": long, "n": 21}))
	if v := resultOf(t, r); v["text"] != long || v["twice"] != 42.0 {
		t.Errorf("a result of %d bytes, twice is %v", len(r.Data.Stdout), v["twice"])
	}
	r = b.run("python3", "import math\nhalf = 0.5", node("python3", "def main():\n    import os\n    return {'half': half, 'pi': math.floor(math.pi), 'left': os.path.exists('left')}", map[string]any{}))
	if v := resultOf(t, r); v["half"] != 0.5 || v["pi"] != 3.0 || v["left"] != false {
		t.Errorf("with preload: %v", v)
	}
	r = b.run("nodejs", "", node("nodejs", "function main({a}) { const fs = require('fs'); return {sum: a + 1, there: fs.existsSync('/')} }", map[string]any{"a": 1}))
	if v := resultOf(t, r); v["sum"] != 2.0 || v["there"] != true {
		t.Errorf("nodejs: %v", v)
	}
	left(t, svc)
}

// TestEnds: Dify takes a run as failed exactly if there is text in error.
func TestEnds(t *testing.T) {
	t.Parallel()
	svc := fakeengine.Start(t)
	b := serve(t, svc, dify.Options{Timeout: 5 * time.Second})
	for _, c := range []struct {
		language, code      string
		exit                int
		stdout, stderr, err string
	}{
		{"python3", "import sys; print('out'); print('log', file=sys.stderr)", 0, "out\n", "log\n", ""},
		{"python3", "print('half'); raise ValueError('ouch')", 1, "half\n", "ouch", "process exited with code 1"},
		{"python3", "print(", 1, "", "SyntaxError", "SyntaxError"},
		{"python3", "import sys; sys.exit(7)", 7, "", "", "process exited with code 7"},
		{"python3", "import os; os.write(1, b'\\xff')", 0, "\ufffd", "", ""},
		{"nodejs", "throw new Error('ouch')", 1, "", "ouch", "process exited with code 1"},
		{"python3", "import time; time.sleep(60)", -1, "", "", "error: timeout"},
		{"python3", "while True: print('x' * 1000000)", -1, "", "", "wrote more than 8 MiB to stdout"},
	} {
		d := b.run(c.language, "", c.code).Data
		if d.ExitCode != c.exit || !strings.HasPrefix(d.Stdout, c.stdout) || !strings.Contains(d.Stderr, c.stderr) || !strings.Contains(d.Error, c.err) || (d.Error == "") != (c.err == "") {
			t.Errorf("%s: exit code %d, %.100q, %.300q, error %.300q", c.code, d.ExitCode, d.Stdout, d.Stderr, d.Error)
		}
	}
	left(t, svc)
}

func TestDependencies(t *testing.T) {
	t.Parallel()
	svc := fakeengine.Start(t)
	b := serve(t, svc, dify.Options{})
	for _, path := range []string{"v1/sandbox/dependencies?language=python3", "v1/sandbox/dependencies/refresh?language=python3"} {
		if status, r := b.read("GET", path, ""); status != http.StatusOK || r.Code != 0 || r.Data == nil || r.Data.Dependencies == nil {
			t.Errorf("%s: %d %+v", path, status, r)
		}
	}
	if status, text := b.ask("POST", "v1/sandbox/dependencies/update", `{"language":"python3"}`); status != http.StatusOK || text != `{"code":0,"message":"success","data":{}}`+"\n" {
		t.Errorf("update: %d %s", status, text)
	}
	if status, text := b.ask("GET", "health", ""); status != http.StatusOK || text != `"ok"` {
		t.Errorf("health: %d %s", status, text)
	}
	for route, body := range map[string]string{"GET v1/sandbox/dependencies?language=nodejs": "", "GET v1/sandbox/dependencies/refresh": "", "POST v1/sandbox/dependencies/update": `{"language":"nodejs"}`} {
		method, path, _ := strings.Cut(route, " ")
		if status, r := b.read(method, path, body); status != http.StatusBadRequest || r.Code != -400 {
			t.Errorf("%s: %d %+v", route, status, r)
		}
	}
	left(t, svc)
}

// TestOwnersShareNoList: the packages that the sandbox of one owner reports are not shown to another, and are asked for
// once.
func TestOwnersShareNoList(t *testing.T) {
	t.Parallel()
	asked := 0
	svc := &scripted.Service{OnExec: func(ctx context.Context, _ string, _ hutch.ExecRequest, out func(hutch.Output) error) (hutch.ExecResult, error) {
		asked++
		owner, _ := caller.OwnerOf(ctx)
		return hutch.ExecResult{}, out(hutch.Output{Stream: hutch.Stdout, Data: fmt.Appendf(nil, `[{"name":"of-%s","version":"1"}]`, owner.ID)})
	}}
	b := serve(t, svc, dify.Options{Image: "data"})
	for range 2 {
		for _, owner := range []string{"ada", "eve"} {
			if _, text := b.ask("GET", "v1/sandbox/dependencies?language=python3", "", "Owner", owner); !strings.Contains(text, `"name":"of-`+owner+`"`) {
				t.Errorf("%s: %s", owner, text)
			}
		}
	}
	if asked != 2 {
		t.Errorf("%d sandboxes were asked", asked)
	}
	for _, req := range svc.Created() {
		if req.Network.Mode != hutch.NetworkNone || req.Timeout == 0 || req.OnIdle != hutch.IdleDestroy || req.Image != "data" {
			t.Errorf("%+v", req)
		}
	}
	left(t, svc)
}

// TestRefused: bad requests are refused in the shape that Dify reads, before any sandbox is created.
func TestRefused(t *testing.T) {
	t.Parallel()
	svc := &scripted.Service{}
	b := serve(t, svc, dify.Options{})
	for name, body := range map[string]string{
		"language and code are required": `{"language":"python3"}`, "language and code are": ``, `unsupported language "jinja2"`: `{"language":"jinja2","code":"x"}`,
		"Invalid JSON": `{"language": `, `"code" cannot be a number`: `{"code":7}`, "dependencies": `{"language":"python3","code":"x","dependencies":[{"name":"numpy"}]}`,
		"larger than 8 MiB": `{"code":"` + strings.Repeat("x", 10<<20) + `"}`, "Invalid JSON body": strings.Repeat("[", 1<<20),
		"the command": `{"language":"python3","code":"x","preload":"` + strings.Repeat("x", 2<<20) + `"}`,
	} {
		if status, r := b.read("POST", "v1/sandbox/run", body); status != http.StatusBadRequest || r.Code >= 0 || !strings.Contains(r.Message, name) || r.Data != nil {
			t.Errorf("%s: %d %d %.300s", name, status, r.Code, r.Message)
		}
	}
	if status, r := b.read("GET", "v1/sandbox/run", ""); status != http.StatusNotFound || r.Code != -404 {
		t.Errorf("%d %+v", status, r)
	}
	if n := len(svc.Created()); n > 0 {
		t.Errorf("%d sandboxes were created", n)
	}
}

// crowd lets only two sandboxes be there at once, as a token's limit does.
type crowd struct {
	*scripted.Service
	mu    sync.Mutex
	there int
	full  bool // it never has room
}

func (c *crowd) Create(ctx context.Context, req hutch.CreateRequest) (hutch.Sandbox, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.there == 2 || c.full {
		return hutch.Sandbox{}, hutch.Errorf(hutch.Exhausted, "the limit of 2 sandboxes at once").With("limit", "sandboxes")
	}
	c.there++
	return c.Service.Create(ctx, req)
}

func (c *crowd) Destroy(ctx context.Context, id string, force bool) (hutch.Destruction, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.there--
	return c.Service.Destroy(ctx, id, force)
}

// TestBurst: more runs at once than there can be sandboxes wait for each other, and all of them succeed.
func TestBurst(t *testing.T) {
	t.Parallel()
	svc := &crowd{Service: &scripted.Service{}}
	b := serve(t, svc, dify.Options{})
	var runs sync.WaitGroup
	for range 20 {
		runs.Go(func() {
			if status, text := b.ask("POST", "v1/sandbox/run", `{"language":"python3","code":"x"}`); status != http.StatusOK || !strings.Contains(text, `"code":0`) {
				t.Errorf("%d %s", status, text)
			}
		})
	}
	runs.Wait()
	left(t, svc)
}

// TestShutdown ends what runs, and destroys its sandbox.
func TestShutdown(t *testing.T) {
	t.Parallel()
	begun := make(chan struct{})
	svc := &scripted.Service{OnExec: func(ctx context.Context, _ string, _ hutch.ExecRequest, _ func(hutch.Output) error) (hutch.ExecResult, error) {
		close(begun)
		<-ctx.Done()
		return hutch.ExecResult{}, context.Cause(ctx)
	}}
	h := dify.NewHandler(svc, dify.Options{})
	b := &bench{httptest.NewServer(h), t}
	defer b.Server.Close()
	go func() {
		<-begun
		h.Close()
	}()
	if status, r := b.read("POST", "v1/sandbox/run", `{"language":"python3","code":"x"}`); status != http.StatusOK || r.Code != -503 || !strings.Contains(r.Message, "shutting down") {
		t.Errorf("%d %+v", status, r)
	}
	left(t, svc)
}

// left fails the test if sandboxes are left after a while.
func left(t *testing.T, svc hutch.Service) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		list, err := svc.Sandboxes(context.Background(), hutch.Filter{})
		if err != nil {
			t.Fatal(err)
		}
		if len(list) == 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d sandboxes are left", len(list))
		}
	}
}
