// Package steps kills a program right before one of its steps: the system calls by which it changes what others can
// see, on disk, in the kernel or at the other end of a connection. A kill at any time between two steps has the same
// effect, so killing the program before each step covers every moment.
//
// The program is traced with ptrace, and its children are not. So the program needs no code for the test, and new steps
// are counted automatically.
package steps

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// patience is how long a program can take. It is long because the program is stopped thousands of times.
const patience = 2 * time.Minute

// Kill traces a child of this process, the first of a process group of its own, calls begin, which starts the program,
// and kills it right before its nth step, counted from 1. When the process has ended and was waited for, Kill returns
// how many steps it made. They are fewer than n if it ended by itself.
func Kill(pid, n int, begin func() error) (taken int, err error) {
	runtime.LockOSThread() // because the thread is the tracer
	defer runtime.UnlockOSThread()
	if err := seize(pid); err != nil {
		unix.Kill(pid, unix.SIGKILL)
		return 0, err
	}
	late := time.AfterFunc(patience, func() { unix.Kill(pid, unix.SIGKILL) })
	defer late.Stop()
	if err := begin(); err != nil {
		unix.Kill(pid, unix.SIGKILL)
		n = 0
		defer func() { err = fmt.Errorf("begin: %w", err) }()
	}
	for {
		stops, err := waitAll(pid)
		if err != nil {
			return taken, os.NewSyscallError("wait4", err)
		}
		for _, s := range stops {
			if s.status.Exited() || s.status.Signaled() {
				if s.tid == pid {
					return taken, nil
				}
				continue
			}
			if atStep(s) {
				if taken+1 == n {
					unix.Kill(pid, unix.SIGKILL)
					continue
				}
				taken++
			}
			resume(s)
		}
	}
}

// stop is a thread that has stopped or ended.
type stop struct {
	tid    int
	status unix.WaitStatus
}

// waitAll waits until a thread of a process group stops, and returns all threads that have stopped by that time. It
// returns all of them so that a thread that stops again and again, because it waits for another thread, does not block
// the others. It does not wait for other children of this process: the kernel reports a stop only once, to the tracer
// or to the thread that started the child, whichever waits first.
func waitAll(group int) (stops []stop, err error) {
	for how := unix.WALL | unix.WNOTHREAD; ; {
		var s stop
		s.tid, err = unix.Wait4(-group, &s.status, how, nil)
		switch {
		case err == unix.EINTR:
		case len(stops) > 0 && (err != nil || s.tid == 0):
			return stops, nil
		case err != nil:
			return nil, err
		default:
			stops = append(stops, s)
			how |= unix.WNOHANG
		}
	}
}

const options = unix.PTRACE_O_TRACECLONE | unix.PTRACE_O_TRACESYSGOOD | unix.PTRACE_O_EXITKILL

// seize traces all threads of a process, and those that they start.
func seize(pid int) error {
	seized := map[int]bool{}
	for more := true; more; {
		more = false
		tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*", pid))
		if err != nil {
			return err
		}
		for _, task := range tasks {
			tid, err := strconv.Atoi(filepath.Base(task))
			if err != nil || seized[tid] {
				continue
			}
			more, seized[tid] = true, true
			if err := ptrace(unix.PTRACE_SEIZE, tid, 0, options); err == unix.EPERM || err == unix.ESRCH {
				continue // the thread is already traced, or is gone
			} else if err != nil {
				return os.NewSyscallError("ptrace", err)
			}
			ptrace(unix.PTRACE_INTERRUPT, tid, 0, 0)
		}
	}
	if len(seized) == 0 {
		return os.ErrProcessDone
	}
	return nil
}

// resume lets a thread run to its next system call, with the signal that stopped it. The thread may be gone.
func resume(s stop) {
	signal := s.status.StopSignal()
	if signal&^0x80 == unix.SIGTRAP || s.status>>16 != 0 {
		signal = 0 // this stop is for the tracer only
	}
	ptrace(unix.PTRACE_SYSCALL, s.tid, 0, uintptr(signal))
}

func ptrace(request, tid int, addr, data uintptr) error {
	if _, _, errno := unix.Syscall6(unix.SYS_PTRACE, uintptr(request), uintptr(tid), addr, data, 0, 0); errno != 0 {
		return errno
	}
	return nil
}

// call is the beginning of the kernel's struct ptrace_syscall_info.
type call struct {
	op     uint8
	_      [3]uint8
	_      uint32
	_, _   uint64
	number uint64
	args   [6]uint64
	_      [8]uint64 // space for future versions of the struct
}

const getSyscallInfo, entry = 0x420e, 1

// atStep reports whether a stopped thread is about to make a step.
func atStep(s stop) bool {
	var c call
	if s.status.StopSignal() != unix.SIGTRAP|0x80 || ptrace(getSyscallInfo, s.tid, unsafe.Sizeof(c), uintptr(unsafe.Pointer(&c))) != nil || c.op != entry {
		return false
	}
	switch c.number {
	case unix.SYS_OPENAT:
		return c.args[2]&unix.O_CREAT != 0
	case unix.SYS_CLONE, unix.SYS_CLONE3:
		return c.number == unix.SYS_CLONE3 || c.args[0]&unix.CLONE_THREAD == 0
	case unix.SYS_WRITE:
		return c.args[2] != 8 // writes of 8 bytes are Go's scheduler waking itself
	case unix.SYS_MKDIRAT, unix.SYS_UNLINKAT, unix.SYS_RENAMEAT, unix.SYS_RENAMEAT2, unix.SYS_LINKAT, unix.SYS_SYMLINKAT, unix.SYS_FCHMODAT, unix.SYS_FCHOWNAT,
		unix.SYS_FSYNC, unix.SYS_FDATASYNC, unix.SYS_FTRUNCATE, unix.SYS_PWRITE64, unix.SYS_COPY_FILE_RANGE, unix.SYS_SENDFILE,
		unix.SYS_MOUNT, unix.SYS_UMOUNT2, unix.SYS_MOVE_MOUNT, unix.SYS_MKNODAT,
		unix.SYS_CONNECT, unix.SYS_SENDMSG, unix.SYS_KILL, unix.SYS_PIDFD_SEND_SIGNAL:
		return true
	}
	return false
}
