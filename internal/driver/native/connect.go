package native

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"

	"golang.org/x/sys/unix"

	"hutch/internal/driver"
	"hutch/internal/linux/clone"
)

var _ driver.Connector = (*instance)(nil)

// queue is how many bytes of a server's output the kernel keeps while our reader is slow. By default it would grow to
// megabytes, which belong to this process and count for no sandbox; and a queue larger than the processor's caches is
// slower.
const queue = 256 << 10

// Connect implements driver.Connector. A socket stays in the network namespace in which it was created, and no
// process inside has a descriptor of this one.
func (i *instance) Connect(ctx context.Context, port int) (net.Conn, error) {
	if i.process == nil {
		return nil, i.unreachable(os.ErrProcessDone)
	}
	fd := -1
	err := i.process.With(func(pidfd int) (err error) { fd, err = clone.Socket(pidfd); return err })
	if err != nil {
		return nil, err
	}
	socket := os.NewFile(uintptr(fd), "socket")
	defer socket.Close() // the returned connection is a copy
	if err := connect(ctx, socket, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}, Port: port}); err != nil {
		return nil, fmt.Errorf("connect with port %d of a place: %w", port, err)
	}
	conn, err := net.FileConn(socket)
	if err == nil {
		conn.(*net.TCPConn).SetReadBuffer(queue)
	}
	return conn, err
}

// connect connects a socket. While that is under way, the kernel reports it with one of those two errors.
func connect(ctx context.Context, socket *os.File, to unix.Sockaddr) error {
	raw, err := socket.SyscallConn()
	if err != nil {
		return err
	}
	defer context.AfterFunc(ctx, func() { socket.Close() })()
	failed := raw.Write(func(fd uintptr) bool {
		err = unix.Connect(int(fd), to)
		return !errors.Is(err, unix.EINPROGRESS) && !errors.Is(err, unix.EALREADY)
	})
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return errors.Join(failed, err)
}
