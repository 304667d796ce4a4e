package mcp_test

import (
	"context"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"hutch"
	"hutch/internal/caller"
	"hutch/internal/fakeservice"
)

// TestTrace: a call becomes part of the trace in its _meta.
func TestTrace(t *testing.T) {
	inBothEras(t, func(t *testing.T, era string) {
		const trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
		seen := make(chan string, 1)
		svc := &fakeservice.Service{OnExec: func(ctx context.Context, _ string, _ hutch.ExecRequest, _ func(hutch.Output) error) (hutch.ExecResult, error) {
			seen <- caller.From(ctx).Trace
			return hutch.ExecResult{}, nil
		}}
		ss := connect(t, svc, era)
		for _, meta := range []any{trace, "junk", 7} {
			_, err := ss.CallTool(t.Context(), &sdk.CallToolParams{
				Meta: sdk.Meta{"traceparent": meta}, Name: "exec", Arguments: map[string]any{"command": "true"},
			})
			want := ""
			if meta == trace {
				want = trace
			}
			if got := <-seen; err != nil || got != want {
				t.Errorf("%v: %q, %v", meta, got, err)
			}
		}
	})
}
