package wrap_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"hutch"
	"hutch/internal/verb"
	"hutch/internal/wrap"
)

// named answers with its own name.
type named struct {
	hutch.Service
	name string
}

func (n named) Sandbox(context.Context, string) (hutch.Sandbox, error) {
	return hutch.Sandbox{ID: n.name}, nil
}

// TestTo: a hook redirects a call to another service. Wrappers below are not redirected with it.
func TestTo(t *testing.T) {
	t.Parallel()
	pass := func(ctx context.Context, _ verb.Call, _ any, run func(context.Context) error) error { return run(ctx) }
	var s *wrap.Service
	below := &wrap.Service{Next: named{name: "there"}, Hook: pass}
	s = &wrap.Service{Next: named{name: "here"}, Hook: func(ctx context.Context, c verb.Call, _ any, run func(context.Context) error) error {
		if c.Sandbox == "far" {
			ctx = wrap.To[hutch.Service](ctx, s, below)
		}
		return run(ctx)
	}}
	for id, want := range map[string]string{"near": "here", "far": "there"} {
		if sb, err := s.Sandbox(t.Context(), id); err != nil || sb.ID != want {
			t.Errorf("%s: %s, %v", id, sb.ID, err)
		}
	}
}

// TestAllGoThere: To redirects every verb. In a fleet, a verb that ignored To would be called on the wrong machine.
func TestAllGoThere(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("*.go")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for i, line := range strings.Split(string(text), "\n") {
			if !strings.HasSuffix(file, "_test.go") && strings.Contains(line, "s.Next.") {
				t.Errorf("%s:%d calls Next itself: call next(ctx, s) instead", file, i+1)
			}
		}
	}
}
