package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"

	"hutch"
)

// The ways to a sandbox.
const (
	inProcess = "Go, in process"
	overREST  = "REST"
	overMCP   = "MCP"
)

// ways returns the ways to run a program in a sandbox, as subjects; choose names the sandbox. Their baseline is
// bareFork.
func (l *lab) ways(choose func(caller int) string) []subject {
	through := func(svc hutch.Service) func(context.Context, int) error {
		return func(ctx context.Context, caller int) error { return runIn(ctx, svc, choose(caller), program) }
	}
	return []subject{
		{inProcess, through(l.engine)},
		{overREST, through(l.server.rest)},
		{overMCP, func(ctx context.Context, caller int) error {
			return l.server.callers[caller].exec(ctx, choose(caller), program)
		}},
	}
}

// program is the program to run: as bare as the baseline.
const program = "/bin/true"

func runIn(ctx context.Context, svc hutch.Service, sandbox, command string) error {
	res, err := svc.Exec(ctx, sandbox, hutch.ExecRequest{Command: command}, nil)
	return verdict(res.ExitCode, err)
}

func verdict(exitCode int, err error) error {
	if err == nil && exitCode != 0 {
		err = fmt.Errorf("exit code %d", exitCode)
	}
	return err
}

// mcpClient is an MCP client. It writes its messages itself: the official SDK's client costs as much as a whole call,
// and shares the cores with the server.
type mcpClient struct {
	url, token string
	http       *http.Client
}

// revision is the callers' revision of MCP.
const revision = "2026-07-28"

func newMCPClient(url, token string) *mcpClient {
	return &mcpClient{url + "/mcp", token, &http.Client{Transport: http.DefaultTransport.(*http.Transport).Clone()}}
}

func (c *mcpClient) exec(ctx context.Context, sandbox, command string) error {
	body, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": map[string]any{
		"name": "exec", "arguments": map[string]string{"sandboxId": sandbox, "command": command},
		"_meta": map[string]any{"io.modelcontextprotocol/protocolVersion": revision, "io.modelcontextprotocol/clientCapabilities": struct{}{}},
	}})
	if err != nil {
		return err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url, bytes.NewReader(body))
	if err != nil {
		return err
	}
	for name, value := range map[string]string{
		"Authorization": "Bearer " + c.token, "Content-Type": "application/json", "Accept": "application/json, text/event-stream",
		"Mcp-Protocol-Version": revision, "Mcp-Method": "tools/call", "Mcp-Name": "exec",
	} {
		r.Header.Set(name, value)
	}
	resp, err := c.http.Do(r)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	return exitOf(text)
}

// exitOf returns an error unless the exit code in an answer is 0. The answer can be an event.
func exitOf(text []byte) error {
	_, data, _ := bytes.Cut(text, []byte("data: "))
	var msg struct {
		Result struct {
			StructuredContent struct{ ExitCode *int }
		}
	}
	if err := json.Unmarshal(data, &msg); err != nil || msg.Result.StructuredContent.ExitCode == nil {
		return fmt.Errorf("an answer without exit code: %s", text)
	}
	return verdict(*msg.Result.StructuredContent.ExitCode, nil)
}

func (c *mcpClient) close() { c.http.CloseIdleConnections() }
