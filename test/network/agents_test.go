package network

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"hutch"
	"hutch/internal/coding"
	"hutch/internal/hutchtest"
	"hutch/internal/hutchtest/messages"
)

// claudeCode returns the program of the npm package in package.json.
func claudeCode(t *testing.T) string {
	t.Helper()
	arch := map[string]string{"amd64": "x64"}[runtime.GOARCH]
	if arch == "" {
		arch = runtime.GOARCH
	}
	path := filepath.Join("node_modules/@anthropic-ai/claude-code-linux-"+arch, "claude")
	if _, err := os.Stat(path); err != nil {
		hutchtest.Skip(t, "Claude Code is not there: run `npm ci --prefix test/network`")
	}
	return path
}

// withSecrets is a service that has the secrets of a vault, as agents need it.
type withSecrets struct {
	hutch.Service
	vault hutch.Secrets
}

func (s withSecrets) Secrets(ctx context.Context) ([]hutch.Secret, error) {
	return s.vault.Secrets(ctx)
}

// model answers like a model that uses a tool for each prompt, and then reports that.
func model(r messages.Request) messages.Answer {
	command, number := "", 0
	for _, m := range r.Messages {
		for line := range strings.Lines(m.Content.Text()) {
			if text, ok := strings.CutPrefix(line, "RUN "); ok && m.Role == "user" {
				command = strings.TrimSpace(text)
				number++
			}
		}
	}
	switch {
	case len(r.Results()) > 0:
		return messages.Text(fmt.Sprintf("Prompt %d is done.", number))
	case command == "" || !r.Has("Bash"):
		return messages.Text("ok")
	}
	return messages.Answer{Blocks: []messages.Block{messages.TextBlock("I run it."), messages.ToolUse(fmt.Sprint("toolu_", r.Number), "Bash", map[string]string{"command": command, "description": "what the prompt says"})}}
}

// TestCodingAgent: the real Claude Code works on a private repository, with a key and a password that it never sees,
// remembers its first prompt in the second, and works on in a copy.
func TestCodingAgent(t *testing.T) {
	program := claudeCode(t)
	each(t, func(t *testing.T, runtime string) {
		w := newWorld(t)
		srv := messages.New(model)
		srv.Key = "sk-ant-" + apiKey
		w.model = srv
		v := w.vaulted(t, runtime)
		v.sandbox(t, hutch.CreateRequest{}) // skips the test if sandboxes have no network
		s := openClaude(t, v, program)
		if state, err := v.Network(t.Context(), s.ID); err != nil || len(state.Network.Allow) > 0 {
			t.Errorf("after the clone it reaches %v, %v", state.Network.Allow, err)
		}
		said := ""
		show := func(e coding.Event) error {
			said += fmt.Sprintf("%s %s %s\n", e.Type, e.Tool, e.Text)
			return nil
		}
		res, err := s.Prompt(t.Context(), "RUN echo fixed >fixed.txt; env; cat .git/config; cat /proc/*/environ 2>/dev/null | tr '\\0' '\\n'", 2*time.Minute, show)
		if err != nil || !res.Success || res.Answer != "Prompt 1 is done." || !strings.Contains(res.Diff, "+fixed\n") || res.Usage.InputTokens == 0 {
			t.Fatalf("%+v, %v\n%s", res, err, said)
		}
		for _, want := range []string{"called Bash echo fixed", "said  I run it.", "ANTHROPIC_API_KEY="} {
			if !strings.Contains(said, want) {
				t.Errorf("the events lack %q:\n%s", want, said)
			}
		}
		if strings.Contains(said, apiKey) {
			t.Errorf("the agent has seen a key:\n%s", said)
		}
		copies, err := s.Fork(t.Context(), 1)
		if err != nil {
			t.Fatal(err)
		}
		res, err = copies[0].Prompt(t.Context(), "RUN echo again >again.txt", 2*time.Minute, show)
		if err != nil || !res.Success || res.Answer != "Prompt 2 is done." || res.Files != 2 {
			t.Errorf("in a copy: %+v, %v\n%s", res, err, said)
		}
		if got := srv.Last().Key(); got != srv.Key {
			t.Errorf("the model got the key %q", got)
		}
	})
}

// openClaude clones the world's private repository into a sandbox with the program.
func openClaude(t *testing.T, v *vaulted, program string) *coding.Session {
	t.Helper()
	d, err := coding.Named("claude")
	if err != nil {
		t.Fatal(err)
	}
	const bin = "/workspace/.bin/"
	d.Command, d.Resume = bin+d.Command, bin+d.Resume
	repo := coding.Repository{GitCloneRequest: hutch.GitCloneRequest{URL: "https://" + allowed + "/repo.git", Username: "x", Password: apiKey}}
	s, err := coding.Open(t.Context(), withSecrets{v.Engine, v.vault}, d, hutch.CreateRequest{Image: "host", Secrets: []string{"API_KEY"}, Limits: hutch.Limits{Memory: 2048, Disk: 1024}}, repo)
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(program)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := v.WriteFile(context.WithoutCancel(t.Context()), s.ID, hutch.WriteRequest{Path: bin + "claude", Mode: 0o755, Parents: true}, f); err != nil {
		t.Fatal(err)
	}
	return s
}
