//go:build vm

package vm

import (
	"bytes"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// TestMain runs one of three programs: the tests on the host, the machine's first process, or the tests in the machine,
// which that process starts.
func TestMain(m *testing.M) {
	switch {
	case os.Getpid() == 1:
		fmt.Printf("\n%s%v\n", verdict, first())
		unix.Reboot(unix.LINUX_REBOOT_CMD_POWER_OFF)
	case os.Args[0] != inside:
		flag.Set("test.skip", "^TestInside$")
	}
	os.Exit(m.Run())
}

// inside is the name by which the first process starts the tests.
const inside = "inside"

// first prepares the machine and reaps processes, until its tests end.
func first() any {
	if err := prepare(); err != nil {
		return err
	}
	env := []string{"PATH=/usr/bin", "HOME=/root", "TMPDIR=/tmp", "CI=true"}
	tests, err := syscall.ForkExec("/init", []string{inside, "-test.v", "-test.timeout=8m", "-test.run=" + os.Args[1]},
		&syscall.ProcAttr{Env: env, Files: []uintptr{0, 1, 2}})
	for err == nil {
		var status unix.WaitStatus
		var pid int
		if pid, err = unix.Wait4(-1, &status, 0, nil); pid == tests && status.Exited() {
			return fmt.Sprint("exit status ", status.ExitStatus())
		}
		if err == unix.EINTR {
			err = nil
		}
	}
	return err
}

// prepare mounts the usual file systems, and a new root, because the very first root cannot be pivoted away.
func prepare() error {
	const moved = "/run"
	if err := unix.Mount("/", moved, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("bind the root: %w", err)
	}
	if err := os.Chdir(moved); err != nil {
		return err
	}
	if err := unix.Mount(moved, "/", "", unix.MS_MOVE, ""); err != nil {
		return fmt.Errorf("move the root: %w", err)
	}
	if err := unix.Chroot("."); err != nil {
		return err
	}
	for _, m := range []struct{ kind, dir, data string }{
		{"proc", "/proc", ""}, {"sysfs", "/sys", ""}, {"devtmpfs", "/dev", ""}, {"cgroup2", "/sys/fs/cgroup", ""},
		{"devpts", "/dev/pts", ""}, {"tmpfs", "/dev/shm", "mode=1777"}, {"tmpfs", "/tmp", "mode=1777"}, {"tmpfs", "/run", "mode=755"},
	} {
		os.MkdirAll(m.dir, 0o755)
		if err := unix.Mount(m.kind, m.dir, m.kind, 0, m.data); err != nil {
			return fmt.Errorf("mount %s: %w", m.dir, err)
		}
	}
	return os.WriteFile("/etc/passwd", []byte("root:x:0:0::/root:/bin/bash\nuser:x:1000:1000::/tmp:/bin/bash\n"), 0o644)
}

// TestInside runs in the machine.
func TestInside(t *testing.T) {
	t.Run("Controllers", controllers)
	t.Run("Groups", func(t *testing.T) { pass(t, nil, "cgroup.test", "-test.v") })
	t.Run("Doctor", doctor)
	t.Run("NativeLimits", func(t *testing.T) { limits(t, "native") })
	t.Run("Native", func(t *testing.T) {
		contract(t, nil, "PIDLimit|DestroyEndsWhatRuns|"+grouped, "native.test", "-work="+work(t, 0))
	})
	t.Run("NativeDelegated", nativeDelegated)
	t.Run("Gvisor", func(t *testing.T) {
		contract(t, nil, "UsageIsSane", "gvisor.test") // the rest takes minutes here
	})
	t.Run("GvisorLimits", func(t *testing.T) { limits(t, "gvisor") })
	t.Run("NothingLeft", nothingLeft)
}

// controllers checks that this kernel is of the intended kind.
func controllers(t *testing.T) {
	version, _ := os.ReadFile("/proc/version")
	t.Logf("%s", version)
	have, err := os.ReadFile("/sys/fs/cgroup/cgroup.controllers")
	for _, want := range []string{"cpu", "memory", "pids"} {
		if !strings.Contains(string(have), want) {
			t.Errorf("controllers %q, %v", have, err)
		}
	}
}

// pass runs a program that must succeed, and returns its output.
func pass(t *testing.T, attr *syscall.SysProcAttr, name string, args ...string) string {
	t.Helper()
	out, code := run(t, attr, name, args...)
	if code != 0 {
		t.Errorf("%s %q: exit code %d", name, args, code)
	}
	return out
}

// run runs a program and shows its output as it comes.
func run(t *testing.T, attr *syscall.SysProcAttr, name string, args ...string) (string, int) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.SysProcAttr = attr
	var out bytes.Buffer
	cmd.Stdout = io.MultiWriter(&out, os.Stdout)
	cmd.Stderr = cmd.Stdout
	if err := cmd.Run(); cmd.ProcessState == nil {
		t.Fatal(err)
	}
	return out.String(), cmd.ProcessState.ExitCode()
}

func doctor(t *testing.T) {
	out := pass(t, nil, "hutch", "doctor")
	for _, want := range []string{"gvisor: works", "native: works", "version 2 limits CPU, memory and processes"} {
		if !strings.Contains(out, want) {
			t.Errorf("it does not say %q", want)
		}
	}
}

// limits checks that a sandbox cannot use more than its limits, and that it is reported when it reaches one.
func limits(t *testing.T, runtime string) {
	sandbox := func(command string, flags ...string) string {
		out, _ := run(t, nil, "hutch", append(append([]string{"run", "--no-stdin", "--runtime", runtime}, flags...), command)...)
		return out
	}
	if out := sandbox("echo $((6*7))"); out != "42\n" {
		t.Fatalf("a command gave %q", out)
	}
	if out := sandbox("tail /dev/zero", "--memory", "128"); !strings.Contains(out, "memory limit") {
		t.Errorf("memory without end: %q", out)
	}
	if runtime == "gvisor" {
		return // a sandbox full of processes takes minutes here, and CPU time cannot be distinguished from waiting
	}
	if out := sandbox("for i in {1..100}; do sleep 5 & done 2>&1 | head -n 1; kill -9 -1", "--pids", "40"); !strings.Contains(out, "fork") {
		t.Errorf("100 processes of 40: %q", out)
	}
	var real, user, system float64
	out := sandbox("TIMEFORMAT='%R %U %S'; time for ((i=0; i<20000; i++)); do :; done", "--cpu", "0.25")
	if _, err := fmt.Sscan(out, &real, &user, &system); err != nil || real < 2*(user+system) {
		t.Errorf("a quarter of a core: %q", out)
	}
}

// grouped are tests of a driver's contract that depend on control groups.
const grouped = "UsageIsSane|Recover|SweepKeepsClaimed"

// contract runs those tests of a driver's contract whose names are in tests, separated by bars.
func contract(t *testing.T, attr *syscall.SysProcAttr, tests, name string, args ...string) {
	t.Helper()
	out := pass(t, attr, name, append([]string{"-test.v", "-test.run=^(TestContract|TestDriver)$/^(" + tests + ")$"}, args...)...)
	if n := strings.Count(tests, "|") + 2; strings.Contains(out, "--- SKIP") || strings.Count(out, "--- PASS") != n {
		t.Errorf("not all %d of the contract have passed", n)
	}
}

// work creates a folder with a link to the agent, as the tests of native expect.
func work(t *testing.T, uid int) string {
	t.Helper()
	dir := fmt.Sprint("/tmp/work-", uid)
	for _, err := range []error{
		os.Mkdir(dir, 0o711),
		os.Chown(dir, uid, uid),
		os.Symlink("/usr/bin/hutch-agent", filepath.Join(dir, "hutch-agent")),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// nativeDelegated creates instances as a user with a delegated group, as systemd does it.
func nativeDelegated(t *testing.T) {
	const uid = 1000
	const group = "/sys/fs/cgroup/delegated"
	if err := os.WriteFile("/sys/fs/cgroup/cgroup.subtree_control", []byte("+cpu +memory +pids"), 0); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(group, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"", "cgroup.procs", "cgroup.subtree_control", "cgroup.threads"} {
		if err := os.Chown(filepath.Join(group, name), uid, uid); err != nil {
			t.Fatal(err)
		}
	}
	dir, err := os.Open(group)
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	attr := &syscall.SysProcAttr{
		Credential: &syscall.Credential{Uid: uid, Gid: uid}, UseCgroupFD: true, CgroupFD: int(dir.Fd()),
	}
	contract(t, attr, grouped, "native.test", "-work="+work(t, uid))
	os.Remove(filepath.Join(group, "hutch-daemon"))
	if err := os.Remove(group); err != nil {
		t.Errorf("something is left in the group: %v", err)
	}
}

// nothingLeft looks for groups and mounts of sandboxes.
func nothingLeft(t *testing.T) {
	if left, _ := filepath.Glob("/sys/fs/cgroup/*hutch*"); len(left) > 0 {
		t.Errorf("groups %v", left)
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil || strings.Contains(string(mounts), "hutch") {
		t.Errorf("mounts %s, %v", mounts, err)
	}
}
