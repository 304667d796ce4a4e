package pidfd

import (
	"errors"
	"fmt"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// In runs do, on a thread of its own, in those namespaces of the process that
// are given as flags of clone. They may be those that a thread can leave again:
// not of users, mounts and processes.
func (p *Process) In(namespaces int, do func() error) error {
	conn, err := p.file.SyscallConn()
	if err != nil {
		return os.ErrProcessDone
	}
	ended := make(chan error)
	go func() {
		// Never unlocked, so that the thread ends with this goroutine and
		// nobody else finds itself in there.
		runtime.LockOSThread()
		entered := error(nil)
		err := conn.Control(func(fd uintptr) { entered = unix.Setns(int(fd), namespaces) })
		if err = errors.Join(err, entered); err != nil {
			ended <- fmt.Errorf("enter the namespaces of process %d: %w", p.pid, err)
			return
		}
		ended <- do()
	}()
	return <-ended
}
