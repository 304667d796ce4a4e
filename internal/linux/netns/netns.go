// Package netns connects to servers in another network namespace, by a socket that was made in that namespace. It also
// brings up the loopback interface of a new namespace.
package netns

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// queue is how many bytes of a server's output the kernel keeps while our reader is slow. By default it would grow to
// megabytes, which belong to this process and are counted for no sandbox. A queue larger than the processor's caches is
// also slower.
const queue = 256 << 10

// Dial connects fd, a non-blocking socket of IPv4, to a port of the loopback address of the socket's namespace. It
// closes fd: the connection is a copy.
func Dial(ctx context.Context, fd, port int) (net.Conn, error) {
	socket := os.NewFile(uintptr(fd), "socket")
	defer socket.Close()
	if err := connect(ctx, socket, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}, Port: port}); err != nil {
		return nil, fmt.Errorf("connect with port %d of a place: %w", port, err)
	}
	conn, err := net.FileConn(socket)
	if err == nil {
		conn.(*net.TCPConn).SetReadBuffer(queue)
	}
	return conn, err
}

// connect connects a socket. EINPROGRESS and EALREADY mean that connecting is still in progress.
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
