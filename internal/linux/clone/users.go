package clone

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Users makes a user namespace that is a child of this process's own, with the same ids for users and groups, and
// returns a descriptor of it. The namespace belongs to the effective user of this process. The caller needs
// CAP_SETUID and CAP_SETGID, and for the id 0 CAP_SETFCAP.
//
// A child process makes the namespace and is killed before Users returns. This process cannot make it: it would have to
// enter the new namespace, which the kernel refuses to a process with threads.
func Users(ids []ID) (fd int, err error) {
	return UsersBy(func(pid int) error {
		proc := fmt.Sprintf("/proc/%d/", pid)
		return errors.Join(put(proc+"uid_map", lines(ids)), put(proc+"gid_map", lines(ids)))
	})
}

// UsersBy does the same as Users, but calls give to give ids to the namespace of the child process pid.
func UsersBy(give func(pid int) error) (fd int, err error) {
	runtime.LockOSThread() // the child has the user of this thread, and ends with it
	defer runtime.UnlockOSThread()
	args := cloneArgs{flags: unix.CLONE_NEWUSER, exitSignal: uint64(unix.SIGCHLD)}
	pid, errno := forkPaused(&args, uintptr(unix.Getpid()))
	afterFork()
	if errno != 0 {
		return -1, os.NewSyscallError("clone", syscall.Errno(errno))
	}
	defer func() {
		unix.Kill(int(pid), unix.SIGKILL)
		for {
			if _, err := unix.Wait4(int(pid), nil, 0, nil); err != unix.EINTR {
				return
			}
		}
	}()
	if err := give(int(pid)); err != nil {
		return -1, err
	}
	fd, err = unix.Open(fmt.Sprintf("/proc/%d/ns/user", pid), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	return fd, os.NewSyscallError("open a user namespace", err)
}

// forkPaused makes a child with a copy of our memory. The child waits until it is killed, or until its parent, which is
// this thread, or the whole process has ended: see forkExec.
//
//go:noinline
//go:norace
//go:nocheckptr
func forkPaused(args *cloneArgs, parent uintptr) (pid, errno uintptr) {
	beforeFork()
	pid, errno = rawClone(args, unsafe.Sizeof(*args))
	if pid != 0 || errno != 0 {
		return pid, errno
	}
	syscall.RawSyscall(unix.SYS_PRCTL, unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0)
	if now, _, _ := syscall.RawSyscall(unix.SYS_GETPPID, 0, 0, 0); now != parent {
		syscall.RawSyscall(unix.SYS_EXIT, 0, 0, 0)
	}
	for {
		syscall.RawSyscall6(unix.SYS_PPOLL, 0, 0, 0, 0, 0, 0)
	}
}
