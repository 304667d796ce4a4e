//go:build compat

package compat_test

import (
	"encoding/json"
	"testing"

	"hutch/internal/daemon"
)

// TestConcurrentCommands runs 1,500 commands at the same time with E2B's SDK, in 30 sandboxes. No command may fail.
func TestConcurrentCommands(t *testing.T) {
	url, token := serveE2BWith(t, func(c *daemon.Config) { c.Sandboxes.Max = 100 })
	out := runNode(t, "concurrent_client.mjs", append(e2bEnv(url, token), "COMMANDS=1500", "BOXES=30")...)
	var got struct {
		Done     int
		Failures map[string]int
		Seconds  float64
	}
	if err := json.Unmarshal([]byte(out), &got); err != nil {
		t.Fatalf("it printed %q: %v", out, err)
	}
	t.Logf("%d commands in %.0f s", got.Done, got.Seconds)
	if got.Done != 1500 || len(got.Failures) > 0 {
		t.Errorf("%d of 1500 commands succeeded; of the others: %v", got.Done, got.Failures)
	}
}
