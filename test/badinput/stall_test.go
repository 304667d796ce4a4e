package badinput

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"hutch"
	"hutch/internal/engine"
	"hutch/internal/hutchtest"
)

// A stopped runtime costs time, but never a sandbox: a command is answered soon after its time limit, health checks
// only report it, and everything continues afterwards.
func TestStoppedRuntime(t *testing.T) {
	t.Parallel()
	var dir string
	e := hutchtest.Engine(t, "gvisor", func(o *engine.Options) { dir, o.HealthEvery = o.Dir, 2*time.Second })
	b := &bed{Service: e, runtime: "gvisor"}
	id := b.sandbox(t, hutch.CreateRequest{})
	if r, err := b.Exec(t.Context(), id, hutch.ExecRequest{SessionID: "s", Command: "kept=variable"}, nil); err != nil || !r.Success() {
		t.Fatal(err)
	}
	all := sentries(t, filepath.Join(dir, "gvisor"))
	signal := func(sig unix.Signal) {
		for _, pid := range all {
			if err := unix.Kill(pid, sig); err != nil {
				t.Error(err)
			}
		}
	}
	signal(unix.SIGSTOP)
	defer signal(unix.SIGCONT)
	began := time.Now()
	_, err := b.Exec(t.Context(), id, hutch.ExecRequest{Command: "true", Timeout: 3}, nil)
	if took := time.Since(began); !errors.Is(err, hutch.Unavailable) || took > 13*time.Second {
		t.Errorf("answered after %v: %v", took, err)
	}
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end) && time.Since(began) < 15*time.Second; time.Sleep(100 * time.Millisecond) {
		if sb, err := b.Sandbox(t.Context(), id); err != nil || sb.Status != hutch.Running {
			t.Fatalf("while it is paused: %+v, %v", sb, err)
		}
	}
	signal(unix.SIGCONT)
	r, err := b.Exec(t.Context(), id, hutch.ExecRequest{SessionID: "s", Command: "echo $kept"}, nil)
	if err != nil || string(r.Stdout) != "variable\n" {
		t.Errorf("it continues: %q, %v", r.Stdout, err)
	}
}

// sentries returns the processes that are the kernels of the sandboxes in dir.
func sentries(t *testing.T, dir string) (pids []int) {
	t.Helper()
	entries, err := os.ReadDir("/proc")
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		args, _ := os.ReadFile(filepath.Join("/proc", entry.Name(), "cmdline"))
		if bytes.Contains(args, []byte("\x00--root="+dir+"/")) && bytes.Contains(args, []byte("\x00boot\x00")) {
			pids = append(pids, pid)
		}
	}
	if len(pids) == 0 {
		t.Fatal("no sentry was found")
	}
	return pids
}
