package mcp_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"hutch"
	"hutch/internal/caller"
	"hutch/internal/fakeservice"
	"hutch/internal/mcp"
)

// TestChallenge: if a person's token lacks a scope, the client learns from the status and the header which scope to ask
// for. A client with a token of Hutch gets the tool's error instead, because no authorization server can add a scope to
// such a token.
func TestChallenge(t *testing.T) {
	t.Parallel()
	svc := &fakeservice.Service{OnExec: func(ctx context.Context, _ string, req hutch.ExecRequest, _ func(hutch.Output) error) (hutch.ExecResult, error) {
		if req.Command == "fine" {
			return hutch.ExecResult{}, nil
		}
		return hutch.ExecResult{}, caller.From(ctx).Principal.Lack("Exec", []hutch.Scope{hutch.ScopeExec})
	}}
	svc.Create(t.Context(), hutch.CreateRequest{ID: "box"})
	h := mcp.NewHandler(svc, mcp.Options{})
	t.Cleanup(func() { h.Close(context.Background()) })
	serveAs := func(who caller.Principal) string {
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			h.ServeHTTP(w, r.WithContext(caller.As(r.Context(), &who)))
		}))
		t.Cleanup(srv.Close)
		return srv.URL
	}
	person := serveAs(caller.Principal{ID: "p", Metadata: "https://hutch.example/.well-known/x"})
	token := serveAs(caller.Principal{ID: "t"})
	exec := func(url, era, command string) (int, string, map[string]any) {
		header := []string{"Authorization", "Bearer x", "MCP-Protocol-Version", era}
		body := strings.Replace(modernCall(command), `"command"`, `"sandboxId":"box","command"`, 1)
		if era >= modern {
			header = append(header, modernHeaders...)
		} else {
			_, first, _ := post(t, url, strings.Replace(initialize, older, era, 1), header[:2]...)
			header = append(header, "Mcp-Session-Id", first.Get("Mcp-Session-Id"))
			post(t, url, `{"jsonrpc":"2.0","method":"notifications/initialized"}`, header...)
			body = strings.Replace(body, ","+meta, "", 1)
		}
		status, answer, msg := post(t, url, body, header...)
		return status, answer.Get("WWW-Authenticate"), msg
	}
	const want = `Bearer realm="hutch", error="insufficient_scope", scope="hutch:exec", resource_metadata="https://hutch.example/.well-known/x"`
	for _, era := range []string{"2025-06-18", older, modern} {
		status, challenge, msg := exec(person, era, "not fine")
		if status != http.StatusForbidden || challenge != want || msg["id"] != 1.0 {
			t.Errorf("%s: a person: %d %s %v", era, status, challenge, msg)
		}
		if status, challenge, msg := exec(person, era, "fine"); status != http.StatusOK || challenge != "" || msg["result"] == nil {
			t.Errorf("%s: a person who may: %d %s %v", era, status, challenge, msg)
		}
		if status, challenge, msg := exec(token, era, "not fine"); status != http.StatusOK || challenge != "" || msg["id"] != 1.0 {
			t.Errorf("%s: a token: %d %s %v", era, status, challenge, msg)
		}
	}
}
