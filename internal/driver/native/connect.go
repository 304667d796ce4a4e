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

// queue is how much of what a server says the kernel keeps for a reader of ours
// that is slow, in bytes. By itself it would grow to megabytes, which are this
// process's and count for no sandbox; and more than the caches of a processor
// hold makes it slower.
const queue = 256 << 10

// Connect implements driver.Connector. A socket belongs for good to the network
// namespace that it was made in, and nobody inside has a descriptor of this one.
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
	defer socket.Close() // what is returned is a copy
	if err := connect(ctx, socket, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}, Port: port}); err != nil {
		return nil, fmt.Errorf("connect with port %d of a place: %w", port, err)
	}
	conn, err := net.FileConn(socket)
	if err == nil {
		conn.(*net.TCPConn).SetReadBuffer(queue)
	}
	return conn, err
}

// connect connects a socket. Until that has come to an end, the kernel answers
// the question with another error than those two.
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
