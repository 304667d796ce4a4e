package clone

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// These are the runtime's own preparations for a fork, as package syscall uses them: no signal handler of Hutch must
// run in a child that shares our memory.

//go:linkname beforeFork syscall.runtime_BeforeFork
func beforeFork()

//go:linkname afterFork syscall.runtime_AfterFork
func afterFork()

//go:linkname afterForkInChild syscall.runtime_AfterForkInChild
func afterForkInChild()

// here is AT_FDCWD, for a raw call.
const here = ^uintptr(99)

// rawClone is clone3. It returns twice, first in the child; the parent sleeps until the child has executed a program or
// ended.
//
// Package spawn has nearly the same function. Each must stay in the package of its callers: a call of assembly from
// another package goes through a wrapper, and the child would overwrite the wrapper's frame before the parent returns
// through it.
func rawClone(args *cloneArgs, size uintptr) (pid, errno uintptr)

// forkExec makes the child. In the child it never returns. The caller calls
// afterFork.
//
// The child runs on its parent's stack, in this very frame. So the parent must leave
// the frame at once. The child can only call assembly or code that needs no more
// stack, must not allocate, and must not be instrumented.
//
//go:noinline
//go:norace
//go:nocheckptr
func forkExec(p *plan) (pid, errno uintptr) {
	var (
		e  syscall.Errno
		i  int
		fd uintptr
	)
	p.args.pidfd = uint64(uintptr(unsafe.Pointer(&p.pidfd)))
	beforeFork()
	pid, errno = rawClone(&p.args, unsafe.Sizeof(p.args))
	if pid != 0 || errno != 0 {
		return pid, errno
	}
	afterForkInChild()

	p.step = giveFiles
	for i = 0; i < len(p.files); i++ {
		if _, _, e = syscall.RawSyscall(unix.SYS_DUP3, p.files[i], uintptr(i), 0); e != 0 {
			goto failed
		}
	}
	if _, _, e = syscall.RawSyscall(unix.SYS_CLOSE_RANGE, uintptr(len(p.files)), 1<<32-1, 0); e != 0 {
		goto failed
	}

	if p.device != nil {
		p.step = openDevice
		fd, _, e = syscall.RawSyscall6(unix.SYS_OPENAT, here, uintptr(unsafe.Pointer(p.device)), unix.O_RDWR|unix.O_NONBLOCK, 0, 0, 0)
		if e == 0 {
			if _, _, e = syscall.RawSyscall(unix.SYS_DUP3, fd, p.place, 0); e != 0 {
				goto failed
			}
			syscall.RawSyscall(unix.SYS_CLOSE, fd, 0, 0)
		}
	}

	p.step = leadSession
	if _, _, e = syscall.RawSyscall(unix.SYS_SETSID, 0, 0, 0); e != 0 {
		goto failed
	}

	p.step = giveCapabilities
	if _, _, e = syscall.RawSyscall(unix.SYS_CAPSET, uintptr(unsafe.Pointer(&p.header)), uintptr(unsafe.Pointer(&p.caps[0])), 0); e != 0 {
		goto failed
	}
	for i = 0; i < len(p.raise); i++ {
		if _, _, e = syscall.RawSyscall6(unix.SYS_PRCTL, unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_RAISE, p.raise[i], 0, 0, 0); e != 0 {
			goto failed
		}
	}

	p.step = execute
	syscall.RawSyscall6(unix.SYS_RT_SIGPROCMASK, unix.SIG_SETMASK, uintptr(unsafe.Pointer(&p.mask)), 0, 8, 0, 0)
	_, _, e = syscall.RawSyscall(unix.SYS_EXECVE, uintptr(unsafe.Pointer(p.path)), uintptr(unsafe.Pointer(&p.argv[0])), uintptr(unsafe.Pointer(&p.env[0])))

failed:
	p.errno = e
	for {
		syscall.RawSyscall(unix.SYS_EXIT, 127, 0, 0)
	}
}
