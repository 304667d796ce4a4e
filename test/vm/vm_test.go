//go:build vm

package vm

import (
	"bufio"
	"context"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"hutch/internal/hutchtest"
)

// tested are the packages whose tests run in the virtual machine, in addition to the tests of this package.
var tested = []string{"../../internal/linux/cgroup", "../../internal/driver/native", "../../internal/driver/gvisor"}

// pattern names the tests to run in the machine, for when one of them fails.
var pattern = flag.String("inside", "^TestInside$", "the tests to run in the machine")

// verdict begins the last line of a machine.
const verdict = "the machine's tests: "

// TestOnVersion2 boots a machine.
func TestOnVersion2(t *testing.T) {
	qemu, err := exec.LookPath("qemu-system-x86_64")
	if err != nil {
		hutchtest.Skip(t, "qemu is missing: apt-get install qemu-system-x86")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 8*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, qemu,
		"-accel", "tcg,thread=multi", "-cpu", "max", "-smp", "2", "-m", "1536",
		"-nodefaults", "-no-user-config", "-display", "none", "-no-reboot", "-serial", "stdio",
		"-kernel", kernel(t), "-initrd", files(t),
		"-append", "console=ttyS0 loglevel=2 panic=-1 cgroup_no_v1=all -- "+*pattern)
	runtime.LockOSThread() // Pdeathsig is sent when the parent thread ends
	defer runtime.UnlockOSThread()
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	cmd.Stderr = t.Output()
	console, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	// The machine's time limits use a clock that continues while other programs run, so the machine needs priority.
	// Without the right to raise it, the machine waits for other programs.
	_ = syscall.Setpriority(syscall.PRIO_PROCESS, cmd.Process.Pid, -15)
	result := "none, as the machine ended early"
	for lines := bufio.NewScanner(console); lines.Scan(); {
		t.Log(lines.Text())
		if end, ok := strings.CutPrefix(lines.Text(), verdict); ok {
			result = strings.TrimSpace(end)
		}
	}
	if err := cmd.Wait(); err != nil || result != "exit status 0" {
		t.Errorf("%s%s; qemu: %v", verdict, result, err)
	}
}

// kernel returns the path of the kernel that the program "kernel" fetches.
func kernel(t *testing.T) string {
	t.Helper()
	if runtime.GOARCH != "amd64" {
		t.Skip("the machine is an amd64")
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		hutchtest.Skip(t, "%v", err)
	}
	path := filepath.Join(cache, "hutch", "vm", "vmlinuz")
	if _, err := os.Stat(path); err != nil {
		hutchtest.Skip(t, "there is no kernel to boot: run test/vm/kernel")
	}
	return path
}

// files returns the path of the machine's root file system.
func files(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	build := exec.Command("go", append([]string{"test", "-tags", "vm", "-c", "-o", dir, "."}, tested...)...)
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	f, err := os.Create(filepath.Join(dir, "initramfs"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	a := newArchive(f)
	a.folders("usr", "usr/bin", "usr/lib", "usr/lib64", "usr/lib/x86_64-linux-gnu", "etc", "proc", "sys", "root", "run")
	for _, dir := range []string{"bin", "lib", "lib64"} {
		a.link(dir, "usr/"+dir)
	}
	a.link("sbin", "usr/bin")
	a.link("usr/bin/sh", "bash")
	a.file("init", filepath.Join(dir, "vm.test"))
	for _, pkg := range tested {
		name := filepath.Base(pkg) + ".test"
		a.file("usr/bin/"+name, filepath.Join(dir, name))
	}
	for _, name := range []string{"hutch", "hutch-agent", "hutch-runsc", "hutch-gofer"} {
		a.file("usr/bin/"+name, hutchtest.Program(t, name))
	}
	for _, path := range needed(t, programs...) {
		a.file("usr/"+strings.TrimPrefix(strings.TrimPrefix(path, "/"), "usr/"), path)
	}
	if err := a.close(); err != nil {
		t.Fatal(err)
	}
	return f.Name()
}

// programs are the host's programs that tests use in the machine.
var programs = strings.Fields("bash cat chmod cp cut date dd df env false find grep head id kill ln ls mkdir mv nproc " +
	"printf ps readlink rm seq sed setsid sleep sort stat tail tee timeout touch tr true uname uniq wc yes")

// needed returns the paths of programs and of their libraries.
func needed(t *testing.T, names ...string) []string {
	t.Helper()
	var paths []string
	seen := map[string]bool{}
	add := func(path string) {
		if !seen[path] {
			seen[path], paths = true, append(paths, path)
		}
	}
	for _, name := range names {
		path, err := exec.LookPath(name)
		if err != nil {
			t.Fatal(err)
		}
		add(path)
		out, err := exec.Command("ldd", path).Output()
		if err != nil {
			t.Fatalf("ldd %s: %v", path, err)
		}
		for field := range strings.FieldsSeq(string(out)) {
			if strings.HasPrefix(field, "/") {
				add(field)
			}
		}
	}
	return paths
}
