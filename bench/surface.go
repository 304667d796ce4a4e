package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"hutch"
)

// The ways to a sandbox.
const (
	inProcess = "Go, in process"
	overREST  = "REST"
	overMCP   = "MCP"
)

// ways are the subjects that run a program in the sandbox that choose names,
// of which bareFork is the baseline.
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

// program is what is run: as bare as the baseline.
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

// caller is an MCP client: the official SDK's.
type caller struct{ session *mcp.ClientSession }

func dial(ctx context.Context, url string) (*caller, error) {
	transport := &mcp.StreamableClientTransport{
		Endpoint: url + "/mcp",
		// Nothing here listens for what the server might say unasked.
		DisableStandaloneSSE: true,
		HTTPClient:           &http.Client{Transport: bearer{http.DefaultTransport.(*http.Transport).Clone()}},
	}
	session, err := mcp.NewClient(&mcp.Implementation{Name: "bench", Version: "1"}, nil).Connect(ctx, transport, nil)
	if err != nil {
		return nil, err
	}
	return &caller{session}, nil
}

func (c *caller) exec(ctx context.Context, sandbox, command string) error {
	res, err := c.session.CallTool(ctx, &mcp.CallToolParams{
		Name: "exec", Arguments: map[string]any{"sandboxId": sandbox, "command": command},
	})
	if err != nil {
		return err
	}
	if res.IsError {
		text, _ := json.Marshal(res.Content)
		return fmt.Errorf("refused: %s", text)
	}
	structured, ok := res.StructuredContent.(map[string]any)
	code, given := structured["exitCode"].(float64)
	if !ok || !given {
		return fmt.Errorf("an answer without exit code: %v", res.StructuredContent)
	}
	return verdict(int(code), nil)
}

// bearer adds the token to every request.
type bearer struct{ http.RoundTripper }

func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+token)
	return b.RoundTripper.RoundTrip(r)
}
