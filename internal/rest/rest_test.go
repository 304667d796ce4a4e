package rest_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"runtime/pprof"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"hutch"
	"hutch/internal/fakeservice"
	"hutch/internal/problem"
	"hutch/internal/rest"
)

// bench is a handler in a real server, with the sandbox "s" in it.
type bench struct {
	*httptest.Server
	handler *rest.Handler
}

func serve(t *testing.T, svc *fakeservice.Service, opt rest.Options) *bench {
	t.Helper()
	if _, err := svc.Create(t.Context(), hutch.CreateRequest{ID: "s"}); err != nil {
		t.Fatal(err)
	}
	return serveAny(t, svc, opt)
}

func serveAny(t *testing.T, svc hutch.Service, opt rest.Options) *bench {
	t.Helper()
	h := rest.NewHandler(svc, opt)
	b := &bench{httptest.NewServer(h), h}
	t.Cleanup(func() {
		h.Close()
		b.Server.Close()
	})
	return b
}

// call makes a request; header has names and values in turn.
func (b *bench) call(t *testing.T, method, path, body string, header ...string) (*http.Response, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, b.URL+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := b.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	got, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, string(got)
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	b := serve(t, &fakeservice.Service{}, rest.Options{})
	for _, test := range []struct {
		method, path, body string
		status             int
		says               string
	}{
		{"GET", "/", "", 404, "/v1/docs"},
		{"GET", "/v1/nope", "", 404, "/v1/docs"},
		{"GET", "/v1/sandboxes/s/nothing", "", 404, "nothing"},
		{"PATCH", "/v1/sandboxes", "", 405, "GET and POST"},
		{"GET", "/v1/sandboxes/s/processes/p/signal", "", 405, "POST"},
		{"GET", "/v1/sandboxes/unknown", "", 404, "unknown"},
		{"GET", "/v1/sandboxes/UPPER", "", 400, `upper-case letters: write it as "upper"`},
		{"POST", "/v1/sandboxes", `{"sandboxId": "UPPER"}`, 400, `write it as "upper", or set normalizeId`},
		{"POST", "/v1/sandboxes", `{"sandboxId": "localhost"}`, 400, "name of a host"},
		{"GET", "/v1/sandboxes?state=running", "", 400, "state"},
		{"GET", "/v1/sandboxes?limt=3", "", 400, "use status, owner, label, createdAfter, createdBefore, brief, limit or cursor"},
		{"GET", "/v1/sandboxes?status=asleep", "", 400, "asleep"},
		{"GET", "/v1/sandboxes?createdAfter=yesterday", "", 400, "yesterday"},
		{"GET", "/v1/sandboxes?owner=a&owner=b", "", 400, "owner"},
		{"GET", "/v1/sandboxes?owner=%zz", "", 400, "query"},
		{"DELETE", "/v1/sandboxes/s?force=perhaps", "", 400, "perhaps"},
		{"POST", "/v1/sandboxes", `{"sandboxID":"s","colour":"red"}`, 400, "colour"},
		{"POST", "/v1/sandboxes", `{"limits":{"memory":"much"}}`, 400, "limits.memory"},
		{"POST", "/v1/sandboxes/s/exec", `{"command":5}`, 400, `the field "command" cannot be a number`},
		{"POST", "/v1/sandboxes/s/exec", `{"cmd":"true"}`, 400, "use command, "},
		{"POST", "/v1/sandboxes", `{"limits":{"mem":1}}`, 400, `"limits.mem" here: use cpu, memory, `},
		{"POST", "/v1/sandboxes/s/exec", `{"command":"x","env":{"HOST":"a","PORT":8080}}`, 400, `the field "env.PORT" cannot be a number: give a string`},
		{"POST", "/v1/sandboxes", `{"network":{"allow":["a.example",7]}}`, 400, `the field "network.allow" has a number in it: give a string there`},
		{"POST", "/v1/sandboxes/s/screen/actions", `{"actions":[{"action":"wait","duration":1},{"action":"wait","duration":"1"}]}`, 400, `the field "actions[1].duration" cannot be a string: give a number`},
		{"POST", "/v1/sandboxes/s/exec", `{"command":"cat","stdinBase64":"?"}`, 400, `the field "stdinBase64" is not base64`},
		{"POST", "/v1/sandboxes", `[]`, 400, "the body cannot be an array: give an object"},
		{"POST", "/v1/sandboxes", `{`, 400, "the body is not complete JSON"},
		{"POST", "/v1/sandboxes", `{,}`, 400, "the body is not valid JSON"},
		{"POST", "/v1/sandboxes", `{} {}`, 400, "byte 2: send one value"},
		{"POST", "/v1/sandboxes", "{\"image\":\"\xff\"}", 400, "UTF-8"},
		{"POST", "/v1/sandboxes/s/exec", `{"command":"cat","openStdin":true}`, 400, "WebSocket"},
		{"POST", "/v1/sandboxes/s/exec", `{"command":"cat","stdin":"a","stdinBase64":"YQ=="}`, 400, "stdin"},
		{"POST", "/v1/sandboxes/s/exec", `{"command":"` + strings.Repeat("x", 8<<20) + `"}`, 413, "8 MiB"},
		{"GET", "/v1/sandboxes/s/exec", "", 400, "WebSocket"},
		{"GET", "/v1/sandboxes/s/processes/p/logs?cursor=-1", "", 400, "cursor"},
		{"GET", "/v1/sandboxes/s/processes/p/logs?follow=true", "", 400, "text/event-stream"},
		{"GET", "/v1/sandboxes/s/processes/p/logs?since=10m", "", 400, "since"},
		{"POST", "/v1/sandboxes/s/processes/p/signal", `{"signal":0}`, 400, "signal"},
	} {
		resp, body := b.call(t, test.method, test.path, test.body)
		d := problem.Read(resp.StatusCode, []byte(body))
		if resp.StatusCode != test.status || d.Status != test.status || !strings.Contains(d.Detail, test.says) {
			t.Errorf("%s %s: %d %s", test.method, test.path, resp.StatusCode, body)
		}
		if got := resp.Header.Get("Content-Type"); got != problem.ContentType {
			t.Errorf("%s %s: Content-Type %s", test.method, test.path, got)
		}
	}
}

func TestAllow(t *testing.T) {
	t.Parallel()
	resp, _ := serve(t, &fakeservice.Service{}, rest.Options{}).call(t, "PUT", "/v1/sandboxes/s", "")
	if got := resp.Header.Get("Allow"); got != "DELETE, GET, PATCH" {
		t.Errorf("Allow: %s", got)
	}
}

func TestListsAreNeverNull(t *testing.T) {
	t.Parallel()
	b := serve(t, &fakeservice.Service{}, rest.Options{})
	for _, path := range []string{"/v1/sandboxes?status=stopped", "/v1/sandboxes/s/processes"} {
		if _, body := b.call(t, "GET", path, ""); body != "[]" {
			t.Errorf("%s: %s", path, body)
		}
	}
}

func TestExecWithInput(t *testing.T) {
	t.Parallel()
	b := serve(t, &fakeservice.Service{OnExec: func(_ context.Context, id string, req hutch.ExecRequest, out func(hutch.Output) error) (hutch.ExecResult, error) {
		in, err := io.ReadAll(req.Stdin)
		return hutch.ExecResult{Stdout: in}, err
	}}, rest.Options{})
	for body, want := range map[string]string{
		`{"command":"cat","stdin":"text ☃"}`:     `"stdout":"text ☃"`,
		`{"command":"cat","stdinBase64":"/wA="}`: `"stdout":"/wA=","stderr":"","encoding":"base64"`,
	} {
		if _, got := b.call(t, "POST", "/v1/sandboxes/s/exec", body); !strings.Contains(got, want) {
			t.Errorf("%s: %s", body, got)
		}
	}
}

// twoPieces prints two pieces of output and then ends with err.
func twoPieces(err error) *fakeservice.Service {
	return &fakeservice.Service{OnExec: func(_ context.Context, id string, req hutch.ExecRequest, out func(hutch.Output) error) (hutch.ExecResult, error) {
		if out != nil {
			out(hutch.Output{Stream: hutch.Stdout, Data: []byte("a\n\nb"), Cursor: 4})
			out(hutch.Output{Stream: hutch.Stderr, Data: []byte{0xff}, Cursor: 5})
		}
		return hutch.ExecResult{SandboxID: id, Stdout: []byte("a\n\nb"), Timestamp: time.Unix(0, 0).UTC()}, err
	}}
}

func TestExecAsEvents(t *testing.T) {
	t.Parallel()
	b := serve(t, twoPieces(nil), rest.Options{})
	resp, got := b.call(t, "POST", "/v1/sandboxes/s/exec", `{"command":"x"}`, "Accept", "text/event-stream;q=0.9, */*")
	want := `id: 4
event: stdout
data: {"stream":"stdout","data":"a\n\nb","encoding":"utf-8","cursor":4}

id: 5
event: stderr
data: {"stream":"stderr","data":"/w==","encoding":"base64","cursor":5}

event: exit
data: {"success":true,"exitCode":0,"stdout":"a\n\nb",`
	if !strings.HasPrefix(got, want) || !strings.HasSuffix(got, "}\n\n") || resp.Header.Get("Content-Type") != "text/event-stream" {
		t.Errorf("%v\n%s", resp.Header, got)
	}
}

func TestExecAsEventsFails(t *testing.T) {
	t.Parallel()
	b := serve(t, twoPieces(hutch.Errorf(hutch.Unavailable, "the sandbox died")), rest.Options{})
	_, got := b.call(t, "POST", "/v1/sandboxes/s/exec", `{"command":"x"}`, "Accept", "text/event-stream")
	_, last, _ := strings.Cut(got, "event: error\ndata: ")
	if d := problem.Read(0, []byte(last)); d.Kind != hutch.Unavailable || d.Result == nil || string(d.Result.Stdout) != "a\n\nb" {
		t.Errorf("%s", got)
	}
	// A failure before the first event has its own status.
	resp, _ := b.call(t, "POST", "/v1/sandboxes/nobody/exec", `{"command":"x"}`, "Accept", "text/event-stream")
	if resp.StatusCode != 404 {
		t.Errorf("status %d", resp.StatusCode)
	}
}

func TestPartialResultBesideAnError(t *testing.T) {
	t.Parallel()
	b := serve(t, twoPieces(hutch.Errorf(hutch.Unavailable, "the sandbox died")), rest.Options{})
	resp, got := b.call(t, "POST", "/v1/sandboxes/s/exec", `{"command":"x"}`)
	if d := problem.Read(resp.StatusCode, []byte(got)); resp.StatusCode != 503 || d.Result == nil || string(d.Result.Stdout) != "a\n\nb" {
		t.Errorf("%d %s", resp.StatusCode, got)
	}
}

// logsOf serves a process that has printed data, one byte at a time.
func logsOf(t *testing.T, data string) (b *bench, path string) {
	t.Helper()
	svc := &fakeservice.Service{OnLogs: func(_ context.Context, req hutch.LogsRequest, out func(hutch.Output) error) (int64, error) {
		for i := req.Cursor; i < int64(len(data)); i++ {
			if err := out(hutch.Output{Stream: hutch.Stdout, Data: []byte(data[i : i+1]), Cursor: i + 1}); err != nil {
				return i, err
			}
		}
		return int64(len(data)), nil
	}}
	b = serve(t, svc, rest.Options{})
	p, err := svc.StartProcess(t.Context(), "s", hutch.ProcessRequest{Command: "x"})
	if err != nil {
		t.Fatal(err)
	}
	return b, "/v1/sandboxes/s/processes/" + p.ID + "/logs"
}

func TestLogsInOneAnswer(t *testing.T) {
	t.Parallel()
	b, path := logsOf(t, "snow ☃") // pieces are joined, and characters stay whole
	if _, got := b.call(t, "GET", path, ""); got != `{"output":[{"stream":"stdout","data":"snow ☃","encoding":"utf-8","cursor":8}],"cursor":8}` {
		t.Error(got)
	}
	if _, got := b.call(t, "GET", path+"?cursor=8", ""); got != `{"output":[],"cursor":8}` {
		t.Error(got)
	}
}

func TestLongLogsComeInParts(t *testing.T) {
	t.Parallel()
	b, path := logsOf(t, strings.Repeat("x", 5<<20))
	var body struct {
		Output []struct{ Data string }
		Cursor int64
	}
	_, got := b.call(t, "GET", path, "")
	if err := json.Unmarshal([]byte(got), &body); err != nil || body.Cursor != 4<<20 || len(body.Output[0].Data) != 4<<20 {
		t.Fatalf("to %d, %v", body.Cursor, err)
	}
}

func TestLogsAreResumed(t *testing.T) {
	t.Parallel()
	b, path := logsOf(t, "abc")
	_, got := b.call(t, "GET", path+"?cursor=0", "", "Accept", "text/event-stream", "Last-Event-ID", "2")
	want := "id: 3\nevent: stdout\ndata: {\"stream\":\"stdout\",\"data\":\"c\",\"encoding\":\"utf-8\",\"cursor\":3}\n\nid: 3\nevent: end\ndata: {\"cursor\":3}\n\n"
	if got != want {
		t.Error(got)
	}
}

// program is a command that prints until it is stopped.
type program struct {
	started chan struct{}
	stopped chan error // gets the reason
}

func newProgram() *program {
	return &program{started: make(chan struct{}, 3), stopped: make(chan error, 3)}
}

func (p *program) service() *fakeservice.Service {
	return &fakeservice.Service{OnExec: func(ctx context.Context, id string, req hutch.ExecRequest, out func(hutch.Output) error) (hutch.ExecResult, error) {
		p.started <- struct{}{}
		err := p.print(ctx, out)
		p.stopped <- err
		return hutch.ExecResult{}, err
	}}
}

func (p *program) print(ctx context.Context, out func(hutch.Output) error) error {
	if out == nil {
		<-ctx.Done()
		return context.Cause(ctx)
	}
	piece := bytes.Repeat([]byte("x"), 64<<10)
	for cursor := int64(len(piece)); ctx.Err() == nil; cursor += int64(len(piece)) {
		if err := out(hutch.Output{Stream: hutch.Stdout, Data: piece, Cursor: cursor}); err != nil {
			return err
		}
	}
	return context.Cause(ctx)
}

// end waits until the program is stopped.
func (p *program) end(t *testing.T) error {
	t.Helper()
	select {
	case err := <-p.stopped:
		return err
	case <-time.After(10 * time.Second):
		t.Fatal("the command continues")
		return nil
	}
}

// stalled starts a command for a client that does not read.
func stalled(t *testing.T, b *bench, head string) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", b.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	if _, err := io.WriteString(conn, strings.ReplaceAll(head, "\n", "\r\n")); err != nil {
		t.Fatal(err)
	}
	return conn
}

const (
	eventsHead = "POST /v1/sandboxes/s/exec HTTP/1.1\nHost: x\nAccept: text/event-stream\nContent-Length: 17\n\n{\"command\":\"yes\"}"
	wholeHead  = "POST /v1/sandboxes/s/exec HTTP/1.1\nHost: x\nContent-Length: 17\n\n{\"command\":\"yes\"}"
)

func TestStalledClientLosesItsProgram(t *testing.T) {
	t.Parallel()
	p := newProgram()
	b := serve(t, p.service(), rest.Options{Stall: 50 * time.Millisecond})
	stalled(t, b, eventsHead)
	p.end(t)
}

func TestStalledWebSocketLosesItsProgram(t *testing.T) {
	t.Parallel()
	p := newProgram()
	b := serve(t, p.service(), rest.Options{Stall: 50 * time.Millisecond})
	c := dial(t, b)
	if err := c.Write(t.Context(), websocket.MessageText, []byte(`{"command":"yes"}`)); err != nil {
		t.Fatal(err)
	}
	p.end(t)
}

func TestClientThatLeavesKills(t *testing.T) {
	t.Parallel()
	for name, head := range map[string]string{"events": eventsHead, "whole": wholeHead} {
		p := newProgram()
		b := serve(t, p.service(), rest.Options{})
		conn := stalled(t, b, head)
		if name == "events" {
			if _, err := bufio.NewReader(conn).ReadString('\n'); err != nil {
				t.Fatal(err)
			}
		}
		conn.Close()
		p.end(t)
	}
}

func TestCloseEndsWhatRuns(t *testing.T) {
	t.Parallel()
	p := newProgram()
	b := serve(t, p.service(), rest.Options{})
	events := stalled(t, b, eventsHead)
	whole := stalled(t, b, wholeHead)
	c := dial(t, b)
	if err := c.Write(t.Context(), websocket.MessageText, []byte(`{"command":"yes"}`)); err != nil {
		t.Fatal(err)
	}
	go io.Copy(io.Discard, events)
	last := make(chan string)
	go func() { last <- lastText(t.Context(), c) }()
	answer := make(chan int)
	go func() {
		resp, err := http.ReadResponse(bufio.NewReader(whole), nil)
		if err != nil {
			answer <- 0
			return
		}
		answer <- resp.StatusCode
	}()
	for range 3 {
		<-p.started
	}
	b.handler.Close()
	for range 3 {
		if err := p.end(t); !errors.Is(err, hutch.Unavailable) {
			t.Errorf("stopped by %v", err)
		}
	}
	if got := <-answer; got != 503 {
		t.Errorf("status %d", got)
	}
	if got := <-last; !strings.Contains(got, "shutting down") {
		t.Errorf("last message: %s", got)
	}
}

func dial(t *testing.T, b *bench) *websocket.Conn {
	t.Helper()
	c, _, err := websocket.Dial(t.Context(), b.URL+"/v1/sandboxes/s/exec", nil)
	if err != nil {
		t.Fatal(err)
	}
	c.SetReadLimit(-1)
	t.Cleanup(func() { c.CloseNow() })
	return c
}

// lastText returns the last text message before the server closes the connection.
func lastText(ctx context.Context, c *websocket.Conn) (last string) {
	for {
		typ, b, err := c.Read(ctx)
		if err != nil {
			return last
		}
		if typ == websocket.MessageText {
			last = string(b)
		}
	}
}

func TestWebSocketThatBreaksTheRules(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		send []string // messages: the first, and those that begin with {, are text
		says string
	}{
		"not JSON":      {[]string{"hello"}, "JSON"},
		"unknown field": {[]string{`{"command":"x","colour":1}`}, "colour"},
		"two inputs":    {[]string{`{"command":"x","stdin":"a","openStdin":true}`}, "stdin"},
		"stdin unasked": {[]string{`{"command":"x"}`, "data"}, "openStdin"},
		"too much":      {[]string{`{"command":"x","openStdin":true}`, strings.Repeat("x", 256<<10+1)}, "openStdin"},
		"behind eof":    {[]string{`{"command":"x","openStdin":true}`, `{"eof":true}`, "more"}, "openStdin"},
		"odd control":   {[]string{`{"command":"x"}`, `{"pause":true}`}, "pause"},
		"cancel":        {[]string{`{"command":"x"}`, `{"cancel":true}`}, "cancelled"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := serve(t, newProgram().service(), rest.Options{})
			c := dial(t, b)
			for i, m := range test.send {
				typ := websocket.MessageBinary
				if i == 0 || m[0] == '{' {
					typ = websocket.MessageText
				}
				if err := c.Write(t.Context(), typ, []byte(m)); err != nil {
					t.Fatal(err)
				}
			}
			if got := lastText(t.Context(), c); !strings.Contains(got, test.says) {
				t.Errorf("%s", got)
			}
		})
	}
}

func TestOtherOriginsGetNoWebSocket(t *testing.T) {
	t.Parallel()
	b := serve(t, &fakeservice.Service{}, rest.Options{})
	_, resp, err := websocket.Dial(t.Context(), b.URL+"/v1/sandboxes/s/exec", &websocket.DialOptions{
		HTTPHeader: http.Header{"Origin": {"https://evil.example"}},
	})
	if err == nil || resp.StatusCode != http.StatusForbidden {
		t.Errorf("%v, %v", resp, err)
	}
}

// A page of an allowed origin opens a WebSocket with a subprotocol, which the server selects. The answer does not
// repeat a token that is sent in a subprotocol.
func TestPagesOpenWebSockets(t *testing.T) {
	t.Parallel()
	b := serve(t, &fakeservice.Service{}, rest.Options{Origins: []string{"https://app.example", "http://[::1]:8080"}})
	for _, origin := range []string{"https://app.example", "http://[::1]:8080"} {
		c, _, err := websocket.Dial(t.Context(), b.URL+"/v1/sandboxes/s/exec", &websocket.DialOptions{
			HTTPHeader: http.Header{"Origin": {origin}}, Subprotocols: []string{"hutch", "hutch.token.x"},
		})
		if err != nil {
			t.Fatalf("%s: %v", origin, err)
		}
		if got := c.Subprotocol(); got != "hutch" {
			t.Errorf("%s: the subprotocol is %q", origin, got)
		}
		c.CloseNow()
	}
}

func TestCausesAreLoggedAndNotTold(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	b := serve(t, twoPieces(errors.New("open /secret/path")), rest.Options{Log: slog.New(slog.NewTextHandler(&log, nil))})
	if _, got := b.call(t, "POST", "/v1/sandboxes/s/exec", `{"command":"x"}`); strings.Contains(got, "secret") || !strings.Contains(got, `"status":500`) {
		t.Error(got)
	}
	if b.handler.Close(); !strings.Contains(log.String(), "secret") {
		t.Errorf("logged: %s", log.String())
	}
}

func TestMain(m *testing.M) {
	before := runtime.NumGoroutine()
	code := m.Run()
	http.DefaultClient.CloseIdleConnections()
	tick := time.NewTicker(10 * time.Millisecond)
	for limit := time.Now().Add(5 * time.Second); runtime.NumGoroutine() > before && code == 0; <-tick.C {
		if time.Now().After(limit) {
			pprof.Lookup("goroutine").WriteTo(os.Stderr, 1)
			code = 1
		}
	}
	os.Exit(code)
}
