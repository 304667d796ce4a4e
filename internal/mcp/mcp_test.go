package mcp_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"hutch"
	"hutch/internal/fakeservice"
	"hutch/internal/mcp"
)

const (
	older  = "2025-11-25"
	modern = "2026-07-28"
)

var eras = []string{older, modern}

// inBothEras runs a test once for each era.
func inBothEras(t *testing.T, test func(t *testing.T, era string)) {
	t.Parallel()
	for _, era := range eras {
		t.Run(era, func(t *testing.T) {
			t.Parallel()
			test(t, era)
		})
	}
}

// serve starts an HTTP server of svc and returns its URL.
func serve(t testing.TB, svc hutch.Service, opt mcp.Options) (*mcp.Handler, string) {
	t.Helper()
	h := mcp.NewHandler(svc, opt)
	srv := httptest.NewServer(h)
	t.Cleanup(srv.Close)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := h.Close(ctx); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return h, srv.URL
}

// client is the official client, connected.
type client struct {
	*sdk.ClientSession
	url, era string
}

func dial(t testing.TB, url, era string, opt *sdk.ClientOptions) *client {
	t.Helper()
	c := sdk.NewClient(&sdk.Implementation{Name: "test", Version: "1"}, opt)
	ss, err := c.Connect(t.Context(), &sdk.StreamableClientTransport{Endpoint: url, DisableStandaloneSSE: true},
		&sdk.ClientSessionOptions{ProtocolVersion: era})
	if err != nil {
		t.Fatalf("connect: %v", err)
	}
	if got := ss.InitializeResult().ProtocolVersion; got != era {
		t.Fatalf("negotiated %s, want %s", got, era)
	}
	t.Cleanup(func() { ss.Close() })
	return &client{ss, url, era}
}

func connect(t testing.TB, svc hutch.Service, era string) *client {
	t.Helper()
	_, url := serve(t, svc, mcp.Options{})
	return dial(t, url, era, nil)
}

// fault is an error as clients of either revision get it.
type fault struct {
	Code    int64          `json:"code"`
	Message string         `json:"message"`
	Data    map[string]any `json:"data"`
}

// try calls a tool: exactly one of result and fault is nil.
func try(t testing.TB, c *client, tool string, args any) (*sdk.CallToolResult, *fault) {
	t.Helper()
	if c.era < modern {
		return tryOlder(t, c, tool, args)
	}
	res, err := c.CallTool(t.Context(), &sdk.CallToolParams{Name: tool, Arguments: args})
	if err != nil {
		t.Fatalf("%s: %v", tool, err)
	}
	if !res.IsError {
		return res, nil
	}
	var body struct{ Error fault }
	fill(t, res, &body)
	if !strings.HasPrefix(text(res), body.Error.Message) {
		t.Errorf("%s: text %q does not begin with the message %q", tool, text(res), body.Error.Message)
	}
	return nil, &body.Error
}

// tryOlder writes the message itself: the SDK's client mistakes -32003 and -32004 for its own signal of a closed
// connection, and drops the data.
func tryOlder(t testing.TB, c *client, tool string, args any) (*sdk.CallToolResult, *fault) {
	t.Helper()
	params, _ := json.Marshal(&sdk.CallToolParams{Name: tool, Arguments: args})
	status, _, msg := post(t, c.url, `{"jsonrpc":"2.0","id":"raw","method":"tools/call","params":`+string(params)+`}`,
		"Mcp-Session-Id", c.ID(), "MCP-Protocol-Version", c.era)
	var answer struct {
		Result *sdk.CallToolResult
		Error  *fault
	}
	raw, _ := json.Marshal(msg)
	if err := json.Unmarshal(raw, &answer); err != nil || status != http.StatusOK {
		t.Fatalf("%s: status %d, %s: %v", tool, status, raw, err)
	}
	if answer.Result != nil && answer.Result.IsError { // an error about a file or a process in the sandbox
		var body struct{ Error fault }
		fill(t, answer.Result, &body)
		if body.Error.Data["path"] == nil && body.Error.Data["processId"] == nil {
			t.Errorf("%s: isError in an older era: %+v", tool, body.Error)
		}
		return nil, &body.Error
	}
	return answer.Result, answer.Error
}

func do(t testing.TB, ss *client, tool string, args any) *sdk.CallToolResult {
	t.Helper()
	res, f := try(t, ss, tool, args)
	if f != nil {
		t.Fatalf("%s: %+v", tool, f)
	}
	return res
}

func mustFail(t testing.TB, ss *client, tool string, args any, code int64) *fault {
	t.Helper()
	res, f := try(t, ss, tool, args)
	if f == nil {
		t.Fatalf("%s %v: %q, want error %d", tool, args, text(res), code)
	}
	if f.Code != code {
		t.Fatalf("%s %v: error %d %q, want %d", tool, args, f.Code, f.Message, code)
	}
	return f
}

func text(res *sdk.CallToolResult) string {
	var b strings.Builder
	for _, c := range res.Content {
		if t, ok := c.(*sdk.TextContent); ok {
			b.WriteString(t.Text)
		}
	}
	return b.String()
}

func fill(t testing.TB, res *sdk.CallToolResult, into any) {
	t.Helper()
	b, err := json.Marshal(res.StructuredContent)
	if err == nil {
		err = json.Unmarshal(b, into)
	}
	if err != nil {
		t.Fatalf("structured content %s: %v", b, err)
	}
}

// post sends one raw message and returns the status and the last message of the answer.
func post(t testing.TB, url, body string, header ...string) (int, http.Header, map[string]any) {
	t.Helper()
	status, h, messages := exchange(t, url, body, header...)
	if len(messages) == 0 {
		return status, h, nil
	}
	return status, h, messages[len(messages)-1]
}

// exchange sends one raw message and returns all messages of the answer.
func exchange(t testing.TB, url, body string, header ...string) (int, http.Header, []map[string]any) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	stream := strings.HasPrefix(resp.Header.Get("Content-Type"), "text/event-stream")
	var messages []map[string]any
	for line := range bytes.Lines(raw) {
		data, ok := bytes.CutPrefix(line, []byte("data: "))
		if stream && (!ok || len(bytes.TrimSpace(data)) == 0) { // an event without data only gives the position for a reconnect
			continue
		}
		var msg map[string]any
		if err := json.Unmarshal(data, &msg); err != nil {
			t.Fatalf("%s: answer %q: %v", resp.Status, raw, err)
		}
		messages = append(messages, msg)
	}
	return resp.StatusCode, resp.Header, messages
}

// patience is how long a test waits for something that must happen; it is long because the machine can be busy.
const patience = time.Minute

// eventually waits until a condition is true.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !ok(); {
		if time.Now().After(deadline) {
			t.Fatalf("not in time: %s", what)
		}
		select {
		case <-time.After(10 * time.Millisecond):
		case <-t.Context().Done():
			t.Fatalf("%s: %v", what, t.Context().Err())
		}
	}
}

// printing is an OnExec that prints to both streams.
func printing(stdout, stderr string) func(context.Context, string, hutch.ExecRequest, func(hutch.Output) error) (hutch.ExecResult, error) {
	return func(_ context.Context, id string, req hutch.ExecRequest, out func(hutch.Output) error) (hutch.ExecResult, error) {
		res, err := fakeservice.Print(id, req, out, hutch.Stdout, stdout)
		if err == nil && stderr != "" {
			_, err = fakeservice.Print(id, req, out, hutch.Stderr, stderr)
			res.Stderr = []byte(stderr)
		}
		return res, err
	}
}

// hanging is an OnExec that prints and then waits to be cancelled.
func hanging(started, killed chan<- struct{}) func(context.Context, string, hutch.ExecRequest, func(hutch.Output) error) (hutch.ExecResult, error) {
	return func(ctx context.Context, id string, req hutch.ExecRequest, out func(hutch.Output) error) (hutch.ExecResult, error) {
		res, err := fakeservice.Print(id, req, out, hutch.Stdout, "so far\n")
		if err != nil {
			return res, err
		}
		started <- struct{}{}
		<-ctx.Done()
		killed <- struct{}{}
		return res, ctx.Err()
	}
}

// observing is an OnExec that reports the requests that it gets.
func observing(seen chan<- hutch.ExecRequest) func(context.Context, string, hutch.ExecRequest, func(hutch.Output) error) (hutch.ExecResult, error) {
	return func(_ context.Context, id string, req hutch.ExecRequest, out func(hutch.Output) error) (hutch.ExecResult, error) {
		seen <- req
		return fakeservice.Print(id, req, out, hutch.Stdout, "ok\n")
	}
}

// ending is an OnExec whose commands all end with res.
func ending(res hutch.ExecResult) func(context.Context, string, hutch.ExecRequest, func(hutch.Output) error) (hutch.ExecResult, error) {
	return func(_ context.Context, id string, req hutch.ExecRequest, _ func(hutch.Output) error) (hutch.ExecResult, error) {
		res := res
		res.SandboxID, res.Command, res.Timestamp = id, req.Command, time.Now()
		return res, nil
	}
}

func all(t testing.TB, svc hutch.Service) []hutch.Sandbox {
	t.Helper()
	list, err := svc.Sandboxes(context.WithoutCancel(t.Context()), hutch.Filter{})
	if err != nil {
		t.Fatal(err)
	}
	return list
}

func callWith(ctx context.Context, ss *client, args any) error {
	_, err := ss.CallTool(ctx, &sdk.CallToolParams{Name: "exec", Arguments: args})
	return err
}

func within(t testing.TB, ch <-chan struct{}, what string) {
	t.Helper()
	select {
	case <-ch:
	case <-time.After(patience):
		t.Fatalf("not in time: %s", what)
	}
}
