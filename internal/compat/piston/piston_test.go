package piston_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"hutch"
	"hutch/internal/caller"
	"hutch/internal/compat/piston"
	"hutch/internal/hutchtest/fakeengine"
	"hutch/internal/scripted"
)

type bench struct {
	*httptest.Server
	t *testing.T
}

func serve(t *testing.T, svc hutch.Service, opt piston.Options) *bench {
	t.Helper()
	h := piston.NewHandler(svc, opt)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { // as a guard does
		h.ServeHTTP(w, r.WithContext(caller.WithOwner(r.Context(), caller.Owner{ID: r.Header.Get("Owner")})))
	}))
	t.Cleanup(func() {
		h.Close()
		srv.Close()
	})
	return &bench{srv, t}
}

// stage is how a program ended.
type stage struct {
	Stdout, Stderr, Output string
	Code                   *int
	Signal, Message        *string
	Status                 *string
}

func (s stage) String() string {
	b, _ := json.Marshal(s) // it came from JSON
	return string(b)
}

// ended is the exit code, the signal and the status.
func (s stage) ended() string {
	text := func(p *string) string {
		if p == nil {
			return "-"
		}
		return *p
	}
	code := "-"
	if s.Code != nil {
		code = fmt.Sprint(*s.Code)
	}
	return code + " " + text(s.Signal) + " " + text(s.Status)
}

type answer struct {
	status int
	body   string
}

func (b *bench) ask(method, path, body string, header ...string) answer {
	b.t.Helper()
	req, err := http.NewRequestWithContext(b.t.Context(), method, b.URL+"/piston/api/v2/"+path, strings.NewReader(body))
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
	return answer{resp.StatusCode, string(got)}
}

type fields = map[string]any

// program is a request for a program in bash.
func program(source string, more ...any) fields {
	f := fields{"language": "bash", "version": "*", "files": []fields{{"content": source}}}
	for i := 0; i < len(more); i += 2 {
		f[more[i].(string)] = more[i+1]
	}
	return f
}

func (b *bench) execute(req fields) (run stage, compile *stage) {
	b.t.Helper()
	raw, err := json.Marshal(req)
	if err != nil {
		b.t.Fatal(err)
	}
	a := b.ask("POST", "execute", string(raw))
	var got struct {
		Language, Version string
		Run               stage
		Compile           *stage
	}
	if err := json.Unmarshal([]byte(a.body), &got); err != nil || a.status != http.StatusOK || got.Language == "" || got.Version == "" {
		b.t.Fatalf("%v: %d %.300s", req, a.status, a.body)
	}
	return got.Run, got.Compile
}

// refused asks for an error, and returns its message.
func (b *bench) refused(status int, req fields) string {
	b.t.Helper()
	raw, err := json.Marshal(req)
	if err != nil {
		b.t.Fatal(err)
	}
	a := b.ask("POST", "execute", string(raw))
	var got struct{ Message string }
	if err := json.Unmarshal([]byte(a.body), &got); err != nil || a.status != status || got.Message == "" {
		b.t.Errorf("%v: %d %.300s; want %d", req, a.status, a.body, status)
	}
	return got.Message
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

// TestExecute runs programs, each in a sandbox of its own that is gone afterwards.
func TestExecute(t *testing.T) {
	t.Parallel()
	svc := fakeengine.Start(t)
	b := serve(t, svc, piston.Options{})
	run, compile := b.execute(fields{
		"language": "SH", "version": ">=3", "stdin": "it", "args": []string{"an argument"},
		"files": []fields{
			{"name": "bin", "content": "AQID", "encoding": "base64"},
			{"name": "main.sh", "content": `read word; echo "got $word $1"; echo err >&2; cat data/more; od -An -tx1 bin file3.code; printf '\377'; exit 3`},
			{"name": "data/more", "content": "more\n", "encoding": "utf8"},
			{"content": "6a6b", "encoding": "hex"},
		},
		"run_timeout": 20000, "run_cpu_time": 20000, "run_memory_limit": -1,
	})
	if run.Stdout != "got it an argument\nmore\n 01 02 03 6a 6b\n\ufffd" || run.Stderr != "err\n" || run.ended() != "3 - RE" || compile != nil {
		t.Errorf("%v", run)
	}
	if len(run.Output) != len(run.Stdout)+len(run.Stderr) {
		t.Errorf("the output of both is %q", run.Output)
	}
	if run, _ := b.execute(program("echo '<&>'")); run.Stdout != "<&>\n" {
		t.Errorf("%v", run)
	}
	if run, _ := b.execute(program("cat")); run.Stdout != "\n" || run.ended() != "0 - -" {
		t.Errorf("the input does not end a line: %v", run)
	}
	if run, _ := b.execute(program("ls")); run.Stdout != "" {
		t.Errorf("a program sees the files of another: %v", run)
	}
	left(t, svc)
}

// TestEnds: how a program ended is said in Piston's words, and nothing of it stays.
func TestEnds(t *testing.T) {
	t.Parallel()
	svc := fakeengine.Start(t)
	b := serve(t, svc, piston.Options{})
	for source, want := range map[string]string{
		"exit 0": "0 - -", "kill -SEGV $$": "- SIGSEGV SG", "echo begun; sleep 60": "- SIGKILL TO", "yes": "- SIGKILL OL", "yes >&2": "- SIGKILL EL",
	} {
		run, _ := b.execute(program(source, "run_timeout", 2000))
		if run.ended() != want {
			t.Errorf("%s: %s, not %s: %.200v", source, run.ended(), want, run)
		}
		if strings.HasPrefix(source, "yes") && (len(run.Output) != 1<<20 || run.Message == nil) {
			t.Errorf("%s: %d bytes", source, len(run.Output))
		}
	}
	left(t, svc)
}

func TestRuntimes(t *testing.T) {
	t.Parallel()
	svc := fakeengine.Start(t)
	b := serve(t, svc, piston.Options{})
	a := b.ask("GET", "runtimes", "")
	var list []struct {
		Language, Version string
		Aliases           []string
	}
	if err := json.Unmarshal([]byte(a.body), &list); err != nil || a.status != http.StatusOK {
		t.Fatalf("%d %s: %v", a.status, a.body, err)
	}
	found := false
	for _, l := range list {
		if l.Language == "bash" {
			found = strings.Count(l.Version, ".") == 2 && len(l.Aliases) > 0
		}
	}
	if !found {
		t.Errorf("bash is not among %s", a.body)
	}
	if a := b.ask("GET", "packages", ""); !strings.Contains(a.body, `"language":"bash"`) || !strings.Contains(a.body, `"installed":true`) {
		t.Errorf("packages: %s", a.body)
	}
	for route, status := range map[string]int{"POST packages": 501, "DELETE packages": 501, "GET connect": 501, "GET none": 404, "GET execute": 404} {
		method, path, _ := strings.Cut(route, " ")
		if a := b.ask(method, path, "{}"); a.status != status || !strings.HasPrefix(a.body, `{"message":"`) {
			t.Errorf("%s: %d %s", route, a.status, a.body)
		}
	}
	left(t, svc)
}

// babel has sandboxes that report the languages of their owner.
type babel struct {
	*scripted.Service
	mu    sync.Mutex
	asked int
}

func (s *babel) Languages(ctx context.Context, _ string) ([]hutch.Language, error) {
	owner, _ := caller.OwnerOf(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked++
	return []hutch.Language{{Name: "language-of-" + owner.ID, Version: "1"}}, nil
}

// TestOwnersShareNoRuntimes: what the sandbox of one owner reports is not shown to another, and is asked once.
func TestOwnersShareNoRuntimes(t *testing.T) {
	t.Parallel()
	svc := &babel{Service: &scripted.Service{}}
	b := serve(t, svc, piston.Options{})
	for range 2 {
		for _, owner := range []string{"ada", "eve"} {
			if a := b.ask("GET", "runtimes", "", "Owner", owner); a.body != `[{"language":"language-of-`+owner+`","version":"1.0.0","aliases":[]}]`+"\n" {
				t.Errorf("%s: %s", owner, a.body)
			}
		}
	}
	if svc.asked != 2 {
		t.Errorf("%d sandboxes were asked", svc.asked)
	}
	for _, req := range svc.Created() {
		if req.Network.Mode != hutch.NetworkNone || req.Timeout == 0 || req.OnIdle != hutch.IdleDestroy {
			t.Errorf("%+v", req)
		}
	}
	left(t, svc)
}

// script has bash, and does what a function says.
type script struct{ *scripted.Service }

func (s *script) Languages(context.Context, string) ([]hutch.Language, error) {
	return []hutch.Language{{Name: "bash", Version: "5.2.15"}, {Name: "c", Version: "12.2"}}, nil
}

// TestRefused: bad requests are refused in the shape that clients read, before any sandbox is created.
func TestRefused(t *testing.T) {
	t.Parallel()
	svc := &script{&scripted.Service{}}
	b := serve(t, svc, piston.Options{MaxTimeout: time.Hour})
	files := func(list ...fields) fields { return program("", "files", list) }
	for name, req := range map[string]fields{
		"language is required": program("x", "language", ""), "version is required": program("x", "version", ""), "files is required": files(),
		"content is required": files(fields{"name": "a"}), "at least one utf8": files(fields{"content": "", "encoding": "hex"}),
		"use utf8, base64 or hex": files(fields{"content": "x"}, fields{"content": "x", "encoding": "rot13"}), "is not base64": files(fields{"content": "x"}, fields{"content": "*", "encoding": "base64"}),
		"below the working folder": files(fields{"content": "x", "name": "../x"}), "below the working": files(fields{"content": "x", "name": "/etc/x"}),
		"below the": files(fields{"content": "x", "name": "."}), "below": files(fields{"content": "x", "name": "a\x00"}),
		"more than 100 files": files(make([]fields, 101)...), "1000 args": program("x", "args", make([]string, 1001)),
		"non-negative": program("x", "run_timeout", -1), "cannot exceed": program("x", "run_timeout", 1e300), "compile_timeout cannot": program("x", "compile_timeout", 3600001),
	} {
		if got := b.refused(http.StatusBadRequest, req); !strings.Contains(got, name) {
			t.Errorf("%s: %s", name, got)
		}
	}
	if got := b.refused(http.StatusNotImplemented, program("x", "run_cpu_time", 1000)); !strings.Contains(got, "run_cpu_time") {
		t.Error(got)
	}
	if got := b.refused(http.StatusNotImplemented, program("x", "nonsense", 1)); !strings.Contains(got, "nonsense") {
		t.Error(got)
	}
	if n := len(svc.Created()); n > 0 {
		t.Errorf("%d sandboxes were created", n)
	}
	for name, req := range map[string]fields{
		"brainfuck-* runtime is unknown": program("x", "language", "brainfuck"), "bash-4.x runtime is unknown": program("x", "version", "4.x"), "the command is empty": program(" "),
	} {
		if got := b.refused(http.StatusBadRequest, req); !strings.Contains(got, name) {
			t.Errorf("%s: %s", name, got)
		}
	}
	for name, body := range map[string]string{
		"malformed": `{"language": `, "a list": `[1]`, "wrong types": `{"language":{},"files":7}`, "two values": `{}{}`,
		"deep": strings.Repeat("[", 1<<20), "huge": `{"stdin":"` + strings.Repeat("x", 10<<20) + `"}`, "zeros": strings.Repeat("\x00", 9<<20),
	} {
		a := b.ask("POST", "execute", body)
		if a.status != 400 && a.status != 413 || !strings.HasPrefix(a.body, `{"message":"`) || len(a.body) > 2000 {
			t.Errorf("%s: %d %.300s", name, a.status, a.body)
		}
	}
	left(t, svc)
}

// TestLimits: the limits of a request are those of its sandbox.
func TestLimits(t *testing.T) {
	t.Parallel()
	var limits []hutch.Seconds
	svc := &script{&scripted.Service{}}
	svc.OnExec = func(_ context.Context, _ string, req hutch.ExecRequest, _ func(hutch.Output) error) (hutch.ExecResult, error) {
		limits = append(limits, req.Timeout)
		return hutch.ExecResult{Limit: "memory", ExitCode: 137, CompileError: req.Language == "c"}, nil
	}
	b := serve(t, svc, piston.Options{})
	run, _ := b.execute(program("x", "run_memory_limit", 200<<20, "run_timeout", 1500))
	if run.ended() != "- SIGKILL SG" || run.Message == nil || !strings.Contains(*run.Message, "memory") {
		t.Errorf("%v", run)
	}
	if _, compile := b.execute(program("x", "language", "c", "run_memory_limit", 1)); compile == nil {
		t.Error("an error of the compiler is not among the answer")
	}
	if want := []hutch.Seconds{1.5, 13}; fmt.Sprint(limits) != fmt.Sprint(want) {
		t.Errorf("the limits are %v s, not %v", limits, want)
	}
	created := svc.Created()
	if last := len(created) - 1; last != 2 || created[1].Limits.Memory != 200 || created[2].Limits.Memory != 64 || created[1].Network.Mode != hutch.NetworkNone || created[1].Timeout <= 1.5 {
		t.Errorf("%+v", created)
	}
}

// TestGoneClient: when its client leaves, a program ends, and its sandbox is destroyed.
func TestGoneClient(t *testing.T) {
	t.Parallel()
	begun := make(chan struct{})
	svc := &script{&scripted.Service{}}
	svc.OnExec = func(ctx context.Context, _ string, _ hutch.ExecRequest, _ func(hutch.Output) error) (hutch.ExecResult, error) {
		close(begun)
		<-ctx.Done()
		return hutch.ExecResult{Timestamp: time.Now()}, context.Cause(ctx)
	}
	b := serve(t, svc, piston.Options{})
	conn, err := net.Dial("tcp", strings.TrimPrefix(b.URL, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	body := `{"language":"bash","version":"*","files":[{"content":"sleep 60"}]}`
	fmt.Fprintf(conn, "POST /piston/api/v2/execute HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
	select {
	case <-begun:
	case <-time.After(20 * time.Second):
		t.Fatal("the program did not begin")
	}
	conn.Close()
	left(t, svc)
}

// TestShutdown ends what runs, and destroys its sandbox.
func TestShutdown(t *testing.T) {
	t.Parallel()
	begun := make(chan struct{})
	svc := &script{&scripted.Service{}}
	svc.OnExec = func(ctx context.Context, _ string, _ hutch.ExecRequest, _ func(hutch.Output) error) (hutch.ExecResult, error) {
		close(begun)
		<-ctx.Done()
		return hutch.ExecResult{}, context.Cause(ctx)
	}
	h := piston.NewHandler(svc, piston.Options{})
	b := &bench{httptest.NewServer(h), t}
	defer b.Server.Close()
	go func() {
		<-begun
		h.Close()
	}()
	if got := b.refused(http.StatusServiceUnavailable, program("x")); !strings.Contains(got, "shutting down") {
		t.Error(got)
	}
	left(t, svc)
}
