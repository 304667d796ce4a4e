package mcp_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"hutch"
	"hutch/internal/caller"
	"hutch/internal/fakeservice"
	"hutch/internal/mcp"
)

// listener collects progress notifications.
type listener struct {
	mu  sync.Mutex
	got []*sdk.ProgressNotificationParams
	at  []time.Time
}

func (l *listener) options() *sdk.ClientOptions {
	return &sdk.ClientOptions{ProgressNotificationHandler: func(_ context.Context, req *sdk.ProgressNotificationClientRequest) {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.got, l.at = append(l.got, req.Params), append(l.at, time.Now())
	}}
}

func (l *listener) all() []*sdk.ProgressNotificationParams {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.got
}

func callWithToken(ctx context.Context, ss *client, args any) (*sdk.CallToolResult, error) {
	params := &sdk.CallToolParams{Name: "exec", Arguments: args}
	params.SetProgressToken("token-1")
	return ss.CallTool(ctx, params)
}

// TestProgressComesWhileItRuns lets the command continue only after its first output was seen.
func TestProgressComesWhileItRuns(t *testing.T) {
	inBothEras(t, func(t *testing.T, era string) {
		var l listener
		svc := &fakeservice.Service{OnExec: func(ctx context.Context, id string, req hutch.ExecRequest, out func(hutch.Output) error) (hutch.ExecResult, error) {
			fakeservice.Print(id, req, out, hutch.Stdout, "first\n")
			for len(l.all()) == 0 && ctx.Err() == nil {
				select {
				case <-time.After(time.Millisecond):
				case <-ctx.Done():
				}
			}
			return fakeservice.Print(id, req, out, hutch.Stdout, "second\n")
		}}
		_, url := serve(t, svc, mcp.Options{})
		ss := dial(t, url, era, l.options())
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		if _, err := callWithToken(ctx, ss, map[string]any{"command": "x", "timeout": 60}); err != nil {
			t.Fatal(err)
		}
		eventually(t, "both notifications are handled", func() bool { return len(l.all()) == 2 })
		got := l.all()
		if got[0].Message != "first\n" || got[1].Message != "second\n" {
			t.Fatalf("progress %+v", got)
		}
		if got[0].ProgressToken != "token-1" || got[0].Total != 60 || got[1].Progress <= got[0].Progress {
			t.Errorf("progress %+v, %+v", got[0], got[1])
		}
	})
}

// pulling is a service whose creates pull an image of two layers.
type pulling struct{ *fakeservice.Service }

func (s pulling) Create(ctx context.Context, req hutch.CreateRequest) (hutch.Sandbox, error) {
	report := caller.From(ctx).Pulls
	for _, t := range []hutch.Transfer{{Layer: "sha256:0123456789abcdef", State: "downloading", Done: 5, Total: 10}, {Layer: "sha256:0123456789abcdef", State: "done", Done: 10, Total: 10}} {
		if err := report(t); err != nil {
			return hutch.Sandbox{}, err
		}
	}
	return s.Service.Create(ctx, req)
}

// TestProgressOfAPull: the layers of an image are reported before the output of the command, and their progress grows.
func TestProgressOfAPull(t *testing.T) {
	inBothEras(t, func(t *testing.T, era string) {
		var l listener
		_, url := serve(t, pulling{&fakeservice.Service{OnExec: func(_ context.Context, id string, req hutch.ExecRequest, out func(hutch.Output) error) (hutch.ExecResult, error) {
			return fakeservice.Print(id, req, out, hutch.Stdout, "the output\n")
		}}}, mcp.Options{})
		ss := dial(t, url, era, l.options())
		if _, err := callWithToken(t.Context(), ss, map[string]any{"command": "x", "image": "python:3.12-slim"}); err != nil {
			t.Fatal(err)
		}
		text := func() (all string) {
			for _, p := range l.all() {
				all += p.Message
			}
			return all
		}
		const want = "layer sha256:0123456789ab downloading: 5 of 10 bytes\nlayer sha256:0123456789ab done: 10 of 10 bytes\nthe output\n"
		eventually(t, "all notifications are handled", func() bool { return len(text()) >= len(want) })
		if text() != want {
			t.Errorf("the progress is %q", text())
		}
		for i, p := range l.all() {
			if i > 0 && p.Progress <= l.all()[i-1].Progress {
				t.Errorf("notification %d does not grow: %+v", i, p)
			}
		}
	})
}

// TestProgressIsBounded prints much output, in pieces that split characters.
func TestProgressIsBounded(t *testing.T) {
	inBothEras(t, func(t *testing.T, era string) {
		var l listener
		text := []byte(strings.Repeat("zeile ü €\n", 200_000))
		svc := &fakeservice.Service{OnExec: func(_ context.Context, id string, req hutch.ExecRequest, out func(hutch.Output) error) (hutch.ExecResult, error) {
			for rest := text; len(rest) > 0; rest = rest[min(7001, len(rest)):] {
				if err := out(hutch.Output{Stream: hutch.Stdout, Data: rest[:min(7001, len(rest))]}); err != nil {
					return hutch.ExecResult{}, err
				}
			}
			return fakeservice.Print(id, req, nil, hutch.Stdout, "")
		}}
		_, url := serve(t, svc, mcp.Options{})
		began := time.Now()
		if _, err := callWithToken(t.Context(), dial(t, url, era, l.options()), map[string]any{"command": "x"}); err != nil {
			t.Fatal(err)
		}
		most := int(time.Since(began)/(100*time.Millisecond)) + 3
		eventually(t, "a notification is handled", func() bool { return len(l.all()) > 0 })
		got := l.all()
		if len(got) > most {
			t.Errorf("%d notifications, want 1 to %d", len(got), most)
		}
		for i, p := range got {
			if len(p.Message) > 1024 || !utf8.ValidString(p.Message) || i > 0 && p.Progress <= got[i-1].Progress {
				t.Errorf("notification %d: %v %q", i, p.Progress, p.Message)
			}
		}
	})
}

func TestNoProgressWithoutToken(t *testing.T) {
	inBothEras(t, func(t *testing.T, era string) {
		var l listener
		_, url := serve(t, &fakeservice.Service{}, mcp.Options{})
		ss := dial(t, url, era, l.options())
		if err := callWith(t.Context(), ss, map[string]any{"command": "x"}); err != nil {
			t.Fatal(err)
		}
		if len(l.all()) != 0 {
			t.Errorf("progress %v", l.all())
		}
	})
}

// TestProgressPrecedesTheResult looks at the raw messages.
func TestProgressPrecedesTheResult(t *testing.T) {
	t.Parallel()
	_, url := serve(t, &fakeservice.Service{}, mcp.Options{})
	body := strings.Replace(modernCall("word"), meta, strings.Replace(meta, "{", `{"progressToken":7,`, 1), 1)
	for range 100 {
		_, _, events := exchange(t, url, body, modernHeaders...)
		if len(events) != 2 || events[0]["method"] != "notifications/progress" || events[1]["result"] == nil {
			t.Fatalf("events %v", events)
		}
	}
}

// TestHeartbeat runs a command that is silent for 12 seconds of a fake clock.
func TestHeartbeat(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var l listener
		svc := &fakeservice.Service{OnExec: func(_ context.Context, id string, req hutch.ExecRequest, out func(hutch.Output) error) (hutch.ExecResult, error) {
			time.Sleep(12 * time.Second)
			return fakeservice.Print(id, req, nil, hutch.Stdout, "")
		}}
		to, from, ended := serveStdio(t.Context(), svc)
		c := sdk.NewClient(&sdk.Implementation{Name: "test", Version: "1"}, l.options())
		ss, err := c.Connect(t.Context(), &sdk.IOTransport{Reader: from, Writer: to}, nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := callWithToken(t.Context(), &client{ClientSession: ss}, map[string]any{"command": "x"}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if got := l.all(); len(got) != 2 || got[0].Progress != 5 || got[1].Progress != 10 {
			t.Errorf("progress %+v", got)
		}
		ss.Close()
		outcome(t, ended)
	})
}
