package clone

import (
	"fmt"
	"os"
	"runtime"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// SetHostname gives the UTS namespace of a process another host name, by a
// descriptor of the process. Who made its user namespace may do that, an ordinary
// user too, but only from within, where no program with threads can go. So a
// child goes: it executes nothing, cannot be seen from inside, and is gone when
// this returns.
func SetHostname(pidfd int, name string) error {
	text, err := syscall.ByteSliceFromString(name)
	if err != nil {
		return err
	}
	r := &renaming{pidfd: uintptr(pidfd), name: &text[0], size: uintptr(len(name)), args: cloneArgs{
		flags: unix.CLONE_VM | unix.CLONE_VFORK | unix.CLONE_FILES, exitSignal: uint64(unix.SIGCHLD),
	}}
	id, errno := forkRename(r)
	afterFork()
	runtime.KeepAlive(r)
	if errno != 0 {
		return os.NewSyscallError("clone", syscall.Errno(errno))
	}
	var status syscall.WaitStatus
	for err = syscall.EINTR; err == syscall.EINTR; {
		_, err = syscall.Wait4(int(id), &status, 0, nil)
	}
	if err == nil && r.errno != 0 {
		err = r.errno
	}
	if err != nil {
		return fmt.Errorf("set the host name of another namespace: %w", err)
	}
	return nil
}

// renaming is what the child needs, which may neither allocate nor touch its
// parent's stack.
type renaming struct {
	args  cloneArgs
	pidfd uintptr
	name  *byte
	size  uintptr
	errno syscall.Errno
}

// forkRename makes the child and, in it, never returns: see forkExec.
//
//go:noinline
//go:norace
//go:nocheckptr
func forkRename(r *renaming) (pid, errno uintptr) {
	var e syscall.Errno
	beforeFork()
	pid, errno = rawClone(&r.args, unsafe.Sizeof(r.args))
	if pid != 0 || errno != 0 {
		return pid, errno
	}
	afterForkInChild()
	_, _, e = syscall.RawSyscall(unix.SYS_SETNS, r.pidfd, unix.CLONE_NEWUSER|unix.CLONE_NEWUTS, 0)
	if e == 0 {
		_, _, e = syscall.RawSyscall(unix.SYS_SETHOSTNAME, uintptr(unsafe.Pointer(r.name)), r.size, 0)
	}
	r.errno = e
	for {
		syscall.RawSyscall(unix.SYS_EXIT, 0, 0, 0)
	}
}
