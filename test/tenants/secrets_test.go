package tenants

import (
	"context"
	"encoding/base64"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"hutch"
)

// TestNoSurfaceTells prints a secret in every way in which MCP and terminals can show something. The output has the
// secret's name instead.
func TestNoSurfaceTells(t *testing.T) {
	t.Parallel()
	h := open(t)
	ada := h.tenant(t, hutch.TokenRequest{Name: "ada"})
	const value, marker = "sk-which-nobody-may-read", "[redacted:KEY]"
	ada.want(t, "PUT", "/v1/secrets/KEY", `{"value":"`+value+`"}`)
	ada.want(t, "POST", "/v1/sandboxes", `{"sandboxId":"box"}`)
	encoded := base64.StdEncoding.EncodeToString([]byte("x" + value))[4:20]
	check := func(what, said string) {
		t.Helper()
		if strings.Contains(said, value) || strings.Contains(said, encoded) || !strings.Contains(said, marker) {
			t.Errorf("%s: %s", what, said)
		}
	}

	use := func(more map[string]any) map[string]any {
		args := map[string]any{"sandboxId": "box", "secrets": []string{"KEY"}}
		for k, v := range more {
			args[k] = v
		}
		return args
	}
	for what, args := range map[string]map[string]any{
		"output":  use(map[string]any{"command": `echo "$KEY"; echo "$KEY" >&2; printf x%s "$KEY" | base64`}),
		"session": use(map[string]any{"command": `printf "%s" "${KEY:0:9}"; sleep 0.05; printf "%s\n" "${KEY:9}"`, "sessionId": "s"}),
		"timeout": use(map[string]any{"command": `echo "$KEY"; exec sleep 60`, "timeout": 1}),
		"cwd":     use(map[string]any{"command": `cat "$KEY"`}),
	} {
		check("MCP, "+what, ada.call(t, "exec", args).body)
		check("MCP, older, "+what, ada.callOlder(t, "exec", args))
	}

	// A secret that is typed at a prompt of a terminal and printed is masked, in whatever pieces it comes.
	start := ada.want(t, "POST", "/v1/sandboxes/box/processes", `{"command":"stty -echo; echo ready; read line; eval \"$line\"; echo end","secrets":["KEY"],"terminal":{"columns":200,"rows":24}}`)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	conn, _, err := websocket.Dial(ctx, h.URL+"/v1/sandboxes/box/processes/"+start["processId"].(string)+"/terminal", &websocket.DialOptions{HTTPHeader: http.Header{"Authorization": {"Bearer " + ada.Secret}}})
	must(t, err)
	defer conn.CloseNow()
	var screen string
	for typed := false; !strings.Contains(screen, "end\r\n"); {
		kind, b, err := conn.Read(ctx)
		if err != nil {
			t.Fatalf("%v after %q", err, screen)
		}
		if kind == websocket.MessageBinary {
			screen += string(b)
		}
		if strings.Contains(screen, "ready") && !typed {
			typed = true
			must(t, conn.Write(ctx, websocket.MessageBinary, []byte("printf '\\033[1m%s' \"$KEY\"; printf x%s \"$KEY\" | base64\n")))
		}
	}
	check("terminal", screen)
	check("its log", ada.ask(t, "GET", "/v1/sandboxes/box/processes/"+start["processId"].(string)+"/logs", "").body)
}

// callOlder calls a tool in a session of an older revision, and asks for
// progress.
func (who *tenant) callOlder(t testing.TB, tool string, args map[string]any) string {
	t.Helper()
	header := []string{"Content-Type", "application/json", "Accept", "application/json, text/event-stream"}
	session := who.ask(t, "POST", "/mcp", `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"x","version":"1"}}}`, header...).header.Get("Mcp-Session-Id")
	header = append(header, "Mcp-Session-Id", session, "MCP-Protocol-Version", "2025-11-25")
	who.ask(t, "POST", "/mcp", `{"jsonrpc":"2.0","method":"notifications/initialized"}`, header...)
	a := who.ask(t, "POST", "/mcp", message(t, map[string]any{"name": tool, "arguments": args, "_meta": map[string]any{"progressToken": "p"}}), header...)
	if !strings.Contains(a.body, "notifications/progress") {
		t.Errorf("no progress: %s", a.body)
	}
	return a.body
}
