package pidfd

import (
	"errors"
	"os"
	"os/exec"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func sleeper(t *testing.T) (pid int, started uint64) {
	t.Helper()
	cmd := exec.Command("sleep", "300")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	started, err := Started(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	return cmd.Process.Pid, started
}

func TestKillAndWait(t *testing.T) {
	t.Parallel()
	pid, started := sleeper(t)
	p, err := Open(pid, started)
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- p.Wait() }()
	if p.Dead() {
		t.Error("dead before it was killed")
	}
	if err := p.Kill(); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-ended:
		if err != nil || !p.Dead() {
			t.Errorf("%v, dead: %v", err, p.Dead())
		}
	case <-time.After(10 * time.Second):
		t.Fatal("no process was notified")
	}
	if err := p.Kill(); err != nil {
		t.Errorf("kill of the dead: %v", err)
	}
	p.Close()
	if err := p.Kill(); err != nil {
		t.Errorf("kill of the closed: %v", err)
	}
	if !p.Dead() {
		t.Error("alive, though closed")
	}
}

func TestOpenTellsProcessesApart(t *testing.T) {
	t.Parallel()
	pid, started := sleeper(t)
	if _, err := Open(pid, started+1); !errors.Is(err, os.ErrProcessDone) {
		t.Errorf("a stranger of the same number: %v", err)
	}
	if _, err := Open(1<<22+1, started); !errors.Is(err, os.ErrProcessDone) {
		t.Errorf("a number that no process has: %v", err)
	}
}

func TestAdopt(t *testing.T) {
	t.Parallel()
	pid, _ := sleeper(t)
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		t.Fatal(err)
	}
	p, err := Adopt(fd, pid)
	if err != nil || p.PID() != pid || p.Dead() {
		t.Errorf("%v", err)
	}
	p.Close()
}
