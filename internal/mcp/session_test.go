package mcp_test

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"hutch"
	"hutch/internal/fakeservice"
	"hutch/internal/mcp"
)

func TestSessionEndDestroysItsSandboxes(t *testing.T) {
	t.Parallel()
	svc := &fakeservice.Service{}
	svc.Create(t.Context(), hutch.CreateRequest{ID: "named"})
	ss := connect(t, svc, older)
	do(t, ss, "exec", map[string]any{"command": "x"})
	do(t, ss, "exec", map[string]any{"command": "x"})
	do(t, ss, "exec", map[string]any{"command": "x", "sandboxId": "named"})
	if n := len(all(t, svc)); n != 3 {
		t.Fatalf("%d sandboxes, want 3", n)
	}
	if req := svc.Created()[1]; req.OnIdle != hutch.IdleHibernate || req.Timeout <= 0 {
		t.Errorf("made with %+v", req)
	}
	ss.Close()
	eventually(t, "only the named sandbox is left", func() bool { return len(all(t, svc)) == 1 })
}

func TestSessionTimeoutDestroysItsSandboxes(t *testing.T) {
	t.Parallel()
	svc := &fakeservice.Service{}
	_, url := serve(t, svc, mcp.Options{SessionTimeout: 50 * time.Millisecond})
	ss := dial(t, url, older, nil)
	do(t, ss, "exec", map[string]any{"command": "x"})
	eventually(t, "no sandbox is left", func() bool { return len(all(t, svc)) == 0 })
}

func TestKeptAliveSandboxOutlivesItsSession(t *testing.T) {
	t.Parallel()
	svc := &keeper{}
	ss := connect(t, svc, older)
	do(t, ss, "exec", map[string]any{"command": "x"})
	svc.keep.Store("", true)
	h := all(t, svc)
	ss.Close()
	do(t, connect(t, svc, older), "getSandbox", map[string]any{"sandboxId": h[0].ID})
}

// keeper reports keepAlive for every sandbox, once it is switched on.
type keeper struct {
	fakeservice.Service
	keep sync.Map
}

func (k *keeper) Sandbox(ctx context.Context, id string) (hutch.Sandbox, error) {
	sb, err := k.Service.Sandbox(ctx, id)
	_, sb.KeepAlive = k.keep.Load("")
	return sb, err
}

// TestKeepAliveByTool: a sandbox that exec created outlives its session if that exec or a later one asks for that.
func TestKeepAliveByTool(t *testing.T) {
	inBothEras(t, func(t *testing.T, era string) {
		svc := &fakeservice.Service{OnExec: printing("ok", "")}
		ss := connect(t, svc, era)
		do(t, ss, "exec", map[string]any{"command": "x", "keepAlive": true})
		if req := svc.Created()[0]; !req.KeepAlive || req.Timeout != 0 || req.OnIdle == hutch.IdleDestroy {
			t.Errorf("made with %+v", req)
		}
		var got execResult
		fill(t, do(t, ss, "exec", map[string]any{"command": "x"}), &got)
		do(t, ss, "exec", map[string]any{"command": "x", "keepAlive": true, "sandboxId": got.SandboxID})
		do(t, ss, "exec", map[string]any{"command": "x"}) // this sandbox ends with the session
		ss.Close()
		if era == older {
			eventually(t, "the others stay", func() bool { return len(all(t, svc)) == 2 })
		}
		if sb, err := svc.Sandbox(t.Context(), got.SandboxID); err != nil || !sb.KeepAlive {
			t.Errorf("%+v, %v", sb, err)
		}
	})
}

// TestKeptAliveButFailed: a call that fails leaves no sandbox, because no caller would get its id.
func TestKeptAliveButFailed(t *testing.T) {
	inBothEras(t, func(t *testing.T, era string) {
		svc := &fakeservice.Service{OnExec: func(context.Context, string, hutch.ExecRequest, func(hutch.Output) error) (hutch.ExecResult, error) {
			return hutch.ExecResult{}, hutch.Errorf(hutch.Invalid, "no")
		}}
		mustFail(t, connect(t, svc, era), "exec", map[string]any{"command": "x", "keepAlive": true}, -32600)
		if list := all(t, svc); len(list) != 0 {
			t.Errorf("left: %+v", list)
		}
	})
}

func TestModernSandboxHasNoSession(t *testing.T) {
	t.Parallel()
	svc := &fakeservice.Service{}
	ss := connect(t, svc, modern)
	do(t, ss, "exec", map[string]any{"command": "x"})
	if req := svc.Created()[0]; req.OnIdle != hutch.IdleDestroy || req.SleepAfter != 300 {
		t.Errorf("made with %+v", req)
	}
	ss.Close()
	do(t, connect(t, svc, modern), "getSandbox", map[string]any{"sandboxId": all(t, svc)[0].ID})
}

func TestCloseEndsCallsAndSessions(t *testing.T) {
	inBothEras(t, func(t *testing.T, era string) {
		started, killed := make(chan struct{}, 1), make(chan struct{}, 1)
		svc := &fakeservice.Service{OnExec: hanging(started, killed)}
		h, url := serve(t, svc, mcp.Options{})
		ss := dial(t, url, era, nil)
		go callWith(t.Context(), ss, map[string]any{"command": "x"})
		<-started
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		if err := h.Close(ctx); err != nil {
			t.Fatal(err)
		}
		<-killed
		eventually(t, "no sandbox is left", func() bool { return len(all(t, svc)) == 0 })
	})
}

// TestCancelled cancels a call: by a notification in the older revisions, by hanging up in the modern one.
func TestCancelled(t *testing.T) {
	inBothEras(t, func(t *testing.T, era string) {
		started, killed := make(chan struct{}, 1), make(chan struct{}, 1)
		svc := &fakeservice.Service{OnExec: hanging(started, killed)}
		ss := connect(t, svc, era)
		ctx, cancel := context.WithCancel(t.Context())
		go func() { <-started; cancel() }()
		callWith(ctx, ss, map[string]any{"command": "x"})
		within(t, killed, "the command is killed")
		eventually(t, "its sandbox is gone", func() bool { return len(all(t, svc)) == 0 })
	})
}

func TestDeleteKillsWhatRuns(t *testing.T) {
	t.Parallel()
	started, killed := make(chan struct{}, 1), make(chan struct{}, 1)
	svc := &fakeservice.Service{OnExec: hanging(started, killed)}
	_, url := serve(t, svc, mcp.Options{})
	ss := dial(t, url, older, nil)
	go callWith(t.Context(), ss, map[string]any{"command": "x"})
	<-started
	req, _ := http.NewRequestWithContext(t.Context(), http.MethodDelete, url, nil)
	req.Header.Set("Mcp-Session-Id", ss.ID())
	resp, err := http.DefaultClient.Do(req)
	if err != nil || resp.StatusCode != http.StatusNoContent {
		t.Fatalf("delete: %v %v", resp, err)
	}
	resp.Body.Close()
	within(t, killed, "the command is killed")
	eventually(t, "no sandbox is left", func() bool { return len(all(t, svc)) == 0 })
}

// TestDisconnect drops the connection during a call. In the older revisions that does not cancel the call.
func TestDisconnect(t *testing.T) {
	t.Parallel()
	started, killed := make(chan struct{}, 1), make(chan struct{}, 1)
	svc := &fakeservice.Service{OnExec: hanging(started, killed)}
	h, url := serve(t, svc, mcp.Options{})
	ss := dial(t, url, older, nil)
	ctx, cancel := context.WithCancel(t.Context())
	req, _ := http.NewRequestWithContext(ctx, http.MethodPost, url,
		strings.NewReader(`{"jsonrpc":"2.0","id":77,"method":"tools/call","params":{"name":"exec","arguments":{"command":"x"}}}`))
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	req.Header.Set("Mcp-Session-Id", ss.ID())
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		if resp, err := http.DefaultClient.Do(req); err == nil {
			resp.Body.Close()
		}
	}()
	<-started
	cancel()
	<-gone
	do(t, ss, "getSandbox", nil) // a further round trip, in which a wrong cancel would show
	select {
	case <-killed:
		t.Error("a lost connection killed the command")
	default:
	}
	h.Close(t.Context())
	within(t, killed, "closing kills it")
}
