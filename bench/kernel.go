package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"hutch/internal/linux/clone"
)

// The baselines: the kernel's time for the same work.
const (
	bareFork       = "vfork + exec /bin/true"
	bareExec       = "os/exec true"
	bareShell      = "os/exec bash -c true"
	bareNamespaces = "clone into all namespaces + exit"
)

var fork = subject{bareFork, func(context.Context, int) error {
	pid, err := syscall.ForkExec("/bin/true", []string{"true"}, &syscall.ProcAttr{})
	if err != nil {
		return err
	}
	return reap(pid)
}}

var byLibrary = subject{bareExec, func(ctx context.Context, _ int) error { return exec.CommandContext(ctx, "/bin/true").Run() }}

var shell = subject{bareShell, func(ctx context.Context, _ int) error {
	return exec.CommandContext(ctx, "/bin/bash", "-c", "true").Run()
}}

// namespaces clones a child that exits at once, so that only the clone with its namespaces is measured. The standard
// library would copy the page tables of this process, which takes longer.
var namespaces = subject{bareNamespaces, func(context.Context, int) error {
	_, _, err := clone.Start(clone.Command{
		Path: "/nonexistent", Argv: []string{"nothing"},
		Namespaces: unix.CLONE_NEWUSER | unix.CLONE_NEWPID | unix.CLONE_NEWNS | unix.CLONE_NEWNET |
			unix.CLONE_NEWIPC | unix.CLONE_NEWUTS | unix.CLONE_NEWCGROUP,
	})
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	return fmt.Errorf("clone: %w", err)
}}

func reap(pid int) error {
	var status syscall.WaitStatus
	for {
		_, err := syscall.Wait4(pid, &status, 0, nil)
		if errors.Is(err, syscall.EINTR) {
			continue
		}
		if err == nil && status.ExitStatus() != 0 {
			err = fmt.Errorf("exit code %d", status.ExitStatus())
		}
		return err
	}
}

// zeros returns the command whose output measures throughput.
func zeros(n int64) string { return fmt.Sprintf("head -c %d /dev/zero", n) }

// pipeRate reads a command's output from a pipe: bytes a second, in MB.
func pipeRate(ctx context.Context, command string) (float64, error) {
	cmd := exec.CommandContext(ctx, "/bin/bash", "-c", command)
	out, err := cmd.StdoutPipe()
	if err != nil {
		return 0, err
	}
	began := time.Now()
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	got, err := io.Copy(discard{}, out)
	if err := errors.Join(err, cmd.Wait()); err != nil {
		return 0, err
	}
	return megabytes(got, time.Since(began)), nil
}

// discard drops its input. io.Copy reads large pieces for it, as a program would, and small ones for io.Discard.
type discard struct{}

func (discard) Write(b []byte) (int, error) { return len(b), nil }

func (discard) ReadFrom(r io.Reader) (n int64, err error) {
	buf := make([]byte, 64<<10)
	for {
		k, err := r.Read(buf)
		n += int64(k)
		if errors.Is(err, io.EOF) {
			return n, nil
		}
		if err != nil {
			return n, err
		}
	}
}

func megabytes(n int64, d time.Duration) float64 { return float64(n) / 1e6 / d.Seconds() }

// spent returns the CPU time of this process and of its children that have ended.
func spent() time.Duration {
	var sum time.Duration
	for _, who := range []int{syscall.RUSAGE_SELF, syscall.RUSAGE_CHILDREN} {
		var u syscall.Rusage
		if err := syscall.Getrusage(who, &u); err != nil {
			fmt.Fprintln(os.Stderr, "bench: getrusage:", err)
		}
		sum += time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	return sum
}
