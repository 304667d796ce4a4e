package engine_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"hutch"
	"hutch/internal/engine"
)

// No sandbox gets more than the server gives at most, and a request for nothing
// gets what is usual, or that.
func TestCeilings(t *testing.T) {
	b := start(t, func(o *engine.Options) {
		o.MaxLimits = hutch.Limits{CPU: 0.5, Memory: 256, Disk: 2048, PIDs: 100}
	})
	sb := b.create(t, hutch.CreateRequest{ID: "usual"})
	if want := (hutch.Limits{CPU: 0.5, Memory: 256, Disk: 1024, PIDs: 100, Processes: 10}); sb.Limits != want {
		t.Errorf("limits %+v, want %+v", sb.Limits, want)
	}
	b.create(t, hutch.CreateRequest{ID: "most", Limits: hutch.Limits{CPU: 0.5, Memory: 256, Disk: 2048, PIDs: 100, Processes: 1000}})
	for name, l := range map[string]hutch.Limits{"cpu": {CPU: 0.6}, "memory": {Memory: 257}, "disk": {Disk: 2049}, "pids": {PIDs: 101}} {
		_, err := b.Create(t.Context(), hutch.CreateRequest{Limits: l})
		if !errors.Is(err, hutch.Invalid) || !strings.Contains(fmt.Sprint(err), "--max-"+name) {
			t.Errorf("%s over the ceiling: %v", name, err)
		}
	}
}

// What is kept of every sandbox, and handed to each of its programs, is bounded.
func TestRecordsAreBounded(t *testing.T) {
	b := start(t, nil)
	many := map[string]string{}
	for i := range 50_000 {
		many[fmt.Sprint("V", i)] = "a value"
	}
	for name, req := range map[string]hutch.CreateRequest{
		"a long variable": {Env: map[string]string{"A": strings.Repeat("x", 1<<20)}},
		"many variables":  {Env: many},
		"a long label":    {Labels: map[string]string{"a": strings.Repeat("x", 1<<10)}},
		"many labels":     {Labels: many},
		"endless pids":    {Limits: hutch.Limits{PIDs: 1 << 23}},
	} {
		if _, err := b.Create(t.Context(), req); !errors.Is(err, hutch.Invalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	b.create(t, hutch.CreateRequest{ID: "a"})
	if _, err := b.Exec(t.Context(), "a", hutch.ExecRequest{Command: "true", Env: many}, nil); !errors.Is(err, hutch.Invalid) {
		t.Errorf("a command with many variables: %v", err)
	}
}
