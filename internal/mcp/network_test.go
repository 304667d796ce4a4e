package mcp_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"hutch"
	"hutch/internal/fakeservice"
	"hutch/internal/mcp"
)

func TestNetworkTool(t *testing.T) {
	inBothEras(t, func(t *testing.T, era string) {
		svc := &fakeservice.Service{}
		_, url := serve(t, svc, mcp.Options{})
		if _, err := svc.Create(t.Context(), hutch.CreateRequest{ID: "box"}); err != nil {
			t.Fatal(err)
		}
		ss := dial(t, url, era, nil)
		for _, c := range []struct {
			args map[string]any
			want string
		}{
			{map[string]any{"allow": []string{"Example.com", "10.0.0.0/8:5432"}}, "allow example.com\nallow 10.0.0.0/8:5432\ndenied dns evil.example.net: no rule"},
			{map[string]any{"deny": []string{"example.com"}}, "allow 10.0.0.0/8:5432\ndenied"},
			{map[string]any{}, `denied dns evil.example.net: no rule is about it` + "\nto allow it, call network with allow, such as [\"evil.example.net\"]"},
			{map[string]any{"allow": []string{"*.example.net"}}, "allow *.example.net"},
			{map[string]any{"deny": []string{"*.example.net"}}, "denied dns"},
			{map[string]any{"mode": "open"}, "box · open ·"},
			{map[string]any{}, "box · open ·"},
			{map[string]any{"allow": []string{"*"}}, "the mode open"},
			{map[string]any{"deny": []string{"example.com"}}, "there is no rule example.com"},
		} {
			c.args["sandboxId"] = "box"
			res, err := ss.CallTool(t.Context(), &sdk.CallToolParams{Name: "network", Arguments: c.args})
			got := fmt.Sprint(err)
			if err == nil {
				got = res.Content[0].(*sdk.TextContent).Text
			}
			if strings.Contains(got, "hutch network") || strings.Contains(got, "allow *.example.net") && strings.Contains(got, "\ndenied") {
				t.Errorf("%v: it advises what cannot be called, or what is done: %s", c.args, got)
			}
			if !strings.Contains(got, c.want) {
				t.Errorf("%v: %s; want %q", c.args, got, c.want)
			}
		}
	})
}

// The result of a command names what the network denied, and which call would allow it. A hostile host name
// cannot add text to that sentence.
func TestDeniedInResults(t *testing.T) {
	inBothEras(t, func(t *testing.T, era string) {
		svc := &fakeservice.Service{OnExec: func(_ context.Context, id string, _ hutch.ExecRequest, _ func(hutch.Output) error) (hutch.ExecResult, error) {
			return hutch.ExecResult{SandboxID: id, ExitCode: 6, Stderr: []byte("Could not resolve host\n"), Denied: []string{"api.example.com", "db.example.com:5432", "x\x1b[2Jy"}}, nil
		}}
		if _, err := svc.Create(t.Context(), hutch.CreateRequest{ID: "box"}); err != nil {
			t.Fatal(err)
		}
		ss := connect(t, svc, era)
		res := do(t, ss, "exec", map[string]any{"command": "curl https://api.example.com", "sandboxId": "box"})
		if got := text(res); !strings.Contains(got, "denied api.example.com, db.example.com:5432") ||
			!strings.Contains(got, `call network with sandboxId box and allow ["api.example.com","db.example.com:5432"`) || strings.Contains(got, "\x1b") {
			t.Errorf("%q", got)
		}
		svc.OnWait = func(_ context.Context, p hutch.Process, _ hutch.WaitRequest) (hutch.WaitResult, error) {
			return hutch.WaitResult{Process: p, Denied: []string{"api.example.com"}}, nil
		}
		p, err := svc.StartProcess(t.Context(), "box", hutch.ProcessRequest{Command: "pip install x"})
		if err != nil {
			t.Fatal(err)
		}
		res = do(t, ss, "waitProcess", map[string]any{"sandboxId": "box", "processId": p.ID})
		if got := text(res); !strings.Contains(got, `call network with sandboxId box and allow ["api.example.com"]`) {
			t.Errorf("waitProcess: %q", got)
		}
	})
}
