package clone

import (
	"fmt"
	"os"
	"runtime"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// SetHostname changes the host name in a process's UTS namespace, by the process's pidfd.
func SetHostname(pidfd int, name string) error {
	text, err := syscall.ByteSliceFromString(name)
	if err != nil {
		return err
	}
	_, err = inside(pidfd, unix.CLONE_NEWUTS, unix.SYS_SETHOSTNAME, uintptr(unsafe.Pointer(&text[0])), uintptr(len(name)), 0)
	runtime.KeepAlive(text)
	if err != nil {
		return fmt.Errorf("set the host name of another namespace: %w", err)
	}
	return nil
}

// Socket makes a TCP socket over IPv4 in the network namespace of a process. The socket stays in that namespace, and
// does not block.
func Socket(pidfd int) (int, error) {
	const kind = unix.SOCK_STREAM | unix.SOCK_CLOEXEC | unix.SOCK_NONBLOCK
	fd, err := inside(pidfd, unix.CLONE_NEWNET, unix.SYS_SOCKET, unix.AF_INET, kind, 0)
	if err != nil {
		return -1, fmt.Errorf("make a socket in another namespace: %w", err)
	}
	return int(fd), nil
}

// inside makes one system call in a namespace of a process, by its pidfd. The creator of the process's user namespace
// has the right to do so, even as an ordinary user, but only from inside, and a program with threads cannot enter. So a
// child enters: it executes no program, is invisible inside, and has ended when this function returns. It shares our
// descriptors.
func inside(pidfd int, namespace, call, a, b, c uintptr) (result uintptr, err error) {
	e := &childCalls{namespaces: uintptr(pidfd), kinds: unix.CLONE_NEWUSER | namespace, calls: []Call{{Number: call, Args: [5]uintptr{a, b, c}}}}
	return e.run()
}

// Call is a system call that returns only an error.
type Call struct {
	Number uintptr
	Args   [5]uintptr
}

// CallInUsers makes system calls, one after the other until one fails. The calls have all capabilities in a user
// namespace that this process has made, given by a descriptor. The user and the groups are still those of this process.
// keep is memory that the calls point to.
func CallInUsers(users int, calls []Call, keep []*byte) error {
	if len(calls) == 0 {
		return nil
	}
	e := &childCalls{namespaces: uintptr(users), kinds: unix.CLONE_NEWUSER, calls: calls}
	_, err := e.run()
	runtime.KeepAlive(keep)
	return err
}

// childCalls is the data of a child that enters namespaces and makes system calls, one after the other until one fails.
// The child can neither allocate nor use its parent's stack.
type childCalls struct {
	args              cloneArgs
	namespaces, kinds uintptr // a pidfd or namespace, and the kinds of namespaces to enter
	calls             []Call
	done              int
	result            uintptr // of the last call
	errno             syscall.Errno
}

// run makes the child, and waits for its end.
func (e *childCalls) run() (result uintptr, err error) {
	e.args = cloneArgs{flags: unix.CLONE_VM | unix.CLONE_VFORK | unix.CLONE_FILES, exitSignal: uint64(unix.SIGCHLD)}
	id, errno := forkCalls(e)
	afterFork()
	runtime.KeepAlive(e)
	if errno != 0 {
		return 0, os.NewSyscallError("clone", syscall.Errno(errno))
	}
	var status syscall.WaitStatus
	for err = syscall.EINTR; err == syscall.EINTR; {
		_, err = syscall.Wait4(int(id), &status, 0, nil)
	}
	if err == nil && e.errno != 0 {
		err = e.errno
	}
	if err == nil && e.done < len(e.calls) {
		err = fmt.Errorf("a child process ended early: %d", status)
	}
	return e.result, err
}

// forkCalls makes the child. In the child it never returns: see forkExec.
//
//go:noinline
//go:norace
//go:nocheckptr
func forkCalls(e *childCalls) (pid, errno uintptr) {
	beforeFork()
	pid, errno = rawClone(&e.args, unsafe.Sizeof(e.args))
	if pid != 0 || errno != 0 {
		return pid, errno
	}
	afterForkInChild()
	_, _, e.errno = syscall.RawSyscall(unix.SYS_SETNS, e.namespaces, e.kinds, 0)
	for e.errno == 0 && e.done < len(e.calls) {
		e.result, _, e.errno = syscall.RawSyscall6(e.calls[e.done].Number, e.calls[e.done].Args[0], e.calls[e.done].Args[1],
			e.calls[e.done].Args[2], e.calls[e.done].Args[3], e.calls[e.done].Args[4], 0)
		if e.errno == 0 {
			e.done++
		}
	}
	for {
		syscall.RawSyscall(unix.SYS_EXIT, 0, 0, 0)
	}
}
