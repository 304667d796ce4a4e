package worker_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"hutch/internal/hutchtest"
	"hutch/internal/hutchtest/managedagents"
)

// TestProgram: hutch worker claude with its own engine serves a session, shows its key to no process, and at SIGTERM
// hands the session back and leaves nothing behind.
func TestProgram(t *testing.T) {
	hutchtest.Driver(t, "native", hutchtest.Dir(t))
	api := managedagents.New(t)
	api.Start("sesn_A", nil)
	data := hutchtest.Dir(t)
	cmd := exec.Command(hutchtest.Program(t, "hutch"), "worker", "claude", api.Environment, "--local", "--runtime", "native", "--drain", "1s", "--data", data)
	cmd.Env = append(os.Environ(), "ANTHROPIC_ENVIRONMENT_KEY="+api.Key, "ANTHROPIC_BASE_URL="+api.URL())
	var said hutchtest.Buffer
	cmd.Stderr, cmd.Stdout = &said, &said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill() })
	if got := api.Do(t, "sesn_A", "bash", map[string]any{"command": "env; id -u"}); got.Error || strings.Contains(got.Text, api.Key) {
		t.Errorf("a call: %v", got)
	}
	open := api.Use("sesn_A", "bash", map[string]any{"command": "sleep 100"})
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("after SIGTERM: %v\n%s", err, said.String())
	}
	if got := api.Results("sesn_A", open); len(got) > 0 {
		t.Errorf("a call that was handed back has the results %v", got)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(said.String())
		}
	})
	// The session is queued for the next worker, or is claimed by a request for work that the program has just broken
	// off. In the second case its lease ends unused.
	api.Await(t, "sesn_A", "queued", "starting")
	if strings.Contains(said.String(), api.Key) {
		t.Error("the log has the key")
	}
	left, err := filepath.Glob(filepath.Join(data, "embedded", "*"))
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}
