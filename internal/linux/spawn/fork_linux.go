package spawn

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

// rawFork makes the system call trap, which creates a process as vfork does. It returns twice, first in the child. The
// parent sleeps until the child has executed a program or ended.
//
// Package clone has nearly the same function. Each must stay in the package of its callers: a call of assembly from
// another package goes through a wrapper, and the child would overwrite the wrapper's frame before the parent returns
// through it.
func rawFork(trap, a, b, c, d uintptr) (pid, errno uintptr)

// vfork are the flags of a child that shares its parent's memory.
const vfork = unix.CLONE_VM | unix.CLONE_VFORK

// cloneArgs is the kernel's struct clone_args, of its first version.
type cloneArgs struct {
	flags, pidfd, childTID, parentTID uint64
	exitSignal                        uint64
	stack, stackSize, tls             uint64
}

// scoreFile is a C string, and mostScore the value that is written there: see proc_pid_oom_score_adj(5).
const scoreFile, mostScore = "/proc/self/oom_score_adj\x00", "1000"

var withoutHandlers = cloneArgs{flags: vfork | unix.CLONE_CLEAR_SIGHAND, exitSignal: uint64(unix.SIGCHLD)}

// forkExec makes the child. In the child it never returns. The caller calls afterFork.
//
// The child runs on its parent's stack, in this very frame. So the parent must leave the frame at once. The child can only
// call assembly or code that needs no more stack, must not allocate, and must not be instrumented. That is why all steps
// of the child are in one function.
//
//go:noinline
//go:norace
//go:nocheckptr
func forkExec(p *plan) (pid, errno uintptr) {
	var (
		e     syscall.Errno
		i, fd uintptr
	)
	beforeFork()
	if p.bare {
		pid, errno = rawFork(unix.SYS_CLONE3, uintptr(unsafe.Pointer(&withoutHandlers)), unsafe.Sizeof(withoutHandlers), uintptr(p.pass[0]), uintptr(p.pass[1]))
	} else {
		pid, errno = rawFork(unix.SYS_CLONE, vfork|uintptr(unix.SIGCHLD), 0, 0, 0)
	}
	if pid != 0 || errno != 0 {
		return pid, errno
	}
	if !p.bare {
		afterForkInChild() // this makes a system call for each signal
	}

	p.step = Setup
	for i = 0; i < 3; i++ {
		if _, _, e = syscall.RawSyscall(unix.SYS_DUP3, p.files[i], i, 0); e != 0 {
			goto failed
		}
	}
	if p.offer { // this needs the parent's rights; without /proc, the kernel chooses by size
		fd, _, e = syscall.RawSyscall6(unix.SYS_OPENAT, 0, uintptr(unsafe.Pointer(unsafe.StringData(scoreFile))), unix.O_WRONLY|unix.O_CLOEXEC, 0, 0, 0)
		if e == 0 {
			syscall.RawSyscall(unix.SYS_WRITE, fd, uintptr(unsafe.Pointer(unsafe.StringData(mostScore))), uintptr(len(mostScore)))
		}
	}
	if p.filter != nil { // this also needs the parent's rights
		if _, _, e = syscall.RawSyscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, 0, uintptr(unsafe.Pointer(p.filter))); e != 0 {
			goto failed
		}
	}
	if p.namespace != 0 {
		p.step = Become
		if _, _, e = syscall.RawSyscall6(unix.SYS_SETNS, p.namespace, unix.CLONE_NEWUSER, uintptr(p.pass[0]), uintptr(p.pass[1]), 0, 0); e != 0 {
			goto failed
		}
		for i = 0; i < uintptr(len(p.dropped)); i++ {
			if _, _, e = syscall.RawSyscall(unix.SYS_PRCTL, unix.PR_CAPBSET_DROP, p.dropped[i], 0); e == syscall.EINVAL {
				break // after the last capability that this kernel knows
			} else if e != 0 {
				goto failed
			}
		}
		p.step = Setup
	}
	// Kernels before Linux 5.9 do not know the call. There, only files with close-on-exec are closed.
	syscall.RawSyscall(unix.SYS_CLOSE_RANGE, 3, 1<<32-1, 0)
	if _, _, e = syscall.RawSyscall(unix.SYS_SETSID, 0, 0, 0); e != 0 {
		goto failed
	}
	if p.terminal {
		if _, _, e = syscall.RawSyscall(unix.SYS_IOCTL, 0, unix.TIOCSCTTY, 0); e != 0 {
			goto failed
		}
	}
	if _, _, e = syscall.RawSyscall6(unix.SYS_PRCTL, unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0, 0); e != 0 {
		goto failed
	}
	if p.namespace == 0 {
		if _, _, e = syscall.RawSyscall6(unix.SYS_PRCTL, unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0, 0); e != 0 {
			goto failed
		}
	}
	if p.limit != nil {
		syscall.RawSyscall6(unix.SYS_PRLIMIT64, 0, unix.RLIMIT_NOFILE, uintptr(unsafe.Pointer(p.limit)), 0, 0, 0)
	}

	p.step = Become
	if p.user {
		if p.setgroups {
			if _, _, e = syscall.RawSyscall(unix.SYS_SETGROUPS, uintptr(len(p.groups)), uintptr(unsafe.Pointer(unsafe.SliceData(p.groups))), 0); e != 0 {
				goto failed
			}
		}
		if _, _, e = syscall.RawSyscall(unix.SYS_SETRESGID, p.gid, p.gid, p.gid); e != 0 {
			goto failed
		}
		if p.readAll {
			syscall.RawSyscall6(unix.SYS_PRCTL, unix.PR_SET_KEEPCAPS, 1, 0, 0, 0, 0)
		}
		if _, _, e = syscall.RawSyscall(unix.SYS_SETRESUID, p.uid, p.uid, p.uid); e != 0 {
			goto failed
		}
		if !p.root { // from exec on, root has the capabilities that are left in the bounding set
			_, _, e = syscall.RawSyscall(unix.SYS_CAPSET, uintptr(unsafe.Pointer(&p.rights)), uintptr(unsafe.Pointer(&p.right[0])), 0)
			if e != 0 && !p.readAll {
				goto failed
			}
		}
		if p.readAll { // exec removes rights that the child could not keep here, or kept without need
			syscall.RawSyscall6(unix.SYS_PRCTL, unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_RAISE, unix.CAP_DAC_READ_SEARCH, 0, 0, 0)
		}
	}

	p.step = Chdir
	if p.dir != nil {
		if _, _, e = syscall.RawSyscall(unix.SYS_CHDIR, uintptr(unsafe.Pointer(p.dir)), 0, 0); e != 0 {
			goto failed
		}
	}

	p.step = Exec
	syscall.RawSyscall6(unix.SYS_RT_SIGPROCMASK, unix.SIG_SETMASK, uintptr(unsafe.Pointer(&p.mask)), 0, 8, 0, 0)
	_, _, e = syscall.RawSyscall(unix.SYS_EXECVE, uintptr(unsafe.Pointer(p.path)), uintptr(unsafe.Pointer(&p.argv[0])), uintptr(unsafe.Pointer(&p.env[0])))

failed:
	p.errno = e
	for {
		syscall.RawSyscall(unix.SYS_EXIT, 127, 0, 0)
	}
}
