package mcp_test

import (
	"context"
	"strings"
	"testing"

	"hutch"
	"hutch/internal/fakeservice"
)

// waited holds the fields of a result that the tests look at.
type waited struct {
	Status string
	Met    bool
	Output string
	Cursor int64
	More   bool
}

// printed returns a service with a process "x" that has printed text.
func printed(t *testing.T, text string) (*fakeservice.Service, string) {
	svc := &fakeservice.Service{OnLogs: func(_ context.Context, req hutch.LogsRequest, out func(hutch.Output) error) (int64, error) {
		for c := req.Cursor; c < int64(len(text)); {
			n := min(c+7000, int64(len(text)))
			if err := out(hutch.Output{Stream: hutch.Stdout, Data: []byte(text[c:n]), Cursor: n}); err != nil {
				return c, err
			}
			c = n
		}
		return int64(len(text)), nil
	}}
	if _, err := svc.Create(t.Context(), hutch.CreateRequest{ID: "a"}); err != nil {
		t.Fatal(err)
	}
	p, err := svc.StartProcess(t.Context(), "a", hutch.ProcessRequest{Command: "x"})
	if err != nil {
		t.Fatal(err)
	}
	return svc, p.ID
}

func TestWaitProcess(t *testing.T) {
	inBothEras(t, func(t *testing.T, era string) {
		svc, p := printed(t, "ready\n")
		var asked hutch.WaitRequest
		svc.OnWait = func(_ context.Context, p hutch.Process, req hutch.WaitRequest) (hutch.WaitResult, error) {
			asked = req
			return hutch.WaitResult{Process: p, TimedOut: true}, nil
		}
		ss := connect(t, svc, era)
		res := do(t, ss, "waitProcess", map[string]any{"sandboxId": "a", "processId": p, "stdin": "yes\n", "signal": 2, "text": "ready", "cursor": 3, "timeout": 2})
		var got waited
		fill(t, res, &got)
		if asked != (hutch.WaitRequest{Text: "ready", Cursor: 3, Timeout: 2}) || svc.Written(p) != "yes\n" || len(svc.Signals()) != 1 {
			t.Errorf("asked for %+v, wrote %q, signals %v", asked, svc.Written(p), svc.Signals())
		}
		if got != (waited{"running", false, "dy\n", 6, false}) || !strings.Contains(text(res), "has not come") {
			t.Errorf("%+v: %s", got, text(res))
		}
		asked = hutch.WaitRequest{}
		do(t, ss, "waitProcess", map[string]any{"sandboxId": "a", "processId": p, "timeout": 0})
		if asked != (hutch.WaitRequest{}) {
			t.Errorf("a look waits: %+v", asked)
		}
		if _, f := try(t, ss, "waitProcess", map[string]any{"sandboxId": "a", "processId": "p-none"}); f == nil {
			t.Error("no process is no error")
		}
		if _, f := try(t, ss, "waitProcess", map[string]any{"sandboxId": "a"}); f == nil || !strings.Contains(f.Message, "processId is missing") {
			t.Errorf("%+v", f)
		}
	})
}

// TestWaitProcessReadsOn: all of a long output can be read in bounded pieces.
func TestWaitProcessReadsOn(t *testing.T) {
	inBothEras(t, func(t *testing.T, era string) {
		all := strings.Repeat("0123456789abcde\n", 3000) + "end"
		svc, p := printed(t, all)
		ss := connect(t, svc, era)
		var got waited
		res := do(t, ss, "waitProcess", map[string]any{"sandboxId": "a", "processId": p})
		fill(t, res, &got)
		if got.Output != all[len(all)-20000:] || got.More || got.Cursor != int64(len(all)) || !strings.Contains(text(res), "28003 bytes before this") {
			t.Errorf("the newest: %d bytes, %+v, %.200s", len(got.Output), got.Cursor, text(res))
		}
		read := ""
		for got.Cursor = 0; ; {
			fill(t, do(t, ss, "waitProcess", map[string]any{"sandboxId": "a", "processId": p, "cursor": got.Cursor}), &got)
			if read += got.Output; !got.More {
				break
			}
		}
		if read != all {
			t.Errorf("%d bytes, not %d", len(read), len(all))
		}
	})
}
