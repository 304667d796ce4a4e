package mcp_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"hutch"
	"hutch/internal/fakeservice"
	"hutch/internal/mcp"
)

func TestUnknownSandbox(t *testing.T) {
	inBothEras(t, func(t *testing.T, era string) {
		svc := &fakeservice.Service{}
		svc.Create(t.Context(), hutch.CreateRequest{ID: "here"})
		ss := connect(t, svc, era)
		for tool, args := range map[string]map[string]any{
			"exec":                   {"command": "true", "sandboxId": "gone"},
			"getSandbox":             {"sandboxId": "gone"},
			"startBackgroundProcess": {"sandboxId": "gone", "command": "x", "name": "x"},
		} {
			f := mustFail(t, ss, tool, args, -32001)
			if f.Data["sandboxId"] != "gone" {
				t.Errorf("%s: data %v", tool, f.Data)
			}
			if list, ok := f.Data["availableSandboxes"].([]any); !ok || len(list) != 1 || list[0] != "here" {
				t.Errorf("%s: available %v", tool, f.Data["availableSandboxes"])
			}
		}
	})
}

func TestTimeLimit(t *testing.T) {
	inBothEras(t, func(t *testing.T, era string) {
		svc := &fakeservice.Service{OnExec: ending(hutch.ExecResult{ExitCode: 137, TimedOut: true, Stdout: []byte("half\n"), Stderr: []byte("way\n"), Duration: 1500 * time.Millisecond})}
		ss := connect(t, svc, era)
		f := mustFail(t, ss, "exec", map[string]any{"command": "sleep 9", "timeout": 1.5}, -32002)
		id := all(t, svc)[0].ID // a sandbox for the next cases
		for k, want := range map[string]any{
			"stdout": "half\n", "stderr": "way\n", "exitCode": 137.0, "timedOut": true, "truncated": false, "executionTime": 1500.0, "sandboxId": id,
		} {
			if f.Data[k] != want {
				t.Errorf("data[%q] is %v, want %v", k, f.Data[k], want)
			}
		}
		if !strings.Contains(f.Message, "1.5 s") {
			t.Errorf("message %q", f.Message)
		}
	})
}

func TestResourceLimit(t *testing.T) {
	inBothEras(t, func(t *testing.T, era string) {
		ss := connect(t, &fakeservice.Service{OnExec: ending(hutch.ExecResult{ExitCode: 137, Limit: "memory", Stdout: []byte("big")})}, era)
		f := mustFail(t, ss, "exec", map[string]any{"command": "x"}, -32003)
		if f.Data["limit"] != "memory" || f.Data["stdout"] != "big" {
			t.Errorf("data %v", f.Data)
		}
	})
}

// TestErrorTable shows every kind of error to a client.
func TestErrorTable(t *testing.T) {
	inBothEras(t, func(t *testing.T, era string) {
		for _, c := range []struct {
			err  error
			code int64
		}{
			{hutch.Errorf(hutch.Invalid, "no").With("field", "command"), -32004},
			{hutch.Errorf(hutch.Invalid, "no").With("field", "language"), -32004},
			{hutch.Errorf(hutch.Unsupported, "no").With("field", "language"), -32004},
			{hutch.Errorf(hutch.Invalid, "no").With("field", "cwd"), -32600},
			{hutch.Errorf(hutch.Invalid, "no"), -32600},
			{hutch.Errorf(hutch.Denied, "no"), -32000},
			{hutch.Errorf(hutch.NotFound, "no"), -32001},
			{hutch.Errorf(hutch.Conflict, "no"), -32000},
			{hutch.Errorf(hutch.Exhausted, "no").With("limit", "sandboxes"), -32003},
			{hutch.Errorf(hutch.Unsupported, "no"), -32000},
			{hutch.Errorf(hutch.Unavailable, "no"), -32000},
			{hutch.Errorf(hutch.Timeout, "no"), -32002},
			{hutch.Errorf(hutch.Internal, "no"), -32000},
			{context.DeadlineExceeded, -32000},
		} {
			svc := &fakeservice.Service{OnExec: func(context.Context, string, hutch.ExecRequest, func(hutch.Output) error) (hutch.ExecResult, error) {
				return hutch.ExecResult{}, c.err
			}}
			ss := connect(t, svc, era)
			f := mustFail(t, ss, "exec", map[string]any{"command": "x"}, c.code)
			if f.Data["kind"] != string(hutch.KindOf(c.err)) {
				t.Errorf("%v: kind %v", c.err, f.Data["kind"])
			}
			if list, _ := svc.Sandboxes(t.Context(), hutch.Filter{}); len(list) != 0 {
				t.Errorf("%v: left the sandbox that was made for the call", c.err)
			}
		}
	})
}

func TestPanicIsOneCallsError(t *testing.T) {
	inBothEras(t, func(t *testing.T, era string) {
		svc := &fakeservice.Service{OnExec: func(context.Context, string, hutch.ExecRequest, func(hutch.Output) error) (hutch.ExecResult, error) {
			panic("a secret path")
		}}
		ss := connect(t, svc, era)
		f := mustFail(t, ss, "exec", map[string]any{"command": "x"}, -32000)
		if strings.Contains(f.Message, "secret") {
			t.Errorf("message %q tells the panic", f.Message)
		}
		do(t, ss, "getSandbox", nil)
	})
}

func TestBadArguments(t *testing.T) {
	inBothEras(t, func(t *testing.T, era string) {
		svc := &fakeservice.Service{}
		ss := connect(t, svc, era)
		for _, c := range []struct {
			tool string
			args any
			code int64
			say  string
		}{
			{"exec", map[string]any{}, -32004, "command is missing"},
			{"exec", map[string]any{"command": ""}, -32004, "command is missing"},
			{"exec", map[string]any{"command": 7}, -32004, "the argument command of exec is a number and must be a string"},
			{"exec", map[string]any{"command": "x", "timeout": "soon"}, -32600, "timeout of exec is a string and must be a number"},
			{"exec", map[string]any{"command": "x", "env": []string{"A=b"}}, -32600, "env of exec is an array and must be an object"},
			{"exec", map[string]any{"command": "x", "env": map[string]any{"PORT": 8080}}, -32600, "env.PORT of exec is a number and must be a string"},
			{"getSandbox", map[string]any{"filters": map[string]any{"colour": "red"}}, -32600, `no argument "filters.colour"`},
			{"exec", map[string]any{"command": "x", "cmd": "y"}, -32600, `no argument "cmd": it takes command, cwd, env`},
			{"exec", map[string]any{"command": "x", "sandboxId": "NOT/ok"}, -32600, "id"},
			{"getSandbox", map[string]any{"filters": map[string]any{"createdAfter": "yesterday"}}, -32600, "ISO 8601"},
			{"startBackgroundProcess", map[string]any{"sandboxId": "a", "name": "x"}, -32004, "command is missing"},
			{"startBackgroundProcess", map[string]any{"sandboxId": "a", "command": "x"}, -32600, "name is missing"},
			{"destroySandbox", map[string]any{}, -32600, "sandboxId is missing"},
			{"destroySandbox", map[string]any{"sandboxId": "a", "force": "yes"}, -32600, "true or false"},
		} {
			f := mustFail(t, ss, c.tool, c.args, c.code)
			if !strings.Contains(f.Message, c.say) {
				t.Errorf("%s %v: message %q does not say %q", c.tool, c.args, f.Message, c.say)
			}
		}
		if len(svc.Created()) != 0 {
			t.Error("a refused call made a sandbox")
		}
	})
}

// TestRawCodes looks at the raw messages, without a client in between.
func TestRawCodes(t *testing.T) {
	t.Parallel()
	_, url := serve(t, &fakeservice.Service{}, mcp.Options{})
	for _, c := range []struct {
		body   string
		status int
		code   float64
	}{
		{`{"jsonrpc":"2.0","id":1,"method":`, 400, -32700},
		{`not json at all`, 400, -32700},
		{`{"hello":"world"}`, 400, -32600},
		{`{"jsonrpc":"1.0","id":1,"method":"tools/list"}`, 400, -32600},
		{`[]`, 400, -32600},
		{`7`, 400, -32600},
	} {
		for _, version := range eras {
			status, _, msg := post(t, url, c.body, "MCP-Protocol-Version", version)
			e, _ := msg["error"].(map[string]any)
			if status != c.status || e["code"] != c.code || msg["id"] != nil {
				t.Errorf("%s: %s: %d %v, want %d and code %v", version, c.body, status, msg, c.status, c.code)
			}
		}
	}
}
