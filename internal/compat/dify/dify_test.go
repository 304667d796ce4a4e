package dify_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"hutch"
	"hutch/internal/caller"
	"hutch/internal/compat/dify"
	"hutch/internal/fakeservice"
	"hutch/internal/hutchtest/compattest"
	"hutch/internal/hutchtest/fakeengine"
)

type bench struct {
	compattest.Server
	t *testing.T
}

func serve(t *testing.T, svc hutch.Service, opt dify.Options) *bench {
	t.Helper()
	return &bench{compattest.Serve(t, dify.NewHandler(svc, opt), "/dify/"), t}
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
	a := b.Ask(method, path, body)
	var r response
	if err := json.Unmarshal([]byte(a.Body), &r); err != nil {
		b.t.Fatalf("%s %s: %d %.300s", method, path, a.Status, a.Body)
	}
	return a.Status, r
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
	compattest.NoneLeft(t, svc)
}

// TestEnds: Dify takes a run as failed exactly if there is text in error.
func TestEnds(t *testing.T) {
	t.Parallel()
	svc := fakeengine.Start(t)
	b := serve(t, svc, dify.Options{})
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
		{"python3", "while True: print('x' * 1000000)", -1, "", "", "wrote more than 8 MiB to stdout"},
	} {
		d := b.run(c.language, "", c.code).Data
		if d.ExitCode != c.exit || !strings.HasPrefix(d.Stdout, c.stdout) || !strings.Contains(d.Stderr, c.stderr) || !strings.Contains(d.Error, c.err) || (d.Error == "") != (c.err == "") {
			t.Errorf("%s: exit code %d, %.100q, %.300q, error %.300q", c.code, d.ExitCode, d.Stdout, d.Stderr, d.Error)
		}
	}
	if d := serve(t, svc, dify.Options{Timeout: 2 * time.Second}).run("python3", "", "import time; time.sleep(60)").Data; d.ExitCode != -1 || !strings.Contains(d.Error, "error: timeout") {
		t.Errorf("a run that does not end: %+v", d)
	}
	compattest.NoneLeft(t, svc)
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
	if a := b.Ask("POST", "v1/sandbox/dependencies/update", `{"language":"python3"}`); a.Status != http.StatusOK || a.Body != `{"code":0,"message":"success","data":{}}`+"\n" {
		t.Errorf("update: %d %s", a.Status, a.Body)
	}
	if a := b.Ask("GET", "health", ""); a.Status != http.StatusOK || a.Body != `"ok"` {
		t.Errorf("health: %d %s", a.Status, a.Body)
	}
	for route, body := range map[string]string{"GET v1/sandbox/dependencies?language=nodejs": "", "GET v1/sandbox/dependencies/refresh": "", "POST v1/sandbox/dependencies/update": `{"language":"nodejs"}`} {
		method, path, _ := strings.Cut(route, " ")
		if status, r := b.read(method, path, body); status != http.StatusBadRequest || r.Code != -400 {
			t.Errorf("%s: %d %+v", route, status, r)
		}
	}
	compattest.NoneLeft(t, svc)
}

// TestOwnersShareNoList: the packages that the sandbox of one owner reports are not shown to another owner. A sandbox
// is asked for them once.
func TestOwnersShareNoList(t *testing.T) {
	t.Parallel()
	asked := 0
	svc := &fakeservice.Service{OnExec: func(ctx context.Context, _ string, _ hutch.ExecRequest, out func(hutch.Output) error) (hutch.ExecResult, error) {
		asked++
		owner, _ := caller.OwnerOf(ctx)
		return hutch.ExecResult{}, out(hutch.Output{Stream: hutch.Stdout, Data: fmt.Appendf(nil, `[{"name":"of-%s","version":"1"}]`, owner.ID)})
	}}
	b := serve(t, svc, dify.Options{Image: "data"})
	for range 2 {
		for _, owner := range []string{"ada", "eve"} {
			if a := b.Ask("GET", "v1/sandbox/dependencies?language=python3", "", "Owner", owner); !strings.Contains(a.Body, `"name":"of-`+owner+`"`) {
				t.Errorf("%s: %s", owner, a.Body)
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
	compattest.NoneLeft(t, svc)
}

// TestRefused: bad requests are refused in the shape that Dify reads, before any sandbox is created.
func TestRefused(t *testing.T) {
	t.Parallel()
	svc := &fakeservice.Service{}
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

// crowd is a service that allows only two sandboxes at once, as a token's limit does.
type crowd struct {
	*fakeservice.Service
	mu    sync.Mutex
	there int
	full  bool // it allows no sandbox at all
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

// TestBurst: when there are more runs at once than sandboxes are allowed, they wait for each other, and all succeed.
func TestBurst(t *testing.T) {
	t.Parallel()
	svc := &crowd{Service: &fakeservice.Service{}}
	b := serve(t, svc, dify.Options{})
	var runs sync.WaitGroup
	for range 20 {
		runs.Go(func() {
			if a := b.Ask("POST", "v1/sandbox/run", `{"language":"python3","code":"x"}`); a.Status != http.StatusOK || !strings.Contains(a.Body, `"code":0`) {
				t.Errorf("%d %s", a.Status, a.Body)
			}
		})
	}
	runs.Wait()
	compattest.NoneLeft(t, svc)
}

// TestShutdown ends what runs, and destroys its sandbox.
func TestShutdown(t *testing.T) {
	t.Parallel()
	begun := make(chan struct{})
	svc := &fakeservice.Service{OnExec: func(ctx context.Context, _ string, _ hutch.ExecRequest, _ func(hutch.Output) error) (hutch.ExecResult, error) {
		close(begun)
		<-ctx.Done()
		return hutch.ExecResult{}, context.Cause(ctx)
	}}
	h := dify.NewHandler(svc, dify.Options{})
	b := &bench{compattest.Serve(t, h, "/dify/"), t}
	go func() {
		<-begun
		h.Close()
	}()
	if status, r := b.read("POST", "v1/sandbox/run", `{"language":"python3","code":"x"}`); status != http.StatusOK || r.Code != -503 || !strings.Contains(r.Message, "shutting down") {
		t.Errorf("%d %+v", status, r)
	}
	compattest.NoneLeft(t, svc)
}
