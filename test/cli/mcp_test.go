package cli

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"hutch/internal/hutchtest"
)

// overStdio returns `hutch mcp` as a client starts it.
func overStdio(t *testing.T, runtime string) *exec.Cmd {
	hutchtest.Driver(t, runtime, hutchtest.Dir(t)) // skips the test where the runtime does not work
	data := hutchtest.Dir(t)
	t.Cleanup(func() {
		if err := leftovers(data); err != nil {
			t.Error(err)
		}
	})
	cmd := exec.Command(hutchtest.Program(t, "hutch"), "mcp", "--runtime", runtime)
	_, path, _ := strings.Cut(os.Getenv("PATH"), string(filepath.ListSeparator))
	home, _ := os.UserHomeDir()
	cmd.Env = []string{"PATH=" + path, "HOME=" + home, "HUTCH_DATA=" + data}
	cmd.Stderr = t.Output()
	return cmd
}

// connect makes the official SDK's client start `hutch mcp`.
func connect(t *testing.T, runtime string) *mcp.ClientSession {
	t.Helper()
	client := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil)
	session, err := client.Connect(t.Context(), &mcp.CommandTransport{Command: overStdio(t, runtime)}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return session
}

// TestRawStdio speaks raw JSON-RPC, one message a line, and expects nothing else on the standard output.
func TestRawStdio(t *testing.T) {
	for _, runtime := range hutchtest.Runtimes {
		t.Run(runtime, func(t *testing.T) {
			t.Parallel()
			cmd := overStdio(t, runtime)
			in, err := cmd.StdinPipe()
			if err != nil {
				t.Fatal(err)
			}
			out, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			answers := bufio.NewScanner(out)
			if got := ask(t, in, answers, `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"hand","version":"1"}}}`); !bytes.Contains(got, []byte(`"2025-06-18"`)) {
				t.Errorf("initialize: %s", got)
			}
			io.WriteString(in, `{"jsonrpc":"2.0","method":"notifications/initialized"}`+"\n")
			got := ask(t, in, answers, `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"exec","arguments":{"command":"print(6*7)","language":"python"}}}`)
			var result struct {
				StructuredContent struct {
					ExitCode int
					Stdout   string
				}
			}
			if err := json.Unmarshal(got, &result); err != nil || result.StructuredContent.Stdout != "42\n" || result.StructuredContent.ExitCode != 0 {
				t.Errorf("exec: %s, %v", got, err)
			}
			in.Close()
			if answers.Scan() {
				t.Errorf("unasked: %s", answers.Bytes())
			}
			if err := cmd.Wait(); err != nil {
				t.Errorf("the end of stdin ends it with %v", err)
			}
		})
	}
}

// ask sends a request and returns the result of the answer.
func ask(t *testing.T, in io.Writer, answers *bufio.Scanner, request string) json.RawMessage {
	t.Helper()
	if _, err := io.WriteString(in, request+"\n"); err != nil {
		t.Fatal(err)
	}
	for answers.Scan() {
		var a struct {
			ID            int
			Result, Error json.RawMessage
		}
		if err := json.Unmarshal(answers.Bytes(), &a); err != nil {
			t.Fatalf("this is not a message: %q: %v", answers.Bytes(), err)
		}
		if a.Error != nil {
			t.Fatalf("refused: %s", a.Error)
		}
		if a.ID != 0 {
			return a.Result
		}
	}
	t.Fatalf("no answer: %v", answers.Err())
	return nil
}

// TestClientOverStdio uses `hutch mcp` with the official SDK's client.
func TestClientOverStdio(t *testing.T) {
	for _, runtime := range hutchtest.Runtimes {
		t.Run(runtime, func(t *testing.T) {
			t.Parallel()
			session := connect(t, runtime)
			defer session.Close()
			put := execOver(t, session, map[string]any{"command": "echo kept > note"})
			got := execOver(t, session, map[string]any{"command": "cat note; echo oops >&2; exit 3", "sandboxId": put["sandboxId"]})
			if got["stdout"] != "kept\n" || got["stderr"] != "oops\n" || got["exitCode"] != 3.0 {
				t.Errorf("got %v", got)
			}
			if err := session.Close(); err != nil {
				t.Errorf("close: %v", err)
			}
		})
	}
}

func execOver(t *testing.T, session *mcp.ClientSession, args map[string]any) map[string]any {
	t.Helper()
	res, err := session.CallTool(t.Context(), &mcp.CallToolParams{Name: "exec", Arguments: args})
	if err != nil {
		t.Fatal(err)
	}
	out, ok := res.StructuredContent.(map[string]any)
	if !ok || res.IsError {
		t.Fatalf("no result: %+v", res)
	}
	return out
}
