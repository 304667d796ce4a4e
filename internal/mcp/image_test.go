package mcp_test

import (
	"fmt"
	"strings"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"hutch"
	"hutch/internal/fakeservice"
	"hutch/internal/mcp"
)

// A new sandbox has the image that exec names; an existing sandbox keeps its image.
func TestImageOfExec(t *testing.T) {
	inBothEras(t, func(t *testing.T, era string) {
		svc := &fakeservice.Service{}
		_, url := serve(t, svc, mcp.Options{})
		ss := dial(t, url, era, nil)
		res, err := ss.CallTool(t.Context(), &sdk.CallToolParams{Name: "exec", Arguments: map[string]any{"command": "true", "image": "python:3.12-slim", "keepAlive": true}})
		if err != nil || res.IsError {
			t.Fatalf("%+v, %v", res, err)
		}
		all, err := svc.Sandboxes(t.Context(), hutch.Filter{})
		if err != nil || len(all) != 1 || all[0].Image != "python:3.12-slim" {
			t.Fatalf("the sandboxes are %+v, %v", all, err)
		}
		res, err = ss.CallTool(t.Context(), &sdk.CallToolParams{Name: "exec", Arguments: map[string]any{"command": "true", "image": "node:22", "sandboxId": all[0].ID}})
		got := fmt.Sprint(err)
		if err == nil {
			got = res.Content[0].(*sdk.TextContent).Text
		}
		if !strings.Contains(got, "leave out image") {
			t.Errorf("another image for an existing sandbox: %s", got)
		}
	})
}
