package coding_test

import (
	"encoding/json"
	"net/http/httptest"
	"strings"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"hutch"
	"hutch/internal/coding"
	"hutch/internal/hutchtest"
	"hutch/internal/mcp"
)

// TestOverMCP: the tool follows a session, and reports errors in its arguments.
func TestOverMCP(t *testing.T) {
	t.Parallel()
	svc := cloning{service{Service: hutchtest.Engine(t, "native", nil)}}
	h := mcp.NewHandler(svc, mcp.Options{Agents: svc})
	srv := httptest.NewServer(h)
	t.Cleanup(func() { h.Close(t.Context()); srv.Close() })
	const era = "2026-07-28"
	c, err := sdk.NewClient(&sdk.Implementation{Name: "test", Version: "1"}, nil).Connect(t.Context(),
		&sdk.StreamableClientTransport{Endpoint: srv.URL, DisableStandaloneSSE: true}, &sdk.ClientSessionOptions{ProtocolVersion: era})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	ask := func(args map[string]any) (string, *sdk.CallToolResult) {
		t.Helper()
		res, err := c.CallTool(t.Context(), &sdk.CallToolParams{Name: "runAgent", Arguments: args})
		if err != nil {
			t.Fatal(err)
		}
		return res.Content[0].(*sdk.TextContent).Text, res
	}
	s, err := coding.Open(t.Context(), svc, scripted(t), hutch.CreateRequest{}, coding.Repository{GitCloneRequest: hutch.GitCloneRequest{URL: "https://example.com/x.git"}})
	if err != nil {
		t.Fatal(err)
	}
	prompt(t, s, "echo two >>a; head -c 100000 /dev/zero | tr '\\0' 'x\\n' | fold -w 50 >b", nil)
	text, res := ask(map[string]any{"sandboxId": s.ID})
	var ran struct {
		Success, Truncated bool
		Diff               string
		Files              int
	}
	b, err := json.Marshal(res.StructuredContent)
	if err == nil {
		err = json.Unmarshal(b, &ran)
	}
	if err != nil || res.IsError || !ran.Success || !ran.Truncated || ran.Files != 2 || !strings.Contains(ran.Diff, "+two\n") || len(ran.Diff) > 30_000 || !strings.HasPrefix(text, "done · session "+s.ID) {
		t.Errorf("%v: %+.300v, %.300s", err, ran, text)
	}
	for _, wrong := range []struct {
		args map[string]any
		word string
	}{
		{nil, "repository"},
		{map[string]any{"prompt": "x"}, "repository"},
		{map[string]any{"repository": "https://example.com/x.git"}, "prompt"},
		{map[string]any{"repository": "https://example.com/x.git", "sandboxId": s.ID, "prompt": "x"}, "sandboxId"},
		{map[string]any{"repository": "--x", "prompt": "x"}, "url"},
		{map[string]any{"repository": "https://example.com/x.git", "prompt": "x", "agent": "nobody"}, "nobody"},
		{map[string]any{"repository": "https://example.com/x.git", "prompt": "x", "timeout": -1}, "timeout"},
		{map[string]any{"repository": "https://example.com/x.git", "prompt": "x"}, "ANTHROPIC_API_KEY"},
		{map[string]any{"sandboxId": "none"}, "none"},
		{map[string]any{"sandboxId": s.ID, "prompt": "x"}, "definition"},
		{map[string]any{"sandboxId": s.ID, "prompt": "x", "timeout": -1}, "timeout"},
		{map[string]any{"repository": "https://example.com/x.git", "prompt": "x", "tries": 17}, "1 to 16"},
		{map[string]any{"repository": "https://example.com/x.git", "prompt": "x", "tries": -1}, "1 to 16"},
		{map[string]any{"repository": "https://example.com/x.git", "prompt": "x", "tries": 2}, "ANTHROPIC_API_KEY"},
		{map[string]any{"repository": "https://example.com/x.git", "sandboxId": s.ID, "prompt": "x", "tries": 2}, "sandboxId"},
		{map[string]any{"sandboxId": s.ID, "prompt": "x", "tries": 2}, "new session"},
	} {
		if text, res := ask(wrong.args); !res.IsError || !strings.Contains(text, wrong.word) {
			t.Errorf("%v gave %.300s", wrong.args, text)
		}
	}
	if left, err := svc.Sandboxes(t.Context(), hutch.Filter{}); err != nil || len(left) != 1 {
		t.Errorf("%d sandboxes are left, %v", len(left), err)
	}
}
