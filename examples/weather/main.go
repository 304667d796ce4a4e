// Command weather is an MCP client that does what most agents do with a sandbox: it writes a file, runs code on it,
// starts a server, lists the processes, and cleans up.
//
//	HUTCH_URL=http://127.0.0.1:7700 HUTCH_TOKEN=... go run ./examples/weather
package main

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"net/http"
	"os"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// The daily weather of Seattle, 2012 to 2015, as the United States' National
// Oceanic and Atmospheric Administration recorded it (public domain).
//
//go:embed seattle.csv
var data []byte

//go:embed summary.py
var program string

func main() {
	if err := run(context.Background()); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context) error {
	session, err := connect(ctx)
	if err != nil {
		return err
	}
	defer session.Close()
	h := hutch{session}

	// Without a sandboxId, exec creates a sandbox and returns its id.
	put, err := h.exec(ctx, map[string]any{"command": "base64 -d > seattle.csv <<'end'\n" + wrap(data) + "end\nwc -l seattle.csv"})
	if err != nil {
		return err
	}
	fmt.Print("in the sandbox: ", put.Stdout)

	summary, err := h.exec(ctx, map[string]any{"sandboxId": put.SandboxID, "language": "python", "command": program})
	if err != nil {
		return err
	}
	fmt.Print(summary.Stdout)

	var server struct{ ProcessID, Status string }
	if err := h.call(ctx, "startBackgroundProcess", map[string]any{
		"sandboxId": put.SandboxID, "name": "files", "command": "python3 -m http.server 8000",
	}, &server); err != nil {
		return err
	}
	fetched, err := h.exec(ctx, map[string]any{
		"sandboxId": put.SandboxID, "language": "python",
		"command": "import time, urllib.request\n" +
			"for _ in range(100):\n" +
			"    try: print(urllib.request.urlopen('http://127.0.0.1:8000/seattle.csv').read()[:4].decode()); break\n" +
			"    except OSError: time.sleep(0.05)",
	})
	if err != nil {
		return err
	}
	fmt.Print("the background server is ", server.Status, " and serves: ", fetched.Stdout)

	return h.call(ctx, "destroySandbox", map[string]any{"sandboxId": put.SandboxID, "force": true}, nil)
}

// hutch calls Hutch's tools.
type hutch struct{ *mcp.ClientSession }

// result is the result of exec.
type result struct {
	SandboxID      string
	ExitCode       int
	Stdout, Stderr string
}

func (h hutch) exec(ctx context.Context, args map[string]any) (result, error) {
	var r result
	if err := h.call(ctx, "exec", args, &r); err != nil {
		return r, err
	}
	if r.ExitCode != 0 {
		return r, fmt.Errorf("exit code %d: %s", r.ExitCode, r.Stderr)
	}
	return r, nil
}

func (h hutch) call(ctx context.Context, tool string, args map[string]any, answer any) error {
	res, err := h.CallTool(ctx, &mcp.CallToolParams{Name: tool, Arguments: args})
	if err != nil {
		return fmt.Errorf("%s: %w", tool, err)
	}
	if res.IsError {
		text, _ := json.Marshal(res.Content)
		return errors.New(tool + ": " + string(text))
	}
	if answer == nil {
		return nil
	}
	b, err := json.Marshal(res.StructuredContent)
	if err != nil {
		return err
	}
	return json.Unmarshal(b, answer)
}

// connect begins a session with the server. Every MCP example has its own copy of this function and of the type bearer,
// so that its one file can be copied and run.
func connect(ctx context.Context) (*mcp.ClientSession, error) {
	client := mcp.NewClient(&mcp.Implementation{Name: "weather", Version: "1"}, nil)
	return client.Connect(ctx, &mcp.StreamableClientTransport{
		Endpoint:   os.Getenv("HUTCH_URL") + "/mcp",
		HTTPClient: &http.Client{Transport: bearer(os.Getenv("HUTCH_TOKEN"))},
	}, nil)
}

// bearer adds a token to every request.
type bearer string

func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+string(b))
	return http.DefaultTransport.RoundTrip(r)
}

// wrap returns b in base64, broken into lines.
func wrap(b []byte) string {
	text := []byte(base64.StdEncoding.EncodeToString(b))
	var lines bytes.Buffer
	for len(text) > 0 {
		n := min(76, len(text))
		lines.Write(text[:n])
		lines.WriteByte('\n')
		text = text[n:]
	}
	return lines.String()
}
