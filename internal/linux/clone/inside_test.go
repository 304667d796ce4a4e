package clone

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// child starts a shell in namespaces, and returns its pid, its pidfd, and our ends of its input and output.
func child(t *testing.T, script string, namespaces uint64) (pid, pidfd int, in, out *os.File) {
	t.Helper()
	stdin, in, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { in.Close() })
	out, stdout, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { out.Close() })
	pid, pidfd, err = Start(Command{
		Path: "/bin/sh", Argv: []string{"sh", "-c", script}, Files: []int{int(stdin.Fd()), int(stdout.Fd()), 2},
		Namespaces: unix.CLONE_NEWUSER | namespaces,
	})
	stdin.Close()
	stdout.Close()
	if err != nil {
		t.Skipf("no user namespaces here: %v", err)
	}
	t.Cleanup(func() {
		in.Close()
		reap(t, pid)
		unix.Close(pidfd)
	})
	return pid, pidfd, in, out
}

func TestSocket(t *testing.T) {
	t.Parallel()
	pid, pidfd, _, _ := child(t, "read go", unix.CLONE_NEWNET)
	fd, err := Socket(pidfd)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	space, err := unix.IoctlRetInt(fd, unix.SIOCGSKNS) // a descriptor of the socket's network namespace
	if err != nil {
		t.Skipf("the kernel does not tell whose a socket is: %v", err)
	}
	defer unix.Close(space)
	var its, theirs, ours unix.Stat_t
	if err := errors.Join(unix.Fstat(space, &its), unix.Stat(fmt.Sprintf("/proc/%d/ns/net", pid), &theirs), unix.Stat("/proc/thread-self/ns/net", &ours)); err != nil {
		t.Fatal(err)
	}
	if its.Ino != theirs.Ino || its.Ino == ours.Ino {
		t.Errorf("the socket is in the namespace %d; the process in %d, and we in %d", its.Ino, theirs.Ino, ours.Ino)
	}
	if fd, err := Socket(-1); fd != -1 || !errors.Is(err, syscall.EBADF) {
		t.Errorf("nobody's: %d, %v", fd, err)
	}
}

func TestSetHostname(t *testing.T) {
	t.Parallel()
	_, fd, in, out := child(t, "read go; uname -n", unix.CLONE_NEWUTS)
	ours, _ := os.Hostname()
	var all sync.WaitGroup
	for range 20 { // shows whether a child damages its parent's memory
		all.Go(func() {
			if err := SetHostname(fd, "other"); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if err := SetHostname(fd, strings.Repeat("x", 65)); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("a name too long: %v", err)
	}
	in.Close()
	if b, err := io.ReadAll(out); err != nil || string(b) != "other\n" {
		t.Errorf("%q, %v", b, err)
	}
	if now, _ := os.Hostname(); now != ours {
		t.Errorf("we are %q now, and were %q", now, ours)
	}
	if d, err := unix.PrctlRetInt(unix.PR_GET_DUMPABLE, 0, 0, 0, 0); d != 1 {
		t.Errorf("others may not look into us any more: %d, %v", d, err)
	}
	if err := SetHostname(-1, "x"); !errors.Is(err, syscall.EBADF) {
		t.Errorf("nobody's: %v", err)
	}
}

const holderEnv = "HUTCH_TEST_HOLDER"

// TestHolder is a process that TestNamespaceEndsWithItsMaker kills while it makes a namespace.
func TestHolder(t *testing.T) {
	if os.Getenv(holderEnv) == "" {
		return
	}
	UsersBy(func(pid int) error {
		fmt.Println("child", pid)
		select {}
	})
}

// A process that is killed while it makes a user namespace leaves no child.
func TestNamespaceEndsWithItsMaker(t *testing.T) {
	t.Parallel()
	cmd := exec.Command(os.Args[0], "-test.run=^TestHolder$")
	cmd.Env = append(os.Environ(), holderEnv+"=1")
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	var pid int
	if _, err := fmt.Fscanf(out, "child %d\n", &pid); err != nil {
		cmd.Process.Kill()
		cmd.Wait()
		t.Skipf("no user namespaces here: %v", err)
	}
	cmd.Process.Kill()
	cmd.Wait()
	for range 500 {
		if err := syscall.Kill(pid, 0); errors.Is(err, syscall.ESRCH) {
			return
		}
		if state, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid)); strings.Contains(string(state), ") Z ") {
			return // the orphan waits for its new parent
		}
		time.Sleep(10 * time.Millisecond)
	}
	syscall.Kill(pid, syscall.SIGKILL)
	t.Errorf("process %d is left", pid)
}
