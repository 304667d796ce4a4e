package piston_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"hutch"
	"hutch/internal/caller"
	"hutch/internal/compat/piston"
	"hutch/internal/fakeservice"
	"hutch/internal/hutchtest/compattest"
	"hutch/internal/hutchtest/fakeengine"
)

type bench struct {
	compattest.Server
	t *testing.T
}

func serve(t *testing.T, svc hutch.Service, opt piston.Options) *bench {
	t.Helper()
	return &bench{compattest.Serve(t, piston.NewHandler(svc, opt), "/piston/api/v2/"), t}
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

// ended returns the exit code, the signal and the status as one text.
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

type fields = map[string]any

// program returns a request for a program in bash.
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
	a := b.Ask("POST", "execute", string(raw))
	var got struct {
		Language, Version string
		Run               stage
		Compile           *stage
	}
	if err := json.Unmarshal([]byte(a.Body), &got); err != nil || a.Status != http.StatusOK || got.Language == "" || got.Version == "" {
		b.t.Fatalf("%v: %d %.300s", req, a.Status, a.Body)
	}
	return got.Run, got.Compile
}

// refused sends a request, fails the test unless the answer is an error with the status, and returns the error's
// message.
func (b *bench) refused(status int, req fields) string {
	b.t.Helper()
	raw, err := json.Marshal(req)
	if err != nil {
		b.t.Fatal(err)
	}
	a := b.Ask("POST", "execute", string(raw))
	var got struct{ Message string }
	if err := json.Unmarshal([]byte(a.Body), &got); err != nil || a.Status != status || got.Message == "" {
		b.t.Errorf("%v: %d %.300s; want %d", req, a.Status, a.Body, status)
	}
	return got.Message
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
	compattest.NoneLeft(t, svc)
}

// TestEnds: the answer says in Piston's terms how a program ended, and no sandbox is left.
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
	compattest.NoneLeft(t, svc)
}

func TestRuntimes(t *testing.T) {
	t.Parallel()
	svc := fakeengine.Start(t)
	b := serve(t, svc, piston.Options{})
	a := b.Ask("GET", "runtimes", "")
	var list []struct {
		Language, Version string
		Aliases           []string
	}
	if err := json.Unmarshal([]byte(a.Body), &list); err != nil || a.Status != http.StatusOK {
		t.Fatalf("%d %s: %v", a.Status, a.Body, err)
	}
	found := false
	for _, l := range list {
		if l.Language == "bash" {
			found = strings.Count(l.Version, ".") == 2 && len(l.Aliases) > 0
		}
	}
	if !found {
		t.Errorf("bash is not among %s", a.Body)
	}
	if a := b.Ask("GET", "packages", ""); !strings.Contains(a.Body, `"language":"bash"`) || !strings.Contains(a.Body, `"installed":true`) {
		t.Errorf("packages: %s", a.Body)
	}
	for route, status := range map[string]int{"POST packages": 501, "DELETE packages": 501, "GET connect": 501, "GET none": 404, "GET execute": 404} {
		method, path, _ := strings.Cut(route, " ")
		if a := b.Ask(method, path, "{}"); a.Status != status || !strings.HasPrefix(a.Body, `{"message":"`) {
			t.Errorf("%s: %d %s", route, a.Status, a.Body)
		}
	}
	compattest.NoneLeft(t, svc)
}

// babel has sandboxes that report the languages of their owner.
type babel struct {
	*fakeservice.Service
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

// TestOwnersShareNoRuntimes: runtimes that a sandbox of one owner reports are not shown to another owner, and are listed once.
func TestOwnersShareNoRuntimes(t *testing.T) {
	t.Parallel()
	svc := &babel{Service: &fakeservice.Service{}}
	b := serve(t, svc, piston.Options{})
	for range 2 {
		for _, owner := range []string{"ada", "eve"} {
			if a := b.Ask("GET", "runtimes", "", "Owner", owner); a.Body != `[{"language":"language-of-`+owner+`","version":"1.0.0","aliases":[]}]`+"\n" {
				t.Errorf("%s: %s", owner, a.Body)
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
	compattest.NoneLeft(t, svc)
}

// script has the language bash, and runs a function in place of a program.
type script struct{ *fakeservice.Service }

func (s *script) Languages(context.Context, string) ([]hutch.Language, error) {
	return []hutch.Language{{Name: "bash", Version: "5.2.15"}, {Name: "c", Version: "12.2"}}, nil
}

// TestRefused: bad requests are refused in the shape that clients read, before any sandbox is created.
func TestRefused(t *testing.T) {
	t.Parallel()
	svc := &script{&fakeservice.Service{}}
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
		a := b.Ask("POST", "execute", body)
		if a.Status != 400 && a.Status != 413 || !strings.HasPrefix(a.Body, `{"message":"`) || len(a.Body) > 2000 {
			t.Errorf("%s: %d %.300s", name, a.Status, a.Body)
		}
	}
	compattest.NoneLeft(t, svc)
}

// TestLimits: the limits of a request are those of its sandbox.
func TestLimits(t *testing.T) {
	t.Parallel()
	var limits []hutch.Seconds
	svc := &script{&fakeservice.Service{}}
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
	svc := &script{&fakeservice.Service{}}
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
	compattest.NoneLeft(t, svc)
}

// TestShutdown ends what runs, and destroys its sandbox.
func TestShutdown(t *testing.T) {
	t.Parallel()
	begun := make(chan struct{})
	svc := &script{&fakeservice.Service{}}
	svc.OnExec = func(ctx context.Context, _ string, _ hutch.ExecRequest, _ func(hutch.Output) error) (hutch.ExecResult, error) {
		close(begun)
		<-ctx.Done()
		return hutch.ExecResult{}, context.Cause(ctx)
	}
	h := piston.NewHandler(svc, piston.Options{})
	b := &bench{compattest.Serve(t, h, "/piston/api/v2/"), t}
	go func() {
		<-begun
		h.Close()
	}()
	if got := b.refused(http.StatusServiceUnavailable, program("x")); !strings.Contains(got, "shutting down") {
		t.Error(got)
	}
	compattest.NoneLeft(t, svc)
}
