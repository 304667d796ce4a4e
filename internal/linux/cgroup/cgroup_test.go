package cgroup

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// host returns the tree of this machine.
func host(t *testing.T) *Tree {
	tree, err := Find()
	if err == nil {
		return tree
	}
	if os.Getenv("CI") != "" && os.Geteuid() == 0 {
		t.Fatal(err)
	}
	t.Skip(err)
	return nil
}

// group makes a group that is removed at the end of the test.
func group(t *testing.T, l Limits) *Group {
	g, err := host(t).New(fmt.Sprintf("test%d-%s", os.Getpid(), strings.ToLower(t.Name())), l)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(g.Kill(), g.Remove(within(t, 5*time.Second))); err != nil {
			t.Error(err)
		}
	})
	return g
}

func within(t *testing.T, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), d)
	t.Cleanup(cancel)
	return ctx
}

// start starts a shell script in the group.
func start(t *testing.T, g *Group, script string) *exec.Cmd {
	cmd := exec.Command("/bin/bash", "-c", "read; "+script)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if err := g.Add(cmd.Process.Pid); err != nil {
		cmd.Process.Kill()
		t.Fatal(err)
	}
	fmt.Fprintln(in)
	return cmd
}

func TestKillTakesATreeThatForks(t *testing.T) {
	t.Parallel()
	g := group(t, Limits{PIDs: 50})
	cmd := start(t, g, "f() { while :; do f & sleep 0.01; done }; f")
	await(t, "the bomb to fill its limit", func() bool {
		u, err := g.Usage()
		return err == nil && u.PIDs >= 40
	})
	if err := g.Kill(); err != nil {
		t.Fatal(err)
	}
	cmd.Wait()
	if err := g.Remove(within(t, 5*time.Second)); err != nil {
		t.Fatal(err)
	}
	if g.Exists() {
		t.Error("the group exists after Remove")
	}
}

func TestMemoryLimitKillsAndCounts(t *testing.T) {
	t.Parallel()
	g := group(t, Limits{Memory: 20 << 20})
	cmd := start(t, g, "head -c 100m /dev/zero | tail")
	cmd.Wait()
	u, err := g.Usage()
	if err != nil || u.OOMKills == 0 {
		t.Errorf("usage %+v, %v: no process was killed for lack of memory", u, err)
	}
}

func TestCPULimitHolds(t *testing.T) {
	t.Parallel()
	g := group(t, Limits{CPU: 0.1})
	cmd := start(t, g, "while :; do :; done")
	begin := time.Now()
	await(t, "some use of CPU", func() bool { // the kernel allows a little more, for a moment
		u, err := g.Usage()
		return err == nil && u.CPU > 200*time.Millisecond
	})
	if d := time.Since(begin); d < 800*time.Millisecond {
		t.Errorf("200 ms of CPU took %v with a tenth of a core", d)
	}
	cmd.Process.Kill()
	cmd.Wait()
}

func TestSweepRemovesWhatIsNotKept(t *testing.T) {
	t.Parallel()
	tree := host(t)
	prefix := fmt.Sprintf("test%d-sweep-", os.Getpid())
	for _, name := range []string{"a", "b"} {
		if _, err := tree.New(prefix+name, Limits{}); err != nil {
			t.Fatal(err)
		}
	}
	ctx := within(t, 5*time.Second)
	n, err := tree.Sweep(ctx, prefix, func(rest string) bool { return rest == "b" })
	if n != 1 || err != nil || tree.Open(prefix+"a").Exists() || !tree.Open(prefix+"b").Exists() {
		t.Errorf("swept %d, %v", n, err)
	}
	if n, err := tree.Sweep(ctx, prefix, nil); n != 1 || err != nil {
		t.Errorf("swept %d, %v", n, err)
	}
}

// If two servers start at the same time, one can make the common folder, and the other can use the folder before the
// first has enabled the controllers in it.
func TestFolderWithoutControllersYet(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	control := filepath.Join(dir, "cgroup.subtree_control")
	if err := os.WriteFile(control, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := mkdirIn(dir, "g"); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(control); err != nil || string(got) != "+cpu +memory +pids" {
		t.Errorf("%q is passed down, %v", got, err)
	}
}

func TestNameCannotLeaveTheTree(t *testing.T) {
	t.Parallel()
	tree := &Tree{base2: t.TempDir()}
	for _, name := range []string{"", ".", "..", "a/b", "../x", ".hidden", "a\x00"} {
		if _, err := tree.New(name, Limits{}); err == nil {
			t.Errorf("New(%q) made a group", name)
		}
	}
}

// fake2 is a folder with the files of a version 2 group.
func fake2(t *testing.T, files map[string]string) *Group {
	tree := &Tree{base2: t.TempDir()}
	g := tree.Open("g")
	if err := os.MkdirAll(g.dirs()[0], 0o755); err != nil {
		t.Fatal(err)
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(g.dirs()[0], name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return g
}

func TestVersion2Limits(t *testing.T) {
	t.Parallel()
	g := fake2(t, map[string]string{"cpu.max": "", "memory.max": "", "memory.swap.max": "", "pids.max": ""})
	if err := g.limit(Limits{CPU: 0.5, Memory: 1 << 20, PIDs: 7}); err != nil {
		t.Fatal(err)
	}
	for file, want := range map[string]string{
		"cpu.max": "50000 100000", "memory.max": "1048576", "memory.swap.max": "0", "pids.max": "7",
	} {
		if b, _ := os.ReadFile(filepath.Join(g.dirs()[0], file)); string(b) != want {
			t.Errorf("%s = %q, want %q", file, b, want)
		}
	}
}

func TestVersion2Usage(t *testing.T) {
	t.Parallel()
	g := fake2(t, map[string]string{
		"cpu.stat":       "usage_usec 1500000\nuser_usec 9\n",
		"memory.current": "1000\n", "memory.peak": "2000\n", "memory.stat": "anon 5\ninactive_file 400\nactive_file 100\n",
		"memory.events": "low 0\noom 3\noom_kill 2\n", "pids.current": "4\n",
	})
	want := Usage{CPU: 1500 * time.Millisecond, Memory: 500, MemoryPeak: 2000, PIDs: 4, OOMKills: 2}
	if u, err := g.Usage(); u != want || err != nil {
		t.Errorf("usage %+v, %v; want %+v", u, err, want)
	}
}

func TestFind(t *testing.T) {
	t.Parallel()
	tmp := t.TempDir()
	for _, dir := range []string{"unified/user/scope/" + leaf, "cpu,cpuacct", "memory", "pids"} {
		os.MkdirAll(filepath.Join(tmp, dir), 0o755)
	}
	for _, dir := range []string{"", "user/scope", "user/scope/" + leaf} {
		os.WriteFile(filepath.Join(tmp, "unified", dir, "cgroup.controllers"), []byte("cpuset cpu io memory pids\n"), 0o644)
	}
	v1 := line(tmp, "cpu,cpuacct", "cgroup") + line(tmp, "memory", "cgroup") + line(tmp, "pids", "cgroup")
	v2 := line(tmp, "unified", "cgroup2")
	for _, c := range []struct {
		name, mounts, own string
		root              bool
		want              string // bases, relative to the host's folder
	}{
		{"version 2 as root", v2, "0::/user/scope\n", true, "/unified"},
		{"version 2 for a user", v2, "0::/user/scope\n", false, "/unified/user/scope"},
		{"version 2 from the leaf", v2, "0::/user/scope/" + leaf + "\n", false, "/unified/user/scope"},
		{"version 1", v1, "4:cpu,cpuacct:/x\n", true, "/cpu,cpuacct /memory /pids"},
		{"both", v1 + v2, "0::/\n", true, "/unified"},
		{"none", line(tmp, "memory", "cgroup"), "", true, ""},
	} {
		proc := t.TempDir()
		os.WriteFile(filepath.Join(proc, "mountinfo"), []byte(c.mounts), 0o644)
		os.WriteFile(filepath.Join(proc, "cgroup"), []byte(c.own), 0o644)
		tree, err := find(proc, c.root)
		if c.want == "" {
			if !errors.Is(err, ErrNone) {
				t.Errorf("%s: %v", c.name, err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		if got := strings.ReplaceAll(strings.Join(tree.bases(), " "), tmp, ""); got != c.want {
			t.Errorf("%s: bases %q, want %q", c.name, got, c.want)
		}
	}
}

func line(host, dir, kind string) string {
	return fmt.Sprintf("1 2 0:3 / %s rw shared:1 - %s none rw,%s\n", filepath.Join(host, dir), kind, dir)
}

func await(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); !ok(); {
		if time.Now().After(deadline) {
			t.Fatalf("waited 10 s for %s", what)
		}
		time.Sleep(2 * time.Millisecond)
	}
}
