package engine_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"hutch"
	"hutch/internal/engine"
)

// No sandbox gets limits above the server's ceilings. A request without limits gets the defaults, or the ceilings where
// these are lower.
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

// An instance type sets the limits that a request leaves out. The server's ceilings apply to these limits too. The
// record names the type, also in a copy of the sandbox.
func TestInstanceTypes(t *testing.T) {
	b := start(t, func(o *engine.Options) {
		o.MaxLimits = hutch.Limits{Memory: 1 << 10, Disk: 1 << 20, PIDs: 100}
		o.Types = append([]hutch.InstanceType{{Name: "own", CPU: 3, Memory: 100, Disk: 50}}, hutch.InstanceTypes...)
	})
	for name, c := range map[string]struct {
		req  hutch.CreateRequest
		want hutch.Limits
	}{
		"lite":        {hutch.CreateRequest{InstanceType: "lite"}, hutch.Limits{CPU: 0.0625, Memory: 256, Disk: 2048, PIDs: 100, Processes: 10}},
		"own":         {hutch.CreateRequest{InstanceType: "own"}, hutch.Limits{CPU: 3, Memory: 100, Disk: 50, PIDs: 100, Processes: 10}},
		"with limits": {hutch.CreateRequest{InstanceType: "basic", Limits: hutch.Limits{CPU: 2, PIDs: 50}}, hutch.Limits{CPU: 2, Memory: 1024, Disk: 4096, PIDs: 50, Processes: 10}},
		"over a ceiling, but for a limit": {hutch.CreateRequest{InstanceType: "standard-1", Limits: hutch.Limits{Memory: 64}},
			hutch.Limits{CPU: 0.5, Memory: 64, Disk: 8192, PIDs: 100, Processes: 10}},
	} {
		if sb := b.create(t, c.req); sb.Limits != c.want || sb.InstanceType != c.req.InstanceType {
			t.Errorf("%s: %q %+v, want %+v", name, sb.InstanceType, sb.Limits, c.want)
		}
	}
	for req, words := range map[string]string{"standard-1": "limits.memory is 4096 MiB", "huge": "use own, lite, basic, standard-1"} {
		if _, err := b.Create(t.Context(), hutch.CreateRequest{InstanceType: req}); !errors.Is(err, hutch.Invalid) || !strings.Contains(fmt.Sprint(err), words) {
			t.Errorf("the type %s: %v", req, err)
		}
	}
	b.create(t, hutch.CreateRequest{ID: "first", InstanceType: "own"})
	snap, err := b.Snapshot(t.Context(), "first", hutch.SnapshotRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if sb := b.create(t, hutch.CreateRequest{Snapshot: snap.ID}); sb.InstanceType != "own" || sb.Limits.CPU != 3 {
		t.Errorf("the copy has the type %q and %+v", sb.InstanceType, sb.Limits)
	}
	if _, err := b.Create(t.Context(), hutch.CreateRequest{Snapshot: snap.ID, InstanceType: "lite"}); !errors.Is(err, hutch.Invalid) {
		t.Errorf("a copy with another type: %v", err)
	}
}

// The record of a sandbox, and the environment that its programs get, are bounded.
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
