package mcp

import (
	"strings"
	"testing"

	"hutch"
)

// The description of a sandbox has the health of its processes, and the beginning of the output of a failed check.
func TestDescribeHealth(t *testing.T) {
	t.Parallel()
	fine, failed := 0, 1
	sb := hutch.Sandbox{ID: "box", Processes: []hutch.Process{
		{ID: "p-1", Name: "plain", PID: 7, Status: hutch.ProcessRunning},
		{ID: "p-2", Name: "good", PID: 7, Status: hutch.ProcessRunning, Health: &hutch.ProcessHealth{Status: hutch.HealthGood, ExitCode: &fine, Output: "quiet"}},
		{ID: "p-3", Name: "bad", Status: hutch.ProcessRunning, Health: &hutch.ProcessHealth{Status: hutch.HealthUnhealthy, ExitCode: &failed, Output: "no\nanswer " + strings.Repeat("ä", maxHealthShown)}},
		{ID: "p-4", Name: "new", PID: 7, Status: hutch.ProcessRunning, Health: &hutch.ProcessHealth{Status: hutch.HealthStarting}},
		{ID: "p-5", Name: "ended", Status: hutch.ProcessExited, Command: "true"},
	}}
	lines := strings.Split(describe(sb), "\n")
	if len(lines) != 6 {
		t.Fatalf("%q", lines)
	}
	for i, want := range []string{`"plain" running, pid`, `"good" running, healthy, pid`, `"bad" running, unhealthy (the last check ended with exit code 1: "no`, `"new" running, starting, pid`, `"ended" exited: true`} {
		if !strings.Contains(lines[i+1], want) {
			t.Errorf("%q has no %s", lines[i+1], want)
		}
	}
	if strings.Contains(lines[2], "quiet") || len(lines[3]) > 2*maxHealthShown {
		t.Errorf("too much is said: %q", lines)
	}
}
