package mcp_test

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"hutch"
	"hutch/internal/fakeservice"
	"hutch/internal/mcp"
)

// sse begins a request and returns the lines of its stream.
func sse(t *testing.T, ctx context.Context, method, url, body string, header ...string) *bufio.Scanner {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { resp.Body.Close() })
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s", method, resp.Status)
	}
	return bufio.NewScanner(resp.Body)
}

// next returns the next value of a field with the given name.
func next(t *testing.T, lines *bufio.Scanner, field string) string {
	t.Helper()
	for lines.Scan() {
		if value, ok := strings.CutPrefix(lines.Text(), field+": "); ok && value != "" {
			return value
		}
	}
	t.Fatalf("the stream ended without another %s: %v", field, lines.Err())
	return ""
}

// TestFirstEventHasNoName reads the first event of a stream, which gives a client its position before the answer comes.
// It must have no name, because clients look for the position only in events without a name or with the name message.
func TestFirstEventHasNoName(t *testing.T) {
	t.Parallel()
	_, url := serve(t, &fakeservice.Service{}, mcp.Options{})
	session := []string{"Mcp-Session-Id", dial(t, url, older, nil).ID(), "MCP-Protocol-Version", older}
	lines := sse(t, t.Context(), http.MethodPost, url, `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`, session...)
	if !lines.Scan() || !strings.HasPrefix(lines.Text(), "id: ") {
		t.Errorf("the stream begins with %q, not with an id", lines.Text())
	}
	next(t, lines, "id") // the id of the answer
}

// TestResume loses the connection during a call and reconnects with Last-Event-ID. The call must have continued, and
// the client must get its answer.
func TestResume(t *testing.T) {
	t.Parallel()
	more := make(chan struct{})
	svc := &fakeservice.Service{OnExec: func(ctx context.Context, id string, req hutch.ExecRequest, out func(hutch.Output) error) (hutch.ExecResult, error) {
		fakeservice.Print(id, req, out, hutch.Stdout, "first\n")
		select {
		case <-more:
		case <-ctx.Done():
		}
		return fakeservice.Print(id, req, out, hutch.Stdout, "last\n")
	}}
	_, url := serve(t, svc, mcp.Options{})
	ss := dial(t, url, older, nil)
	session := []string{"Mcp-Session-Id", ss.ID(), "MCP-Protocol-Version", older}
	ctx, hangUp := context.WithCancel(t.Context())
	lines := sse(t, ctx, http.MethodPost, url,
		`{"jsonrpc":"2.0","id":9,"method":"tools/call","params":{"_meta":{"progressToken":1},"name":"exec","arguments":{"command":"x"}}}`, session...)
	begin := next(t, lines, "id")
	seen := next(t, lines, "id")
	if data := next(t, lines, "data"); !strings.Contains(data, "first") {
		t.Fatalf("progress %s", data)
	}
	hangUp()
	close(more)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	for last, want := range map[string][]string{seen: {`"last\n"`, `"id":9`}, begin: {`"first\n"`, `"last\n"`, `"id":9`}} {
		// The server may not have noticed the loss yet, and answers Conflict until it does.
		var again *bufio.Scanner
		eventually(t, "the stream can be taken up", func() bool { again = resume(t, ctx, url, last, session); return again != nil })
		for _, w := range want {
			if data := next(t, again, "data"); !strings.Contains(data, w) {
				t.Errorf("after %s: %s, want %s", last, data, w)
			}
		}
	}
	if again := resume(t, ctx, url, "nothing_7", session); again != nil {
		t.Error("a stream that never was could be taken up")
	}
}

// TestResumeTakesOver reconnects while the old connection seems alive, as after a network failure without a signal:
// the new connection gets the rest.
func TestResumeTakesOver(t *testing.T) {
	t.Parallel()
	more := make(chan struct{})
	svc := &fakeservice.Service{OnExec: func(ctx context.Context, id string, req hutch.ExecRequest, out func(hutch.Output) error) (hutch.ExecResult, error) {
		fakeservice.Print(id, req, out, hutch.Stdout, "first\n")
		select {
		case <-more:
		case <-ctx.Done():
		}
		return fakeservice.Print(id, req, out, hutch.Stdout, "last\n")
	}}
	_, url := serve(t, svc, mcp.Options{})
	for _, era := range []string{"2025-06-18", older} {
		ss := dial(t, url, era, nil)
		session := []string{"Mcp-Session-Id", ss.ID(), "MCP-Protocol-Version", era}
		lines := sse(t, t.Context(), http.MethodPost, url,
			`{"jsonrpc":"2.0","id":9,"method":"tools/call","params":{"_meta":{"progressToken":1},"name":"exec","arguments":{"command":"x"}}}`, session...)
		seen := next(t, lines, "id")
		for range 2 { // the second connection takes over from the first
			again := resume(t, t.Context(), url, seen, session)
			if again == nil {
				t.Fatalf("%s: the stream could not be taken up", era)
			}
			lines = again
		}
		other := dial(t, url, era, nil)
		if resume(t, t.Context(), url, seen, []string{"Mcp-Session-Id", other.ID(), "MCP-Protocol-Version", era}) != nil {
			t.Errorf("%s: another session took the stream up", era)
		}
		go func() { more <- struct{}{} }()
		for data := ""; !strings.Contains(data, `"id":9`); {
			data = next(t, lines, "data")
		}
	}
}

// resume returns the stream after an event, or nil if the server refuses.
func resume(t *testing.T, ctx context.Context, url, last string, session []string) *bufio.Scanner {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Accept", "text/event-stream")
	req.Header.Set("Last-Event-ID", last)
	for i := 0; i < len(session); i += 2 {
		req.Header.Set(session[i], session[i+1])
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { resp.Body.Close() })
	if resp.StatusCode != http.StatusOK {
		return nil
	}
	return bufio.NewScanner(resp.Body)
}

// TestIdleSessions opens 10,000 sessions: each costs little memory, and all of it is freed when they end.
func TestIdleSessions(t *testing.T) {
	const sessions, mostEach, mostLeft = 10_000, 40 << 10, 16 << 20
	h, url := serve(t, &fakeservice.Service{}, mcp.Options{SessionTimeout: time.Hour})
	before := heap()
	var callers sync.WaitGroup
	for range 10 {
		callers.Go(func() {
			for range sessions / 10 {
				if _, h, _ := post(t, url, initialize); h.Get("Mcp-Session-Id") == "" {
					t.Error("no session")
					return
				}
			}
		})
	}
	callers.Wait()
	each := (heap() - before) / sessions
	t.Logf("an idle session has %d bytes", each)
	if each > mostEach {
		t.Errorf("an idle session has %d bytes, want at most %d", each, mostEach)
	}
	if err := h.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	eventually(t, "nothing is left of the sessions", func() bool { return heap()-before < mostLeft })
}

func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// TestMalformed sends bytes that are not a message, or not one of this protocol, with and without a session. Each is
// refused with a JSON-RPC error or ignored, and the session continues.
func TestMalformed(t *testing.T) {
	t.Parallel()
	_, url := serve(t, &fakeservice.Service{}, mcp.Options{})
	ss := dial(t, url, older, nil)
	deep := strings.Repeat("[", 100_000) + strings.Repeat("]", 100_000)
	for _, c := range []struct {
		name, body string
		codes      []float64 // any of these; empty for no error
	}{
		{"cut short", `{"jsonrpc":"2.0","id":1,"method":"tools/li`, []float64{-32700}},
		{"two messages", `{"jsonrpc":"2.0","id":1,"method":"ping"}{"jsonrpc":"2.0","id":2,"method":"ping"}`, []float64{-32700}},
		{"empty", ``, []float64{-32600, -32700}},
		{"a batch", `[{"jsonrpc":"2.0","id":1,"method":"ping"},{"jsonrpc":"2.0","id":2,"method":"ping"}]`, []float64{-32600}},
		{"an empty batch", `[]`, []float64{-32600}},
		{"a string", `"ping"`, []float64{-32600}},
		{"null", `null`, []float64{-32600}},
		{"another version", `{"jsonrpc":"1.0","id":1,"method":"ping"}`, []float64{-32600}},
		{"no version", `{"id":1,"method":"ping"}`, []float64{-32600}},
		{"method is a number", `{"jsonrpc":"2.0","id":1,"method":7}`, []float64{-32600}},
		{"id is an object", `{"jsonrpc":"2.0","id":{},"method":"ping"}`, []float64{-32600}},
		{"params are a string", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":"x"}`, []float64{-32600, -32602}},
		{"no tool", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{}}`, []float64{-32602, -32600}},
		{"unknown method", `{"jsonrpc":"2.0","id":1,"method":"tools/fly"}`, []float64{-32601}},
		{"a method of the modern era", `{"jsonrpc":"2.0","id":1,"method":"server/discover","params":{}}`, []float64{-32601, -32602, -32600, -32022}},
		{"not UTF-8", "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"\xff\xfe\"}", []float64{-32700, -32600, -32601}},
		{"deep", `{"jsonrpc":"2.0","id":1,"method":"ping","params":` + deep + `}`, []float64{-32700, -32600, -32602}},
	} {
		for _, header := range [][]string{nil, {"Mcp-Session-Id", ss.ID(), "MCP-Protocol-Version", older}, {"MCP-Protocol-Version", modern}} {
			status, _, msg := post(t, url, c.body, header...)
			e, _ := msg["error"].(map[string]any)
			batch := header == nil && strings.HasPrefix(c.body, "[{") // without a header the revision is 2025-03-26, which has batches
			if status >= 500 || status < 300 && e == nil && !batch {
				t.Errorf("%s with %q: %d %v", c.name, header, status, msg)
			}
			if code, _ := e["code"].(float64); len(header) == 4 && !contains(c.codes, code) {
				t.Errorf("%s: %d, code %v, want one of %v: %v", c.name, status, code, c.codes, msg)
			}
		}
	}
	do(t, ss, "getSandbox", nil)
}

func contains(list []float64, v float64) bool {
	for _, w := range list {
		if v == w {
			return true
		}
	}
	return false
}

// TestUnknownVersions asks for revisions that do not exist.
func TestUnknownVersions(t *testing.T) {
	t.Parallel()
	_, url := serve(t, &fakeservice.Service{}, mcp.Options{})
	for _, version := range []string{"1999-01-01", "2025-99-99", "", "x", "2099-01-01"} {
		status, _, msg := post(t, url, strings.Replace(initialize, "2025-11-25", version, 1))
		res, _ := msg["result"].(map[string]any)
		if got, _ := res["protocolVersion"].(string); status != 200 || got < "2024-11-05" || got >= modern {
			t.Errorf("initialize with %q: %d %v", version, status, msg)
		}
	}
	ss := dial(t, url, older, nil)
	for version, want := range map[string]string{"1999-01-01": "", "2099-01-01": "-32022"} {
		status, _, msg := post(t, url, `{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"`+version+`","io.modelcontextprotocol/clientCapabilities":{}}}}`,
			"Mcp-Session-Id", ss.ID(), "MCP-Protocol-Version", version, "Mcp-Method", "tools/list")
		if status != http.StatusBadRequest || !strings.Contains(fmt.Sprint(msg), want) {
			t.Errorf("a call in %q: %d %v", version, status, msg)
		}
	}
}
