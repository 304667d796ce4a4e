package rest_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"hutch"
	"hutch/internal/fakeservice"
	"hutch/internal/rest"
)

// typing returns a service with a process "x" in the sandbox "s", which prints text and then runs until end is
// closed.
func typing(t *testing.T, text string, end <-chan struct{}) (*bench, *fakeservice.Service, string) {
	t.Helper()
	svc := &fakeservice.Service{OnLogs: func(ctx context.Context, req hutch.LogsRequest, out func(hutch.Output) error) (int64, error) {
		if req.Cursor < int64(len(text)) {
			if err := out(hutch.Output{Stream: hutch.Stdout, Data: []byte(text[req.Cursor:]), Cursor: int64(len(text))}); err != nil {
				return req.Cursor, err
			}
		}
		if !req.Follow {
			return int64(len(text)), nil
		}
		select {
		case <-end:
			return int64(len(text)), nil
		case <-ctx.Done():
			return int64(len(text)), context.Cause(ctx)
		}
	}}
	b := serve(t, svc, rest.Options{})
	p, err := svc.StartProcess(t.Context(), "s", hutch.ProcessRequest{Command: "x", Terminal: &hutch.Size{Columns: 80, Rows: 24}})
	if err != nil {
		t.Fatal(err)
	}
	return b, svc, "/v1/sandboxes/s/processes/" + p.ID
}

func dialTerminal(t *testing.T, b *bench, path string) *websocket.Conn {
	t.Helper()
	c, _, err := websocket.Dial(t.Context(), b.URL+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.CloseNow() })
	return c
}

// screen reads a message: output bytes or a text.
func screen(t *testing.T, c *websocket.Conn) (output string, text map[string]any) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	typ, b, err := c.Read(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if typ == websocket.MessageBinary {
		return string(b), nil
	}
	if err := json.Unmarshal(b, &text); err != nil {
		t.Fatal(err)
	}
	return "", text
}

func TestTerminalSocket(t *testing.T) {
	t.Parallel()
	end := make(chan struct{})
	b, svc, path := typing(t, "hello \xff", end)
	for _, tt := range []struct {
		query, want string
		cursor      float64
	}{{"", "hello \xff", 0}, {"?cursor=3", "lo \xff", 3}} {
		c := dialTerminal(t, b, path+"/terminal"+tt.query)
		if _, text := screen(t, c); text["cursor"] != tt.cursor || text["replayed"] != 7.0 {
			t.Errorf("%s: begins with %v", tt.query, text)
		}
		if got, _ := screen(t, c); got != tt.want {
			t.Errorf("%s: %q", tt.query, got)
		}
	}
	c := dialTerminal(t, b, path+"/terminal?cursor=7")
	c.Write(t.Context(), websocket.MessageText, []byte(`{"columns":100,"rows":40}`))
	c.Write(t.Context(), websocket.MessageBinary, []byte("keys\x03"))
	id := path[strings.LastIndex(path, "/")+1:]
	for limit := time.Now().Add(10 * time.Second); svc.Written(id) != "keys\x03"; time.Sleep(time.Millisecond) {
		if time.Now().After(limit) {
			t.Fatalf("written: %q", svc.Written(id))
		}
	}
	if p, err := svc.Process(t.Context(), "s", id); err != nil || *p.Terminal != (hutch.Size{Columns: 100, Rows: 40}) {
		t.Errorf("%+v, %v", p, err)
	}
	close(end)
	_, text := screen(t, c)
	if exit, _ := text["exit"].(map[string]any); exit["processId"] != id || text["cursor"] != 7.0 {
		t.Errorf("the last message: %v", text)
	}
	if _, _, err := c.Read(t.Context()); websocket.CloseStatus(err) != websocket.StatusNormalClosure {
		t.Errorf("%v", err)
	}
}

func TestTerminalSocketRefusals(t *testing.T) {
	t.Parallel()
	end := make(chan struct{})
	defer close(end)
	b, _, path := typing(t, "", end)
	c := dialTerminal(t, b, path+"/terminal")
	c.Write(t.Context(), websocket.MessageText, []byte(`{"columns":0,"rows":1}`))
	if _, text := screen(t, c); text["inputError"] == nil {
		t.Errorf("a bad size: %v", text)
	}
	c.Write(t.Context(), websocket.MessageText, []byte(`nonsense`))
	if _, text := screen(t, c); text["error"] == nil {
		t.Errorf("no JSON: %v", text)
	}
	for what, want := range map[string]int{"/terminal": 400, "/terminal?cursor=x": 400, "/terminal?what=x": 400,
		"/terminal?window=1": 400, "/terminal?window=x": 400, "/terminal?window=99999999999": 400, "/terminal?catchUp=true": 400} {
		if resp, body := b.call(t, "GET", path+what, ""); resp.StatusCode != want {
			t.Errorf("%s: %d %s", what, resp.StatusCode, body)
		}
	}
	if _, resp, err := websocket.Dial(t.Context(), b.URL+"/v1/sandboxes/s/processes/p-none/terminal", nil); err == nil || resp.StatusCode != 404 {
		t.Errorf("no process: %v", err)
	}
}

func TestProcessControl(t *testing.T) {
	t.Parallel()
	end := make(chan struct{})
	defer close(end)
	b, svc, path := typing(t, "", end)
	id := path[strings.LastIndex(path, "/")+1:]
	for _, tt := range []struct {
		method, path, body string
		status             int
		says               string
	}{
		{"POST", path + "/input?end=true", "\xff\x00raw", 204, ""},
		{"POST", path + "/input?end=maybe", "x", 400, "true or false"},
		{"POST", path + "/input", strings.Repeat("x", 9<<20), 413, "larger than"},
		{"POST", path + "/resize", `{"columns":90,"rows":30}`, 204, ""},
		{"POST", path + "/resize", `{"columns":90}`, 400, "rows"},
		{"POST", path + "/resize", `{"cols":90}`, 400, "cols"},
		{"POST", path + "/wait", `{"port":80}`, 200, `"met":true`},
		{"POST", path + "/wait", ``, 200, id},
		{"POST", path + "x/wait", `{}`, 404, "no process"},
		{"GET", path + "/wait", ``, 405, "POST"},
		{"DELETE", "/v1/sandboxes/s/processes", "", 200, `{"removed":0}`},
		{"GET", "/v1/sandboxes/s/languages", "", 200, `"version":"5.2"`},
		{"GET", "/v1/sandboxes/none/languages", "", 404, "none"},
	} {
		if resp, body := b.call(t, tt.method, tt.path, tt.body); resp.StatusCode != tt.status || !strings.Contains(body, tt.says) {
			t.Errorf("%s %s %.30q: %d %s", tt.method, tt.path, tt.body, resp.StatusCode, body)
		}
	}
	if got := svc.Written(id); got != "\xff\x00raw" {
		t.Errorf("written: %q", got)
	}
}

func TestLogSocket(t *testing.T) {
	t.Parallel()
	end := make(chan struct{})
	b, _, path := typing(t, "hello \xff", end)
	c := dialTerminal(t, b, path+"/logs?cursor=3&follow=true")
	if got, _ := screen(t, c); got != "\x01\x00\x00\x00\x00\x00\x00\x00\x07lo \xff" {
		t.Errorf("output is %q", got)
	}
	close(end)
	if _, text := screen(t, c); fmt.Sprint(text) != "map[end:map[cursor:7]]" {
		t.Errorf("ends with %v", text)
	}
	if _, _, err := c.Read(t.Context()); websocket.CloseStatus(err) != websocket.StatusNormalClosure {
		t.Errorf("then %v", err)
	}
}

func TestLogSocketIsForReading(t *testing.T) {
	t.Parallel()
	b, _, path := typing(t, "hello", make(chan struct{}))
	c := dialTerminal(t, b, path+"/logs?follow=true")
	screen(t, c)
	if err := c.Write(t.Context(), websocket.MessageText, []byte("x")); err != nil {
		t.Fatal(err)
	}
	if _, text := screen(t, c); text["error"] == nil {
		t.Errorf("ends with %v", text)
	}
}

func TestRecording(t *testing.T) {
	t.Parallel()
	b, svc, path := typing(t, "hello \xff", nil)
	resp, body := b.call(t, "GET", path+"/recording", "")
	lines := strings.Split(body, "\n")
	if resp.StatusCode != 200 || resp.Header.Get("Content-Type") != "application/x-asciicast" || len(lines) != 3 || !strings.Contains(lines[0], `"width":80`) || !strings.HasSuffix(lines[1], `,"o","hello `+"\uFFFD"+`"]`) {
		t.Errorf("%d %v %q", resp.StatusCode, resp.Header, body)
	}
	if !strings.HasPrefix(resp.Header.Get("Content-Disposition"), "attachment") {
		t.Error("a browser shows it")
	}
	plain, err := svc.StartProcess(t.Context(), "s", hutch.ProcessRequest{Command: "x"})
	if err != nil {
		t.Fatal(err)
	}
	for what, want := range map[string]int{path + "/recording?from=1": 400, path + "x/recording": 404, "/v1/sandboxes/s/processes/" + plain.ID + "/recording": 422} {
		if resp, body := b.call(t, "GET", what, ""); resp.StatusCode != want || resp.Header.Get("Content-Disposition") != "" {
			t.Errorf("%s: %d %s", what, resp.StatusCode, body)
		}
	}
	svc.OnLogs = func(_ context.Context, _ hutch.LogsRequest, out func(hutch.Output) error) (int64, error) {
		for range 8 { // more output than the server buffers before it sends
			out(hutch.Output{Stream: hutch.Stdout, Data: make([]byte, 16<<10)})
		}
		return 0, hutch.Errorf(hutch.Unavailable, "gone")
	}
	req, _ := http.NewRequestWithContext(t.Context(), "GET", b.URL+path+"/recording", nil)
	resp, err = b.Client().Do(req)
	if err == nil {
		_, err = io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
	}
	if err == nil {
		t.Error("a recording that broke off looks whole")
	}
}
