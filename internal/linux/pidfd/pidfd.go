// Package pidfd identifies processes by descriptor, including processes that are not our children: a pid can be reused,
// but a descriptor cannot.
package pidfd

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// Process is a running or dead process.
type Process struct {
	file *os.File
	pid  int
}

// Adopt returns the process of a pidfd that was returned when the process was created.
func Adopt(fd, pid int) (*Process, error) {
	// The runtime's poller watches only non-blocking descriptors. With the poller, a wait does not need a thread.
	if err := unix.SetNonblock(fd, true); err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("watch process %d: %w", pid, err)
	}
	return &Process{os.NewFile(uintptr(fd), "pidfd"), pid}, nil
}

// Open finds the process with this pid and this start time, which is from [Started]. If the process is gone, the error
// wraps os.ErrProcessDone.
func Open(pid int, started uint64) (*Process, error) {
	fd, err := unix.PidfdOpen(pid, unix.PIDFD_NONBLOCK)
	if errors.Is(err, unix.ESRCH) || errors.Is(err, unix.EINVAL) {
		return nil, os.ErrProcessDone
	}
	if err != nil {
		return nil, fmt.Errorf("open process %d: %w", pid, err)
	}
	p := &Process{os.NewFile(uintptr(fd), "pidfd"), pid}
	if now, err := Started(pid); err != nil || now != started || p.Dead() {
		p.Close()
		return nil, os.ErrProcessDone
	}
	return p, nil
}

// PID returns the process's number. It can be reused after the process is dead and was waited for.
func (p *Process) PID() int { return p.pid }

// Dead reports whether the process has ended.
func (p *Process) Dead() bool {
	conn, err := p.file.SyscallConn()
	dead := true
	if err == nil {
		conn.Control(func(fd uintptr) { dead = ended(fd) })
	}
	return dead
}

// Wait returns when the process has ended. If the process is a child, Wait reaps it.
func (p *Process) Wait() error {
	conn, err := p.file.SyscallConn()
	if err != nil {
		return err
	}
	return conn.Read(func(fd uintptr) bool {
		if !ended(fd) {
			return false
		}
		_ = unix.Waitid(unix.P_PIDFD, int(fd), nil, unix.WEXITED|unix.WNOHANG, nil) // ECHILD if it is another process's child
		return true
	})
}

func ended(fd uintptr) bool {
	fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	for {
		n, err := unix.Poll(fds, 0)
		if !errors.Is(err, unix.EINTR) {
			return n == 1 || err != nil
		}
	}
}

// Kill kills the process. It succeeds if the process has ended or was closed, because only ended processes are
// closed.
func (p *Process) Kill() error {
	err := p.Signal(unix.SIGKILL)
	if errors.Is(err, os.ErrProcessDone) {
		return nil
	}
	return err
}

// Signal sends a signal to the process. If the process has ended, the error is os.ErrProcessDone.
func (p *Process) Signal(s unix.Signal) error {
	conn, err := p.file.SyscallConn()
	if err != nil {
		return os.ErrProcessDone
	}
	conn.Control(func(fd uintptr) { err = unix.PidfdSendSignal(int(fd), s, nil, 0) })
	if errors.Is(err, unix.ESRCH) {
		return os.ErrProcessDone
	}
	return err
}

// With calls do with the pidfd, which stays open during the call.
func (p *Process) With(do func(fd int) error) error {
	conn, err := p.file.SyscallConn()
	if err != nil {
		return os.ErrProcessDone
	}
	failed := conn.Control(func(fd uintptr) { err = do(int(fd)) })
	return cmp.Or(failed, err)
}

// File returns a copy of one of the process's descriptors. That needs the right to trace the process.
func (p *Process) File(number int) (*os.File, error) {
	conn, err := p.file.SyscallConn()
	if err != nil {
		return nil, os.ErrProcessDone
	}
	fd := -1
	conn.Control(func(of uintptr) { fd, err = unix.PidfdGetfd(int(of), number, 0) })
	if err != nil {
		return nil, fmt.Errorf("copy descriptor %d of process %d: %w", number, p.pid, err)
	}
	return os.NewFile(uintptr(fd), fmt.Sprintf("descriptor %d of process %d", number, p.pid)), nil
}

// Close releases a process that has ended, or one from Open.
func (p *Process) Close() error { return p.file.Close() }

// Started returns the start time of a process, in ticks since the boot.
func Started(pid int) (uint64, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	// The name, in parentheses, can contain any character; our field is 20 fields after it.
	fields := bytes.Fields(b[bytes.LastIndexByte(b, ')')+1:])
	if len(fields) < 20 {
		return 0, fmt.Errorf("status of process %d: %q", pid, b)
	}
	return strconv.ParseUint(string(fields[19]), 10, 64)
}
