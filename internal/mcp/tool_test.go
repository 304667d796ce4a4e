package mcp_test

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"strings"
	"testing"
	"time"

	"hutch"
	"hutch/internal/fakeservice"
	"hutch/internal/mcp"
)

// noSecrets is a service for coding agents that is only good for listing the tools.
type noSecrets struct{ *fakeservice.Service }

func (noSecrets) Secrets(context.Context) ([]hutch.Secret, error) { return nil, nil }

// TestToolList compares the tools that clients see with testdata/tools.json. To change them, run it with UPDATE=1 and
// read the diff.
func TestToolList(t *testing.T) {
	inBothEras(t, func(t *testing.T, era string) {
		_, url := serve(t, &fakeservice.Service{}, mcp.Options{Conversations: talks{}, Agents: noSecrets{&fakeservice.Service{}}})
		ss := dial(t, url, era, nil)
		list, err := ss.ListTools(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		got, err := json.MarshalIndent(list.Tools, "", "  ")
		if err != nil {
			t.Fatal(err)
		}
		var short bytes.Buffer
		json.Compact(&short, got)
		if short.Len() > 16000 {
			t.Errorf("the list has %d bytes, which every model pays for: keep it under 16000", short.Len())
		}
		const golden = "testdata/tools.json"
		if os.Getenv("UPDATE") != "" {
			if err := os.WriteFile(golden, append(got, '\n'), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(golden)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(append(got, '\n'), want) {
			t.Errorf("the tools differ from %s; run with UPDATE=1 if they should. Now:\n%s", golden, got)
		}
		for _, tool := range list.Tools {
			a := tool.Annotations
			if a == nil || a.DestructiveHint == nil || a.OpenWorldHint == nil {
				t.Errorf("%s leaves a hint to its default", tool.Name)
			}
			schemas, _ := json.Marshal([]any{tool.InputSchema, tool.OutputSchema})
			if input, _ := tool.InputSchema.(map[string]any); input["properties"] == nil || bytes.Contains(schemas, []byte(`"null"`)) {
				t.Errorf("%s: some models take no schema without properties, or with null: %s", tool.Name, schemas)
			}
			if len(tool.Description) > 2000 {
				t.Errorf("%s: the description is cut by some clients", tool.Name)
			}
		}
	})
}

func TestCapabilities(t *testing.T) {
	inBothEras(t, func(t *testing.T, era string) {
		ss := connect(t, &fakeservice.Service{}, era)
		caps, err := json.Marshal(ss.InitializeResult().Capabilities)
		if err != nil || string(caps) != `{"tools":{}}` {
			t.Errorf("capabilities %s, %v", caps, err)
		}
		if n := len(ss.InitializeResult().Instructions); n == 0 || n > 2000 {
			t.Errorf("instructions of %d bytes", n)
		}
	})
}

func TestGetSandbox(t *testing.T) {
	inBothEras(t, func(t *testing.T, era string) {
		svc := &fakeservice.Service{}
		ss := connect(t, svc, era)
		if s := text(do(t, ss, "getSandbox", nil)); !strings.Contains(s, "no sandboxes") {
			t.Errorf("empty: %q", s)
		}
		svc.Create(t.Context(), hutch.CreateRequest{ID: "a", KeepAlive: true})
		svc.Create(t.Context(), hutch.CreateRequest{ID: "b"})
		do(t, ss, "startBackgroundProcess", map[string]any{"sandboxId": "a", "name": "web", "command": strings.Repeat("é", 5000)})

		one := do(t, ss, "getSandbox", map[string]any{"sandboxId": "a"})
		var rec map[string]any
		fill(t, one, &rec)
		for _, field := range []string{"sandboxId", "status", "createdAt", "uptime", "resources", "environment", "keepAlive", "health", "processes"} {
			if _, ok := rec[field]; !ok {
				t.Errorf("the record lacks %s", field)
			}
		}
		if _, err := time.Parse(time.RFC3339, rec["createdAt"].(string)); err != nil {
			t.Error(err)
		}
		if s := text(one); !strings.Contains(s, "a running") || !strings.Contains(s, `"web" running`) || len(s) > 1000 {
			t.Errorf("text %q", s)
		}

		var list struct{ Sandboxes []map[string]any }
		fill(t, do(t, ss, "getSandbox", nil), &list)
		if len(list.Sandboxes) != 2 {
			t.Errorf("list %v", list)
		}
		fill(t, do(t, ss, "getSandbox", map[string]any{"filters": map[string]any{"status": "stopped", "createdBefore": "2099-01-01T00:00:00Z"}}), &list)
		if len(list.Sandboxes) != 0 {
			t.Errorf("filtered list %v", list)
		}
	})
}

func TestStartBackgroundProcess(t *testing.T) {
	inBothEras(t, func(t *testing.T, era string) {
		svc := &fakeservice.Service{}
		svc.Create(t.Context(), hutch.CreateRequest{ID: "a"})
		ss := connect(t, svc, era)
		var got map[string]any
		fill(t, do(t, ss, "startBackgroundProcess", map[string]any{
			"sandboxId": "a", "command": "serve", "name": "web", "restartPolicy": "always", "env": map[string]string{"P": "1"}, "cwd": "/tmp",
		}), &got)
		if got["sandboxId"] != "a" || got["status"] != "running" || got["pid"] != 42.0 || got["processId"] == "" || got["startTime"] == nil || len(got) != 5 {
			t.Errorf("result %v", got)
		}
		list, _ := svc.Processes(t.Context(), "a")
		if len(list) != 1 || list[0].RestartPolicy != hutch.RestartAlways || list[0].Name != "web" {
			t.Errorf("processes %+v", list)
		}
	})
}

func TestDestroySandbox(t *testing.T) {
	inBothEras(t, func(t *testing.T, era string) {
		svc := &fakeservice.Service{}
		svc.Create(t.Context(), hutch.CreateRequest{ID: "a"})
		svc.StartProcess(t.Context(), "a", hutch.ProcessRequest{Command: "x"})
		ss := connect(t, svc, era)
		f := mustFail(t, ss, "destroySandbox", map[string]any{"sandboxId": "a"}, -32000)
		if !strings.Contains(f.Message, "force") {
			t.Errorf("message %q", f.Message)
		}
		for range 2 { // twice, because it is idempotent
			var got map[string]any
			fill(t, do(t, ss, "destroySandbox", map[string]any{"sandboxId": "a", "force": true}), &got)
			if got["sandboxId"] != "a" || got["status"] != "destroyed" || got["resourcesReleased"] != true || got["destroyedAt"] == nil {
				t.Errorf("result %v", got)
			}
		}
	})
}
