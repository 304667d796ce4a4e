package mcp_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"hutch"
	"hutch/internal/fakeservice"
	"hutch/internal/mcp"
)

// A new sandbox has the volumes that exec names; an existing sandbox keeps its volumes.
func TestVolumesOfExec(t *testing.T) {
	inBothEras(t, func(t *testing.T, era string) {
		svc := &fakeservice.Service{}
		_, url := serve(t, svc, mcp.Options{})
		ss := dial(t, url, era, nil)
		exec := func(args map[string]any) string {
			args["command"], args["keepAlive"] = "true", true
			res, err := ss.CallTool(t.Context(), &sdk.CallToolParams{Name: "exec", Arguments: args})
			if err != nil {
				return err.Error()
			}
			return fmt.Sprint(res.IsError, res.Content[0].(*sdk.TextContent).Text)
		}
		if got := exec(map[string]any{"volumes": []string{"data:/data/d", "models:/workspace/models:ro"}}); !strings.HasPrefix(got, "false") {
			t.Fatal(got)
		}
		all, err := svc.Sandboxes(t.Context(), hutch.Filter{})
		want := []hutch.VolumeMount{{Name: "data", Path: "/data/d"}, {Name: "models", Path: "/workspace/models", ReadOnly: true}}
		if err != nil || len(all) != 1 || !slices.Equal(all[0].Volumes, want) {
			t.Fatalf("the sandboxes are %+v, %v", all, err)
		}
		if got := exec(map[string]any{"volumes": []string{"data:/data/d"}, "sandboxId": all[0].ID}); !strings.Contains(got, "leave out volumes") {
			t.Errorf("a volume for an existing sandbox: %s", got)
		}
		if got := exec(map[string]any{"volumes": []string{"data"}}); !strings.Contains(got, "has no path in the sandbox") {
			t.Errorf("a volume without a path: %s", got)
		}
	})
}
