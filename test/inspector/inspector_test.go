// Package inspector_test uses the server with the MCP Inspector, the protocol's own debugging client: a program in
// another language that we did not write.
package inspector_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"hutch/internal/conversation"
	"hutch/internal/fakeservice"
	"hutch/internal/guard"
	"hutch/internal/hutchtest/tokens"
	"hutch/internal/mcp"
)

const token = "inspector-test"

// The exit codes of the Inspector.
const (
	exitOK        = 0
	exitError     = 1 // a JSON-RPC error, among others
	exitAuth      = 3
	exitToolError = 5 // a result marked isError
)

// inspect runs the Inspector against a server, in one of the protocol's two eras.
func inspect(t *testing.T, url, era, bearer string, args ...string) (exit int, output string) {
	t.Helper()
	program := filepath.Join("node_modules", ".bin", "mcp-inspector")
	if _, err := os.Stat(program); err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal("the Inspector is not installed: run npm ci in test/inspector")
		}
		t.Skip("the Inspector is not installed: run npm ci in test/inspector")
	}
	config := filepath.Join(t.TempDir(), "inspector.json")
	server := map[string]any{"type": "streamable-http", "url": url, "protocolEra": era, "headers": map[string]string{"Authorization": "Bearer " + bearer}}
	raw, _ := json.Marshal(map[string]any{"mcpServers": map[string]any{"hutch": server}})
	if err := os.WriteFile(config, raw, 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, append([]string{"--cli", "--config", config, "--server", "hutch"}, args...)...)
	cmd.Env = append(os.Environ(), "MCP_INSPECTOR_SECRET_STORE=memory", "HOME="+t.TempDir())
	out, err := cmd.CombinedOutput()
	if _, failed := errors.AsType[*exec.ExitError](err); err != nil && !failed {
		t.Fatalf("inspector: %v\n%s", err, out)
	}
	return cmd.ProcessState.ExitCode(), string(out)
}

// TestInspector lists and calls the tools, with good and bad arguments.
func TestInspector(t *testing.T) {
	t.Parallel()
	for _, era := range []string{"legacy", "modern"} {
		t.Run(era, func(t *testing.T) {
			t.Parallel()
			url := serve(t)
			failed := map[string]int{"legacy": exitError, "modern": exitToolError}[era]
			for _, c := range []struct {
				name, bearer string
				args         []string
				exit         int
				want         string
			}{
				{"list", token, []string{"--method", "tools/list", "--format", "json"}, exitOK, `"sandbox.run_code"`},
				{"schemas fit all hosts", token, []string{"--method", "tools/list", "--strict"}, exitOK, "exec"},
				{"call", token, []string{"--method", "tools/call", "--tool-name", "exec", "--tool-args-json", `{"command":"hello"}`, "--format", "json"}, exitOK, `hello\n`},
				{"failing call", token, []string{"--method", "tools/call", "--tool-name", "exec", "--tool-args-json", `{"command":"x","sandboxId":"gone"}`, "--format", "json"}, failed, "gone"},
				{"no token", "", []string{"--method", "tools/list"}, exitAuth, ""},
			} {
				t.Run(c.name, func(t *testing.T) {
					t.Parallel()
					exit, out := inspect(t, url, era, c.bearer, c.args...)
					if exit != c.exit || !strings.Contains(out, c.want) {
						t.Errorf("exit %d, want %d and %q in:\n%s", exit, c.exit, c.want, out)
					}
				})
			}
		})
	}
}

func serve(t *testing.T) string {
	t.Helper()
	svc := &fakeservice.Service{}
	talks, err := conversation.New(svc, conversation.Options{Folder: t.TempDir(), Secret: []byte("x")})
	if err != nil {
		t.Fatal(err)
	}
	h := mcp.NewHandler(svc, mcp.Options{Conversations: talks})
	mux := http.NewServeMux()
	mux.Handle("/mcp", h)
	srv := httptest.NewServer(guard.New(mux, guard.Options{Check: tokens.Only(token)}))
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := h.Close(ctx); err != nil {
			t.Error(err)
		}
		srv.Close()
		talks.Close()
	})
	return srv.URL + "/mcp"
}
