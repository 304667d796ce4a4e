package swerex_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"hutch"
	"hutch/internal/compat/swerex"
	"hutch/internal/fakeservice"
	"hutch/internal/hutchtest/fakeengine"
)

// twins gives the first process of each sandbox the same id, as the processes of a copy have.
type twins struct{ hutch.Service }

const twin = "p-twin"

func (s *twins) real(ctx context.Context, sandbox, process string) string {
	if process != twin {
		return process
	}
	list, err := s.Service.Processes(ctx, sandbox)
	if err != nil || len(list) == 0 {
		return process
	}
	return list[0].ID
}

func (s *twins) StartProcess(ctx context.Context, sandbox string, req hutch.ProcessRequest) (hutch.Process, error) {
	p, err := s.Service.StartProcess(ctx, sandbox, req)
	p.ID = twin
	return p, err
}

func (s *twins) Processes(ctx context.Context, sandbox string) ([]hutch.Process, error) {
	list, err := s.Service.Processes(ctx, sandbox)
	if len(list) > 0 {
		list[0].ID = twin
	}
	return list, err
}

func (s *twins) Logs(ctx context.Context, req hutch.LogsRequest, out func(hutch.Output) error) (int64, error) {
	req.ProcessID = s.real(ctx, req.SandboxID, req.ProcessID)
	return s.Service.Logs(ctx, req, out)
}

func (s *twins) Input(ctx context.Context, sandbox, process string, r io.Reader, end bool) error {
	return s.Service.Input(ctx, sandbox, s.real(ctx, sandbox, process), r, end)
}

// TestBadBodies: every route refuses a bad body, in the shape that clients read.
func TestBadBodies(t *testing.T) {
	t.Parallel()
	b := serve(t, &fakeservice.Service{}, swerex.Options{})
	bodies := map[string]string{
		"malformed": `{"command": `, "a list": `[1, 2]`, "a number": `17`, "unknown": `{"nonsense": 1}`, "two values": `{}{}`,
		"wrong types": `{"command":{"a":1},"session":[],"path":{},"timeout":"x"}`,
		"deep":        strings.Repeat("[", 1<<20), "huge": `{"command":"` + strings.Repeat("x", 10<<20) + `"}`, "zeros": strings.Repeat("\x00", 9<<20),
	}
	for _, route := range []string{"create_session", "run_in_session", "close_session", "execute", "read_file", "write_file"} {
		for name, body := range bodies {
			a := b.ask(route, body)
			if a.status != 422 && a.status != 413 && a.status != 501 || a.field("detail") == nil || len(a.body) > 2000 {
				t.Errorf("%s with %s: %d %.300s", route, name, a.status, a.body)
			}
		}
	}
}

// TestBadActions: bad actions are refused before anything runs.
func TestBadActions(t *testing.T) {
	t.Parallel()
	b := serve(t, &fakeservice.Service{OnExec: func(context.Context, string, hutch.ExecRequest, func(hutch.Output) error) (hutch.ExecResult, error) {
		t.Error("something ran")
		return hutch.ExecResult{}, nil
	}}, swerex.Options{})
	for name, a := range map[string]fields{
		"a type":              action("x", "action_type", "zsh"),
		"a check":             action("x", "check", "perhaps"),
		"a long command":      action(strings.Repeat("x", hutch.MaxCommand+1)),
		"no pattern":          action("x", "expect", []string{"("}),
		"a long pattern":      action("x", "expect", []string{strings.Repeat("x", hutch.MaxPattern+1)}),
		"a pattern that grew": action("x", "expect", []string{"((a{100}){100}){10}"}),
		"a large pattern":     action("x", "expect", []string{"(a{999}){2}"}),
		"patterns together":   action("x", "expect", []string{strings.Repeat("a", 600), strings.Repeat("b", 600)}),
		"many patterns":       action("x", "expect", make([]string, 33)),
		"retries":             action("x", "n_retry", 1000),
		"negative retries":    action("x", "n_retry", -1),
	} {
		if got := b.ask("run_in_session", encode(t, a)); got.status != http.StatusUnprocessableEntity {
			t.Errorf("%s: %d %.200s", name, got.status, got.body)
		}
	}
	for name, s := range map[string]fields{
		"a long name": {"session": strings.Repeat("x", 51)}, "no name": {"session": ""}, "a type": {"session_type": "zsh"},
		"long sources": {"startup_source": []string{strings.Repeat("x", hutch.MaxCommand)}},
	} {
		if got := b.ask("create_session", encode(t, s)); got.status != http.StatusUnprocessableEntity {
			t.Errorf("a session with %s: %d %.200s", name, got.status, got.body)
		}
	}
	b.raises("ValueError", "run_in_session", action("x", "timeout", 1e300))
	b.raises("ValueError", "create_session", fields{"startup_timeout": 1e12})
	for _, body := range []string{`{}`, `{"command":null}`, `{"command":[]}`} {
		if got := b.ask("execute", body); got.status != http.StatusUnprocessableEntity {
			t.Errorf("execute %s: %d %.200s", body, got.status, got.body)
		}
	}
}

// TestEndlessOutput: an action keeps a bounded part of its output, and ends at its time limit.
func TestEndlessOutput(t *testing.T) {
	t.Parallel()
	b := serve(t, fakeengine.Start(t), swerex.Options{})
	b.want("create_session", fields{})
	b.raises("CommandTimeoutError", "run_in_session", action("yes no end", "timeout", 0.5))
	b.want("run_in_session", fields{"action_type": "bash_interrupt", "timeout": 5})
	a := b.run("head -c 12000000 /dev/zero | tr '\\0' x; echo; echo at the end")
	if out := a.field("output").(string); len(out) > 5<<20 || !strings.HasSuffix(out, "at the end\n") {
		t.Errorf("%d bytes of output, which end with %q", len(out), out[max(len(out)-30, 0):])
	}
}

// TestFullTerminal: a program that does not read its input does not hold an action for longer than its time limit.
func TestFullTerminal(t *testing.T) {
	t.Parallel()
	b := serve(t, fakeengine.Start(t), swerex.Options{})
	b.want("create_session", fields{})
	b.raises("CommandTimeoutError", "run_in_session", action("stty raw; sleep 60", "timeout", 0.3))
	b.raises("CommandTimeoutError", "run_in_session", action(strings.Repeat("x", 500_000), "is_interactive_command", true, "timeout", 0.3))
	b.want("close", nil)
}

// TestGoneClient: when the client of a command leaves, the command ends.
func TestGoneClient(t *testing.T) {
	t.Parallel()
	ended := make(chan struct{}, 1)
	svc := &fakeservice.Service{OnExec: func(ctx context.Context, _ string, _ hutch.ExecRequest, _ func(hutch.Output) error) (hutch.ExecResult, error) {
		<-ctx.Done()
		ended <- struct{}{}
		return hutch.ExecResult{Timestamp: time.Now()}, context.Cause(ctx)
	}}
	b := serve(t, svc, swerex.Options{})
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, "POST", b.URL+"/swerex/box/execute", strings.NewReader(`{"command":["sleep","60"]}`))
	if err != nil {
		t.Fatal(err)
	}
	if resp, err := http.DefaultClient.Do(req); err == nil {
		resp.Body.Close()
		t.Fatal("the command ended by itself")
	}
	select {
	case <-ended:
	case <-time.After(20 * time.Second):
		t.Fatal("the command outlives its client")
	}
}

// TestEndlessUpload: a body that stops coming ends the request.
func TestEndlessUpload(t *testing.T) {
	t.Parallel()
	b := serve(t, fakeengine.Start(t), swerex.Options{Stall: 200 * time.Millisecond})
	b.want("execute", fields{"command": "true"})
	conn, err := net.Dial("tcp", strings.TrimPrefix(b.URL, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprint(conn, "POST /swerex/box/upload HTTP/1.1\r\nHost: x\r\nContent-Type: multipart/form-data; boundary=B\r\nContent-Length: 1000000\r\n\r\n"+
		"--B\r\nContent-Disposition: form-data; name=\"file\"; filename=\"f\"\r\n\r\nthe beginning")
	conn.SetReadDeadline(time.Now().Add(20 * time.Second))
	got := make([]byte, 512)
	n, err := conn.Read(got)
	if err != nil && err != io.EOF || err == nil && !strings.Contains(string(got[:n]), " 422 ") {
		t.Errorf("%v: %s", err, got[:n])
	}
}

// TestRunsOnce: a sandbox that is destroyed while a command runs is not created again to run the command again.
func TestRunsOnce(t *testing.T) {
	t.Parallel()
	runs := 0
	svc := &fakeservice.Service{OnExec: func(_ context.Context, id string, _ hutch.ExecRequest, _ func(hutch.Output) error) (hutch.ExecResult, error) {
		runs++
		return hutch.ExecResult{Timestamp: time.Now()}, hutch.Errorf(hutch.NotFound, "destroyed while the command ran").Naming(hutch.AboutSandbox, id)
	}}
	b := serve(t, svc, swerex.Options{})
	b.raises("SwerexException", "execute", fields{"command": "x"})
	if runs != 1 {
		t.Errorf("it ran %d times", runs)
	}
}

// TestShutdown ends what runs.
func TestShutdown(t *testing.T) {
	t.Parallel()
	begun := make(chan struct{})
	svc := &fakeservice.Service{OnExec: func(ctx context.Context, _ string, _ hutch.ExecRequest, _ func(hutch.Output) error) (hutch.ExecResult, error) {
		close(begun)
		<-ctx.Done()
		return hutch.ExecResult{Timestamp: time.Now()}, context.Cause(ctx)
	}}
	h := swerex.NewHandler(svc, swerex.Options{})
	b := &bench{httptest.NewServer(h), t, "box"}
	defer b.Server.Close()
	go func() {
		<-begun
		h.Close()
	}()
	if text := b.raises("SwerexException", "execute", fields{"command": "x"}); !strings.Contains(text, "shutting down") {
		t.Error(text)
	}
}
