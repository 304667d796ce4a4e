package mcp_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"hutch"
	"hutch/internal/fakeservice"
	"hutch/internal/mcp"
)

// postBare sends a body as clients of existing deployments do, and returns the raw answer.
func postBare(t testing.TB, url, body string, header http.Header) (*http.Response, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if req.Header = header; header == nil {
		req.Header = http.Header{"Content-Type": {"application/json"}}
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, string(b)
}

// TestBareRequests: the answer to JSON-RPC without a handshake is one JSON value, whatever the headers say.
func TestBareRequests(t *testing.T) {
	t.Parallel()
	svc := &fakeservice.Service{OnExec: printing("hello\n", "")}
	svc.Create(t.Context(), hutch.CreateRequest{ID: "box"})
	_, url := serve(t, svc, mcp.Options{})
	for _, c := range []struct {
		name, body string
		status     int
		want       string
	}{
		{"list", `{"jsonrpc":"2.0","method":"tools/list","id":1}`, 200, `"name":"exec"`},
		{"list, with parameters", `{"jsonrpc":"2.0","method":"tools/list","id":1,"params":{}}`, 200, `"name":"exec"`},
		{"call", `{"jsonrpc":"2.0","id":"1","method":"tools/call","params":{"name":"exec","arguments":{"sandboxId":"box","command":"x"}}}`, 200, `"stdout":"hello\n"`},
		{"call, with progress", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"exec","arguments":{"sandboxId":"box","command":"x"},"_meta":{"progressToken":7}}}`, 200, `"stdout":"hello\n"`},
		{"ping", `{"jsonrpc":"2.0","id":1,"method":"ping"}`, 200, `"result":{}`},
		{"notification", `{"jsonrpc":"2.0","method":"notifications/initialized"}`, 202, ""},
		{"no such sandbox", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"exec","arguments":{"sandboxId":"none","command":"x"}}}`, 200, `"code":-32001`},
		{"no command", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"exec","arguments":{}}}`, 200, `"code":-32004`},
		{"no such tool", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"none","arguments":{}}}`, 200, `"code":-32602`},
		{"no such method", `{"jsonrpc":"2.0","id":1,"method":"nope"}`, 200, `"code":-32601`},
		{"undeclared", `{"jsonrpc":"2.0","id":1,"method":"prompts/list"}`, 200, `"code":-32601`},
		{"no method", `{"jsonrpc":"2.0","id":1}`, 400, `"code":-32600`},
		{"no id", `{"jsonrpc":"2.0","method":"tools/list"}`, 400, `"code":-32600`},
		{"null id", `{"jsonrpc":"2.0","id":null,"method":"tools/list"}`, 400, `"code":-32600`},
		{"wrong version", `{"jsonrpc":"1.0","id":1,"method":"tools/list"}`, 400, `"code":-32600`},
		{"batch", ` [{"jsonrpc":"2.0","id":1,"method":"tools/list"}]`, 400, `"code":-32600`},
		{"number", `7`, 400, `"code":-32600`},
		{"empty", ``, 400, `"code":-32600`},
		{"not JSON", `{`, 400, `"code":-32700`},
	} {
		for accept, header := range map[string]http.Header{
			"none": {"Content-Type": {"application/json"}}, "any": {"Content-Type": {"application/json"}, "Accept": {"*/*"}},
			"JSON": {"Accept": {"application/json"}}, "form": {"Content-Type": {"application/x-www-form-urlencoded"}},
		} {
			resp, body := postBare(t, url, c.body, header)
			if resp.StatusCode != c.status || !strings.Contains(body, c.want) {
				t.Errorf("%s, Accept %s: %s %s", c.name, accept, resp.Status, body)
			}
			if c.status == 202 {
				continue
			}
			if kind := resp.Header.Get("Content-Type"); !json.Valid([]byte(body)) || kind != "application/json" {
				t.Errorf("%s, Accept %s: %s %s", c.name, accept, kind, body)
			}
		}
	}
}

// TestBareRefusal: a bare client gets the status of the refusal. An MCP client does not, because it would mistake the
// status for a broken connection.
func TestBareRefusal(t *testing.T) {
	t.Parallel()
	over := hutch.Errorf(hutch.Exhausted, "enough").With("limit", "requestsPerMinute").With("retryAfter", 7)
	const call = `{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{"name":"exec"}}`
	for version, want := range map[string]int{"": http.StatusTooManyRequests, older: http.StatusOK} {
		r := httptest.NewRequest(http.MethodPost, "http://localhost/mcp", strings.NewReader(call))
		r.Header.Set("MCP-Protocol-Version", version)
		w := httptest.NewRecorder()
		mcp.Refuse(w, r, over)
		if body := w.Body.String(); w.Code != want || w.Header().Get("Retry-After") != "7" || !strings.Contains(body, `"code":-32003`) || !strings.Contains(body, `"id":5`) {
			t.Errorf("revision %q: %d %v %s", version, w.Code, w.Header(), body)
		}
	}
}

// TestBareEnvelope: a message of the modern era without its header is answered by the rules of the modern era.
func TestBareEnvelope(t *testing.T) {
	t.Parallel()
	_, url := serve(t, &fakeservice.Service{}, mcp.Options{})
	if status, _, msg := post(t, url, modernCall("x")); status != 400 || msg["error"].(map[string]any)["code"] == -32600.0 {
		t.Errorf("%d %v", status, msg)
	}
}

// TestBareCall: hanging up cancels a call. The answer to a long silent call is still one JSON value.
func TestBareCall(t *testing.T) {
	t.Parallel()
	started, killed := make(chan struct{}, 1), make(chan struct{}, 1)
	_, url := serve(t, &fakeservice.Service{OnExec: hanging(started, killed)}, mcp.Options{KeepAlive: time.Millisecond})
	ctx, cancel := context.WithCancel(t.Context())
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"exec","arguments":{"command":"x"}}}`))
	if err != nil {
		t.Fatal(err)
	}
	go func() { <-started; cancel() }()
	if resp, err := http.DefaultClient.Do(req); err == nil {
		resp.Body.Close()
		t.Errorf("an answer before its end: %s", resp.Status)
	}
	within(t, killed, "hanging up kills the command")
}

// TestNoMethod: a message without a method is refused in every era. It used to be mistaken for an answer.
func TestNoMethod(t *testing.T) {
	t.Parallel()
	_, url := serve(t, &fakeservice.Service{}, mcp.Options{})
	for _, era := range eras {
		status, _, msg := post(t, url, `{"jsonrpc":"2.0","id":3}`, "MCP-Protocol-Version", era)
		e, _ := msg["error"].(map[string]any)
		if status != 400 || e["code"] != -32600.0 || msg["id"] != 3.0 {
			t.Errorf("%s: %d %v", era, status, msg)
		}
	}
}

// TestUndeclared: this server answers methods that server/discover and initialize do not declare as unknown.
func TestUndeclared(t *testing.T) {
	inBothEras(t, func(t *testing.T, era string) {
		ss := connect(t, &fakeservice.Service{}, era)
		for _, method := range []string{"prompts/list", "resources/list", "resources/templates/list", "completion/complete"} {
			body := `{"jsonrpc":"2.0","id":3,"method":"` + method + `","params":{"ref":{"type":"ref/prompt","name":"x"},"argument":{"name":"x","value":""}`
			header := []string{"MCP-Protocol-Version", era, "Mcp-Method", method}
			if era == modern {
				body += "," + meta
			} else {
				header = append(header, "Mcp-Session-Id", ss.ID())
			}
			_, _, msg := post(t, ss.url, body+"}}", header...)
			if e, _ := msg["error"].(map[string]any); e["code"] != -32601.0 {
				t.Errorf("%s: %v", method, msg)
			}
		}
	})
}
