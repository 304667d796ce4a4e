package spawn_test

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"hutch/internal/linux/seccomp"
	"hutch/internal/linux/spawn"
)

// run starts c with its output in a pipe. It returns the output and how the program ended.
func run(t *testing.T, c spawn.Command) (string, syscall.WaitStatus) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	c.Files = [3]int{int(null.Fd()), int(w.Fd()), int(w.Fd())}
	pid, err := spawn.Start(c)
	w.Close()
	if err != nil {
		t.Fatal(err)
	}
	out, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return string(out), reap(t, pid)
}

func reap(t testing.TB, pid int) syscall.WaitStatus {
	t.Helper()
	var status syscall.WaitStatus
	for {
		_, err := syscall.Wait4(pid, &status, 0, nil)
		if err == nil {
			return status
		}
		if err != syscall.EINTR {
			t.Fatal(err)
		}
	}
}

func shell(script string) spawn.Command {
	return spawn.Command{Path: "/bin/sh", Argv: []string{"sh", "-c", script}, Env: os.Environ()}
}

func TestStart(t *testing.T) {
	t.Parallel()
	c := shell(`echo "$0 $GREETING"; pwd; exit 7`)
	c.Argv[0] = "sh"
	c.Env = []string{"GREETING=hello"}
	c.Dir = "/usr"
	out, status := run(t, c)
	if out != "sh hello\n/usr\n" || status.ExitStatus() != 7 {
		t.Errorf("printed %q and exited with %d", out, status.ExitStatus())
	}
}

func TestChildHasNothingOfItsParent(t *testing.T) {
	t.Parallel()
	leak, err := os.Open("/")
	if err != nil {
		t.Fatal(err)
	}
	defer leak.Close()
	fd, err := syscall.Dup(int(leak.Fd())) // without close-on-exec
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Close(fd)

	out, _ := run(t, shell(`ls /proc/self/fd | wc -l; grep NoNewPrivs /proc/self/status; cut -d' ' -f5,6 /proc/self/stat; echo $$ $$`))
	lines := strings.Split(strings.TrimSpace(out), "\n")
	// One of the four descriptors is the one that lists the folder. The shell is the leader of its children's group and
	// session.
	if len(lines) != 4 || lines[0] != "4" || lines[1] != "NoNewPrivs:\t1" || lines[2] != lines[3] {
		t.Errorf("%q", lines)
	}
}

func TestSignalsAreAsByDefault(t *testing.T) {
	t.Parallel()
	out, _ := run(t, shell(`grep -E '^Sig(Blk|Ign)' /proc/self/status`))
	if out == "" {
		t.Skip("this kernel does not tell")
	}
	var blocked, ignored uint64
	if _, err := fmt.Sscanf(out, "SigBlk: %x\nSigIgn: %x\n", &blocked, &ignored); err != nil {
		t.Fatalf("%q: %v", out, err)
	}
	// glibc uses 32 and 33 itself, and its posix_spawn leaves them ignored, so they are ignored in all programs that
	// make starts.
	if ignored &^= 1<<31 | 1<<32; blocked != 0 || ignored != 0 {
		t.Errorf("%q", out)
	}
}

func TestOrphansStayBelow(t *testing.T) {
	t.Parallel()
	out, _ := run(t, shell(`
		orphan=$(setsid sh -c 'sleep 60 >/dev/null 2>&1 & echo $!')
		cut -d' ' -f4 /proc/$orphan/stat; echo $$; kill $orphan`))
	lines := strings.Fields(out)
	if len(lines) != 2 || lines[0] != lines[1] {
		t.Errorf("an orphan's parent is not the root: %q", lines)
	}
}

func TestErrors(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	plain := filepath.Join(dir, "plain")
	if err := os.WriteFile(plain, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	fd := int(null.Fd())
	for name, tt := range map[string]struct {
		c     spawn.Command
		step  spawn.Step
		errno syscall.Errno
	}{
		"no such program": {spawn.Command{Path: "/none", Argv: []string{"none"}}, spawn.Exec, syscall.ENOENT},
		"no program":      {spawn.Command{Path: plain, Argv: []string{"plain"}}, spawn.Exec, syscall.EACCES},
		"no such folder":  {spawn.Command{Path: "/bin/true", Argv: []string{"true"}, Dir: dir + "/none"}, spawn.Chdir, syscall.ENOENT},
		"no folder":       {spawn.Command{Path: "/bin/true", Argv: []string{"true"}, Dir: plain}, spawn.Chdir, syscall.ENOTDIR},
		"zero byte":       {spawn.Command{Path: "/bin/true", Argv: []string{"a\x00b"}}, spawn.Exec, syscall.EINVAL},
		"huge argument":   {spawn.Command{Path: "/bin/true", Argv: []string{strings.Repeat("x", 200<<10)}}, spawn.Exec, syscall.E2BIG},
	} {
		tt.c.Files = [3]int{fd, fd, fd}
		pid, err := spawn.Start(tt.c)
		if pid != 0 {
			reap(t, pid)
		}
		e, ok := errors.AsType[*spawn.Error](err)
		if !ok || e.Step != tt.step || e.Errno != tt.errno {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestUser(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		t.Skip("only root can start programs as another user")
	}
	c := shell("id -u; id -g; id -G; grep CapEff /proc/self/status")
	c.User = &spawn.User{UID: 12345, GID: 54321, Groups: []int{77, 78}}
	out, _ := run(t, c)
	if out != "12345\n54321\n54321 77 78\nCapEff:\t0000000000000000\n" {
		t.Errorf("runs as %q", out)
	}
}

func TestReadAll(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		t.Skip("only root can start programs as another user")
	}
	shut := filepath.Join(t.TempDir(), "shut")
	if err := os.WriteFile(shut, []byte("read\n"), 0); err != nil {
		t.Fatal(err)
	}
	c := shell("id -u; cat " + shut + "; echo x 2>&- >" + shut + " || grep -E 'Cap(Eff|Prm)' /proc/self/status")
	c.User, c.ReadAll = &spawn.User{UID: 12345, GID: 54321}, true
	if out, _ := run(t, c); out != "12345\nread\nCapPrm:\t0000000000000004\nCapEff:\t0000000000000004\n" {
		t.Errorf("runs as %q", out)
	}
}

func TestMaxFiles(t *testing.T) {
	t.Parallel()
	c := shell("ulimit -n")
	c.MaxFiles = 100
	if out, _ := run(t, c); out != "100\n" {
		t.Errorf("limit is %q", out)
	}
}

func TestOffer(t *testing.T) {
	t.Parallel()
	c := shell("cat /proc/self/oom_score_adj")
	c.Offer = true
	if out, _ := run(t, c); out != "1000\n" {
		t.Errorf("the child's score is %q", out)
	}
}

// Many starts in parallel, with garbage collections in between, show whether a child damages its parent's memory.
func TestParallel(t *testing.T) {
	t.Parallel()
	for range 8 {
		t.Run("", func(t *testing.T) {
			t.Parallel()
			for range 50 {
				if out, _ := run(t, shell("echo hello")); out != "hello\n" {
					t.Errorf("printed %q", out)
				}
			}
		})
	}
}

func BenchmarkTrue(b *testing.B) {
	null, err := os.Open(os.DevNull)
	if err != nil {
		b.Fatal(err)
	}
	defer null.Close()
	fd := int(null.Fd())
	b.Run("spawn", func(b *testing.B) {
		for range b.N {
			pid, err := spawn.Start(spawn.Command{Path: "/bin/true", Argv: []string{"true"}, Env: os.Environ(), Files: [3]int{fd, fd, fd}})
			if err != nil {
				b.Fatal(err)
			}
			reap(b, pid)
		}
	})
	b.Run("ForkExec", func(b *testing.B) {
		for range b.N {
			pid, err := syscall.ForkExec("/bin/true", []string{"true"}, &syscall.ProcAttr{Env: os.Environ(), Files: []uintptr{uintptr(fd), uintptr(fd), uintptr(fd)}})
			if err != nil {
				b.Fatal(err)
			}
			reap(b, pid)
		}
	})
	b.Run("os-exec", func(b *testing.B) {
		for range b.N {
			if err := exec.Command("/bin/true").Run(); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// The filter applies to the child from before it executes its program, and not to its parent.
func TestFilter(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("only root can load a filter without no_new_privs")
	}
	filter, err := seccomp.Ancestry(seccomp.NewPass())
	if err != nil {
		t.Fatal(err)
	}
	const asks = `grep ^Seccomp: /proc/self/status`
	without, _ := run(t, shell(asks))
	if without == "Seccomp:\t2\n" {
		t.Skip("this test is under a filter itself")
	}
	c := shell(asks)
	c.Filter = filter
	if out, _ := run(t, c); out != "Seccomp:\t2\n" {
		t.Errorf("the child says %q", out)
	}
	if again, _ := run(t, shell(asks)); again != without {
		t.Errorf("a later child without a filter says %q, and one before it said %q", again, without)
	}
}

// A child whose filter is refused does not execute.
func TestFilterThatIsNone(t *testing.T) {
	t.Parallel()
	for _, filter := range [][]byte{make([]byte, 7), make([]byte, 8)} { // not a whole instruction; one without a verdict
		c := shell("true")
		c.Filter = filter
		null, err := os.Open(os.DevNull)
		if err != nil {
			t.Fatal(err)
		}
		defer null.Close()
		c.Files = [3]int{int(null.Fd()), int(null.Fd()), int(null.Fd())}
		pid, err := spawn.Start(c)
		if e, ok := errors.AsType[*spawn.Error](err); !ok || e.Step != spawn.Setup {
			t.Errorf("a filter of %d bytes: %v", len(filter), err)
		}
		if pid != 0 {
			reap(t, pid)
		}
	}
}
