package clone

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// start runs a shell script in a user and a pid namespace, and returns its pid and our ends of its stdin and output.
func start(t testing.TB, script string) (pid int, in, out *os.File) {
	t.Helper()
	stdin, in, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	out, stdout, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	pid, pidfd, err := Start(Command{
		Path: "/bin/sh", Argv: []string{"sh", "-c", script}, Files: []int{int(stdin.Fd()), int(stdout.Fd()), int(stdout.Fd())},
		Namespaces: unix.CLONE_NEWUSER | unix.CLONE_NEWPID, Capabilities: []uintptr{unix.CAP_SETUID, unix.CAP_BPF},
	})
	stdin.Close()
	stdout.Close()
	if err != nil {
		t.Skipf("no user namespaces here: %v", err)
	}
	unix.Close(pidfd)
	t.Cleanup(func() { in.Close(); out.Close() })
	return pid, in, out
}

func reap(t testing.TB, pid int) syscall.WaitStatus {
	t.Helper()
	var status syscall.WaitStatus
	for {
		if _, err := syscall.Wait4(pid, &status, 0, nil); err == nil {
			return status
		} else if err != syscall.EINTR {
			t.Fatal(err)
		}
	}
}

func TestStart(t *testing.T) {
	t.Parallel()
	pid, in, out := start(t, `read go; echo $$ $(id -u) $(ls /proc/self/fd | wc -w); grep CapEff /proc/self/status; cut -d' ' -f6 /proc/self/stat; exit 7`)
	if err := MapIDs(pid, []ID{{Inside: 5, Outside: os.Geteuid()}}, []ID{{Inside: 6, Outside: os.Getegid()}}); err != nil {
		t.Fatal(err)
	}
	io.WriteString(in, "\n")
	b, err := io.ReadAll(out)
	if err != nil {
		t.Fatal(err)
	}
	// The number of the session is that of the host, because this script sees the host's /proc.
	lines := strings.Split(string(b), "\n")
	if lines[0] != "1 5 4" || lines[1] != "CapEff:\t0000008000000080" || lines[2] == "0" {
		t.Errorf("%q", lines)
	}
	if status := reap(t, pid); status.ExitStatus() != 7 {
		t.Errorf("exit status %d", status.ExitStatus())
	}
}

// A host with version 1 often also has a version 2 hierarchy without controllers, which is enough for this test.
func TestStartsInTheGroup(t *testing.T) {
	t.Parallel()
	var dir string
	for _, base := range []string{"/sys/fs/cgroup", "/sys/fs/cgroup/unified"} {
		var st unix.Statfs_t
		if unix.Statfs(base, &st) == nil && st.Type == unix.CGROUP2_SUPER_MAGIC {
			dir = filepath.Join(base, fmt.Sprint("hutch-clone-test-", os.Getpid()))
		}
	}
	if dir == "" || os.Mkdir(dir, 0o755) != nil {
		t.Skip("no control groups of version 2 to write to")
	}
	defer os.Remove(dir)
	group, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(group)
	out, stdout, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	fd := int(stdout.Fd())
	pid, pidfd, err := Start(Command{
		Path: "/bin/cat", Argv: []string{"cat", "/proc/self/cgroup"}, Files: []int{fd, fd, fd},
		Namespaces: unix.CLONE_NEWUSER, Group: group,
	})
	stdout.Close()
	if err != nil {
		t.Fatal(err)
	}
	unix.Close(pidfd)
	b, err := io.ReadAll(out)
	if err != nil || !strings.Contains(string(b), filepath.Base(dir)) {
		t.Errorf("born in %q, %v", b, err)
	}
	reap(t, pid)
}

func TestErrors(t *testing.T) {
	t.Parallel()
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	fd := int(null.Fd())
	for name, tt := range map[string]struct {
		c    Command
		want syscall.Errno
	}{
		"no program":    {Command{Path: "/none", Files: []int{fd, fd, fd}}, syscall.ENOENT},
		"no file":       {Command{Path: "/bin/true", Files: []int{fd, fd, 1 << 20}}, syscall.EBADF},
		"no namespaces": {Command{Path: "/bin/true", Files: []int{fd}, Namespaces: unix.CLONE_FS | unix.CLONE_NEWNS}, syscall.EINVAL},
		"no capability": {Command{Path: "/bin/true", Files: []int{fd}, Capabilities: []uintptr{63}}, syscall.EINVAL},
	} {
		tt.c.Argv = []string{"true"}
		tt.c.Namespaces |= unix.CLONE_NEWUSER
		if pid, _, err := Start(tt.c); !errors.Is(err, tt.want) {
			t.Errorf("%s: process %d, %v", name, pid, err)
		}
	}
}

// Many starts in parallel, with garbage collections in between, show whether a child damages its parent's memory.
func TestParallel(t *testing.T) {
	t.Parallel()
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 20 {
				pid, _, out := start(t, "echo hello")
				if b, err := io.ReadAll(out); err != nil || string(b) != "hello\n" {
					t.Errorf("%q, %v", b, err)
				}
				reap(t, pid)
			}
		})
	}
	wg.Wait()
}

// A caller with much memory starts a program as quickly as a caller with little memory.
func BenchmarkStart(b *testing.B) {
	null, err := os.Open(os.DevNull)
	if err != nil {
		b.Fatal(err)
	}
	defer null.Close()
	fd := int(null.Fd())
	ballast := make([]byte, 50<<20)
	for i := 0; i < len(ballast); i += 4096 {
		ballast[i] = 1
	}
	b.Run("clone", func(b *testing.B) {
		for range b.N {
			pid, pidfd, err := Start(Command{Path: "/bin/true", Argv: []string{"true"}, Files: []int{fd, fd, fd}, Namespaces: unix.CLONE_NEWUSER})
			if err != nil {
				b.Fatal(err)
			}
			unix.Close(pidfd)
			reap(b, pid)
		}
	})
	b.Run("ForkExec", func(b *testing.B) {
		for range b.N {
			pid, err := syscall.ForkExec("/bin/true", []string{"true"}, &syscall.ProcAttr{Sys: &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWUSER}})
			if err != nil {
				b.Fatal(err)
			}
			reap(b, pid)
		}
	})
	if ballast[4096] != 1 {
		b.Error("the ballast is gone")
	}
}
