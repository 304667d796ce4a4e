package mcp_test

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"hutch"
	"hutch/internal/fakeservice"
	"hutch/internal/mcp"
)

const (
	initialize = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"raw","version":"1"}}}`
	meta       = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}`
)

func modernCall(command string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"exec","arguments":{"command":%q},%s}}`, command, meta)
}

var modernHeaders = []string{"MCP-Protocol-Version", modern, "Mcp-Method", "tools/call", "Mcp-Name", "exec"}

func TestStreamsAreNotBuffered(t *testing.T) {
	t.Parallel()
	_, url := serve(t, &fakeservice.Service{}, mcp.Options{})
	for what, h := range map[string][2]any{
		older: {initialize, []string(nil)}, modern: {modernCall("x"), modernHeaders},
	} {
		status, header, msg := post(t, url, h[0].(string), h[1].([]string)...)
		if status != 200 || header.Get("X-Accel-Buffering") != "no" || msg["result"] == nil {
			t.Errorf("%s: %d %v %v", what, status, header, msg)
		}
	}
}

func TestBodyTooLarge(t *testing.T) {
	t.Parallel()
	_, url := serve(t, &fakeservice.Service{}, mcp.Options{MaxBody: 1000})
	for _, version := range eras {
		status, _, msg := post(t, url, modernCall(strings.Repeat("x", 2000)), "MCP-Protocol-Version", version)
		e, _ := msg["error"].(map[string]any)
		if status != http.StatusRequestEntityTooLarge || e["code"] != -32600.0 {
			t.Errorf("%s: %d %v", version, status, msg)
		}
	}
}

func TestLargeCommandIsTaken(t *testing.T) {
	inBothEras(t, func(t *testing.T, era string) {
		ss := connect(t, &fakeservice.Service{OnExec: printing("ok", "")}, era)
		do(t, ss, "exec", map[string]any{"command": strings.Repeat("x", 10<<20)})
	})
}

func TestModernProtocolErrors(t *testing.T) {
	t.Parallel()
	_, url := serve(t, &fakeservice.Service{}, mcp.Options{})
	for _, c := range []struct {
		name, body string
		header     []string
		status     int
		code       float64
	}{
		{"unknown method", `{"jsonrpc":"2.0","id":1,"method":"nope","params":{` + meta + `}}`, []string{"MCP-Protocol-Version", modern, "Mcp-Method", "nope"}, 404, -32601},
		{"header mismatch", modernCall("x"), []string{"MCP-Protocol-Version", modern, "Mcp-Method", "tools/list"}, 400, -32020},
		{"unknown tool", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"nope",` + meta + `}}`, []string{"MCP-Protocol-Version", modern, "Mcp-Method", "tools/call", "Mcp-Name", "nope"}, 400, -32602},
	} {
		status, _, msg := post(t, url, c.body, c.header...)
		e, _ := msg["error"].(map[string]any)
		if status != c.status || e["code"] != c.code {
			t.Errorf("%s: %d %v, want %d and %v", c.name, status, msg, c.status, c.code)
		}
		if why, _ := e["message"].(string); c.name == "unknown tool" && !strings.Contains(why, "use computer, destroySandbox") {
			t.Errorf("%q does not name the tools that exist", why)
		}
	}
	req, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	req.Header.Set("MCP-Protocol-Version", modern)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusMethodNotAllowed {
		t.Errorf("GET in the modern era: %s", resp.Status)
	}
}

func TestUnknownSessionIsGone(t *testing.T) {
	t.Parallel()
	_, url := serve(t, &fakeservice.Service{}, mcp.Options{})
	req, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"tools/list"}`))
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	req.Header.Set("Mcp-Session-Id", "never-was")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusNotFound { // this status makes the client begin a new session
		t.Errorf("status %s", resp.Status)
	}
}

// TestSilentStreamIsKeptAlive reads comments from a stream whose command prints nothing.
func TestSilentStreamIsKeptAlive(t *testing.T) {
	t.Parallel()
	started, killed := make(chan struct{}, 1), make(chan struct{}, 1)
	_, url := serve(t, &fakeservice.Service{OnExec: hanging(started, killed)}, mcp.Options{KeepAlive: 5 * time.Millisecond})
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	req, _ := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(modernCall("x")))
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	for i := 0; i < len(modernHeaders); i += 2 {
		req.Header.Set(modernHeaders[i], modernHeaders[i+1])
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	lines := bufio.NewScanner(resp.Body)
	for comments := 0; comments < 3; {
		if !lines.Scan() {
			t.Fatalf("the stream ended: %v", lines.Err())
		}
		if strings.HasPrefix(lines.Text(), ":") {
			comments++
		}
	}
	cancel()
	within(t, killed, "hanging up kills the command")
}

// TestManyCallers lets 64 callers use one server at once, and checks that no caller gets the answer of another one.
func TestManyCallers(t *testing.T) {
	inBothEras(t, func(t *testing.T, era string) {
		svc := &fakeservice.Service{}
		_, url := serve(t, svc, mcp.Options{})
		var callers sync.WaitGroup
		for i := range 64 {
			ss := dial(t, url, era, nil)
			callers.Go(func() {
				for j := range 10 {
					word := fmt.Sprintf("caller %d call %d", i, j)
					res := do(t, ss, "exec", map[string]any{"command": word})
					var got execResult
					if fill(t, res, &got); got.Stdout != word+"\n" {
						t.Errorf("%q got %q", word, got.Stdout)
					}
				}
			})
		}
		callers.Wait()
		if n := len(svc.Created()); n != 640 {
			t.Errorf("%d sandboxes made, want 640", n)
		}
	})
}

func BenchmarkExec(b *testing.B) {
	for _, era := range eras {
		for _, callers := range []int{1, 16} {
			b.Run(fmt.Sprintf("%s/callers=%d", era, callers), func(b *testing.B) {
				svc := &fakeservice.Service{}
				svc.Create(b.Context(), hutch.CreateRequest{ID: "bench"})
				_, url := serve(b, svc, mcp.Options{})
				b.ReportAllocs()
				b.SetParallelism(callers) // times GOMAXPROCS
				b.RunParallel(func(pb *testing.PB) {
					ss := dial(b, url, era, nil)
					for pb.Next() {
						if err := callWith(b.Context(), ss, map[string]any{"command": "x", "sandboxId": "bench"}); err != nil {
							b.Error(err)
						}
					}
				})
				b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "calls/s")
			})
		}
	}
}
