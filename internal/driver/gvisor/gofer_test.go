package gvisor

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"hutch/internal/image"
)

// The gofer is a separate program, and neither it nor the sentry has more rights than in gVisor itself.
func TestConfined(t *testing.T) {
	t.Parallel()
	inst, _ := create(t, newDriver(t, t.TempDir()), spec("gofer"))
	dir := fmt.Sprintf("/proc/%d", inst.procs.Gofer.PID)
	exe, err := os.Stat(dir + "/exe")
	if err != nil {
		t.Fatal(err)
	}
	if want, err := os.Stat(built(t, "hutch-gofer")); err != nil || !os.SameFile(exe, want) {
		t.Errorf("the gofer is not hutch-gofer (%v)", err)
	}
	checkRights(t, inst.procs.Gofer, "000000000004001f", "000000000004001f")
	checkRights(t, inst.procs.Sentry, "000000000008001f", "0000000000000000")
	// The gofer sees only the image of the host, and its root is in the image.
	for link, want := range map[string]string{"root": "/root", "cwd": "/root"} {
		if got, err := os.Readlink(dir + "/" + link); err != nil || got != want {
			t.Errorf("%s is %s (%v), want %s", link, got, err, want)
		}
	}
}

// When the host's memory runs out, the kernel kills sandboxes before it kills the daemon.
func TestOfferedFirst(t *testing.T) {
	t.Parallel()
	inst, _ := create(t, newDriver(t, t.TempDir()), spec("offered"))
	own := score(t, os.Getpid())
	for _, p := range []process{inst.procs.Sentry, inst.procs.Gofer} {
		if got := score(t, p.PID); got <= own {
			t.Errorf("process %d has %d, this one %d", p.PID, got, own)
		}
	}
}

func score(t *testing.T, pid int) (n int) {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/oom_score_adj", pid))
	if err == nil {
		_, err = fmt.Sscan(string(text), &n)
	}
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// checkRights checks that the permitted and inheritable capabilities of all threads of a process are exactly those that
// gVisor gives it.
func checkRights(t *testing.T, p process, has, passed string) {
	t.Helper()
	threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", p.PID))
	if len(threads) == 0 {
		t.Fatal("no threads")
	}
	for _, file := range threads {
		text, err := os.ReadFile(file)
		if err != nil {
			continue // the thread has just ended
		}
		for name, want := range map[string]string{
			"CapPrm": has, "CapEff": has, "CapBnd": has, "CapInh": passed, "CapAmb": passed, "NoNewPrivs": "1", "Seccomp": "2",
		} {
			if !strings.Contains(string(text), "\n"+name+":\t"+want+"\n") {
				t.Errorf("%s: %s is not %s", file, name, want)
			}
		}
	}
}

// An idle sandbox uses little memory, not counting the programs inside.
func TestIdleMemory(t *testing.T) {
	t.Parallel()
	inst, _ := create(t, newDriver(t, t.TempDir()), spec("idle"))
	limit := int64(9<<20 + runtime.NumCPU()*256<<10) // Go's runtime has caches for each core
	deadline := time.Now().Add(20 * time.Second)
	for {
		sentry, gofer := inst.procs.Sentry.anonymous(), inst.procs.Gofer.anonymous()
		if sentry+gofer <= limit {
			t.Logf("sentry %d KiB, gofer %d KiB", sentry>>10, gofer>>10)
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("sentry %d KiB, gofer %d KiB, at most %d together", sentry>>10, gofer>>10, limit>>10)
		}
		<-time.After(10 * time.Millisecond)
	}
}

// A masked path is hidden if the host has it, and if the host gets it later.
func TestMasks(t *testing.T) {
	t.Parallel()
	const target = "/usr/local/games"
	d, dir := newDriver(t, t.TempDir()), t.TempDir()
	s := spec("masks")
	if _, ok := s.Root.Resolve(target); !ok {
		t.Skipf("this host has no %s to lay a folder over", target)
	}
	write := func(text string, names ...string) {
		for _, name := range names {
			path := filepath.Join(dir, name)
			if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644)); err != nil {
				t.Fatal(err)
			}
		}
	}
	write("secret", "pip.conf", "lib/npmrc")
	write("shown", "shown", "lib/shown")
	s.Root.Binds = append(slices.Clone(s.Root.Binds), image.Bind{Source: dir, Target: target})
	s.Root.Masks = slices.Clone(s.Root.Masks)
	for _, name := range []string{"pip.conf", "lib/npmrc", "lib/late", ".env", "etc/deep/auth"} {
		s.Root.Masks = append(s.Root.Masks, target+"/"+name)
		s.Root.Binds = append(s.Root.Binds, image.Bind{Source: os.DevNull, Target: target + "/" + name})
	}
	_, agent := create(t, d, s)
	// If a folder was listed before, gVisor would list it from its memory.
	write("later", ".env", "etc/deep/auth", "lib/late", "new")
	if err := os.Remove(filepath.Join(dir, "pip.conf")); err != nil {
		t.Fatal(err)
	}
	write("later", "pip.conf")
	const command = "cd " + target + "; cat pip.conf lib/npmrc lib/late .env etc/deep/auth 2>/dev/null; cat shown lib/shown; find . | grep -c -e .env -e etc -e late"
	if out, _, err := run(t, agent, command); err != nil || out != "shownshown0" {
		t.Errorf("%q, %v", out, err)
	}
}
