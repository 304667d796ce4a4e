package images

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"hutch"
	"hutch/internal/hutchtest/server"
)

// TestRunners: an image with the labels of a runner is a language of conversations.
func TestRunners(t *testing.T) {
	each(t, func(t *testing.T, b *bed) {
		for _, image := range []string{"shout:1", "mute:1"} {
			if _, err := b.PullImage(t.Context(), hutch.PullRequest{Image: image}, nil); err != nil {
				t.Fatal(err)
			}
		}
		var list struct {
			Runners []struct{ Language, Version string }
		}
		b.tool(t, "sandbox.list_runners", map[string]any{}, &list)
		found := ""
		for _, r := range list.Runners {
			if r.Language == "shout" {
				found = r.Version
			}
		}
		if !strings.Contains(found, "shout:1") || len(list.Runners) < 3 {
			t.Errorf("the runners: %+v", list.Runners)
		}
		for _, c := range []struct{ language, code, want string }{
			{"shout", "one", "ONE 1000 /data [it's]"},
			{"bash", "cat all; echo two >> all", "one"},
			{"Shout", "three", "THREE 1000 /data [it's]"},
			{"python", "print(open('all').read().split())", "['one', 'two', 'three']"},
		} {
			var res struct {
				Stdout, Stderr string
				ExitCode       int
				Files          []struct{ Name string }
			}
			b.tool(t, "sandbox.run_code", map[string]any{"conversationId": "chat", "language": c.language, "code": c.code}, &res)
			if strings.TrimSpace(res.Stdout) != c.want || res.ExitCode != 0 {
				t.Errorf("%s %q printed %q, %q, exit code %d", c.language, c.code, res.Stdout, res.Stderr, res.ExitCode)
			}
			if made := len(res.Files) == 1 && res.Files[0].Name == "all"; made != (c.language != "python") {
				t.Errorf("%s made %v", c.language, res.Files)
			}
		}
		if text := b.tool(t, "sandbox.run_code", map[string]any{"conversationId": "chat", "language": "mute", "code": "x"}, nil); !strings.Contains(text, "ENTRYPOINT") {
			t.Errorf("a runner without a program: %s", text)
		}
	})
}

// tool calls a tool of conversations and returns the answer.
func (b *bed) tool(t *testing.T, name string, args map[string]any, into any) string {
	t.Helper()
	body, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": map[string]any{"name": name, "arguments": args}})
	if err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(t.Context(), "POST", b.URL+"/mcp", bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header = http.Header{"Authorization": {"Bearer " + server.Token}, "Content-Type": {"application/json"}}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var text bytes.Buffer
	if _, err := text.ReadFrom(resp.Body); err != nil {
		t.Fatal(err)
	}
	var answer struct {
		Result struct{ StructuredContent json.RawMessage }
	}
	if into == nil {
		return text.String()
	}
	if err := json.Unmarshal(text.Bytes(), &answer); err != nil {
		t.Fatalf("%v: %s", err, text.String())
	}
	if err := json.Unmarshal(answer.Result.StructuredContent, into); err != nil {
		t.Fatalf("%v: %s", err, text.String())
	}
	return text.String()
}
