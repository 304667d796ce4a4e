package mcp_test

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"strings"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"hutch"
	"hutch/internal/fakeservice"
	"hutch/internal/mcp"
)

// serveStdio serves svc over pipes and returns the client's ends and a channel
// with the outcome.
func serveStdio(ctx context.Context, svc hutch.Service) (to *io.PipeWriter, from *io.PipeReader, ended <-chan error) {
	in, to := io.Pipe()
	from, out := io.Pipe()
	done := make(chan error, 1)
	go func() { done <- mcp.ServeStdio(ctx, svc, in, out, mcp.Options{}) }()
	return to, from, done
}

func outcome(t *testing.T, ended <-chan error) {
	t.Helper()
	select {
	case err := <-ended:
		if err != nil {
			t.Errorf("ended with %v", err)
		}
	case <-time.After(15 * time.Second):
		t.Fatal("did not end")
	}
}

func TestStdio(t *testing.T) {
	inBothEras(t, func(t *testing.T, era string) {
		svc := &fakeservice.Service{}
		to, from, ended := serveStdio(t.Context(), svc)
		c := sdk.NewClient(&sdk.Implementation{Name: "test", Version: "1"}, nil)
		ss, err := c.Connect(t.Context(), &sdk.IOTransport{Reader: from, Writer: to}, &sdk.ClientSessionOptions{ProtocolVersion: era})
		if err != nil {
			t.Fatal(err)
		}
		for range 3 {
			res, err := ss.CallTool(t.Context(), &sdk.CallToolParams{Name: "exec", Arguments: map[string]any{"command": "hi"}})
			if err != nil || !strings.Contains(text(res), "hi") {
				t.Fatalf("%v %v", res, err)
			}
		}
		if n := len(all(t, svc)); n != 3 {
			t.Errorf("%d sandboxes, want 3", n)
		}
		ss.Close()
		outcome(t, ended)
		if n := len(all(t, svc)); n != 0 {
			t.Errorf("%d sandboxes are left", n)
		}
	})
}

// TestStdioOfAPipe sends everything at once and closes: every answer must still arrive.
func TestStdioOfAPipe(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	svc := &fakeservice.Service{OnExec: func(ctx context.Context, id string, req hutch.ExecRequest, out func(hutch.Output) error) (hutch.ExecResult, error) {
		select {
		case <-release:
		case <-ctx.Done():
		}
		return fakeservice.Print(id, req, out, hutch.Stdout, "late\n")
	}}
	to, from, ended := serveStdio(t.Context(), svc)
	go func() {
		io.WriteString(to, initialize+"\n"+
			`{"jsonrpc":"2.0","method":"notifications/initialized"}`+"\n"+
			`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"exec","arguments":{"command":"x"}}}`+"\n")
		to.Close()
		close(release)
	}()
	lines := bufio.NewScanner(from)
	var last string
	for lines.Scan() {
		last = lines.Text()
	}
	if !strings.Contains(last, `"late\n"`) {
		t.Errorf("last line %q", last)
	}
	outcome(t, ended)
}

// TestStdioOutlivesNonsense writes malformed lines.
func TestStdioOutlivesNonsense(t *testing.T) {
	t.Parallel()
	to, from, ended := serveStdio(t.Context(), &fakeservice.Service{})
	lines := bufio.NewScanner(from)
	for _, c := range []struct {
		say  string
		code float64
	}{
		{`{"jsonrpc":`, -32700},
		{`hello`, -32700},
		{`[]`, -32600},
		{`{"jsonrpc":"2.0","id":{},"method":"ping"}`, -32600},
	} {
		io.WriteString(to, "\n"+c.say+"\n")
		if !lines.Scan() {
			t.Fatalf("%s: no answer: %v", c.say, lines.Err())
		}
		var msg struct{ Error struct{ Code float64 } }
		if err := json.Unmarshal(lines.Bytes(), &msg); err != nil || msg.Error.Code != c.code {
			t.Errorf("%s: %s, want code %v", c.say, lines.Text(), c.code)
		}
	}
	io.WriteString(to, initialize+"\n")
	if !lines.Scan() || !strings.Contains(lines.Text(), `"result"`) {
		t.Errorf("initialize: %s", lines.Text())
	}
	to.Close()
	outcome(t, ended)
}

// TestStdioIsInterrupted ends the server while a command runs.
func TestStdioIsInterrupted(t *testing.T) {
	t.Parallel()
	started, killed := make(chan struct{}, 1), make(chan struct{}, 1)
	svc := &fakeservice.Service{OnExec: hanging(started, killed)}
	ctx, cancel := context.WithCancel(t.Context())
	to, from, ended := serveStdio(ctx, svc)
	go io.Copy(io.Discard, from)
	go io.WriteString(to, initialize+"\n"+`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"exec","arguments":{"command":"x"}}}`+"\n")
	within(t, started, "the command runs")
	cancel()
	within(t, killed, "the command is killed")
	outcome(t, ended)
	if n := len(all(t, svc)); n != 0 {
		t.Errorf("%d sandboxes are left", n)
	}
}
