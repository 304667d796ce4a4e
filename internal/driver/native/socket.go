package native

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// maxSocketPath is the longest path of a socket.
const maxSocketPath = len(unix.RawSockaddrUnix{}.Path) - 1

// withSocket calls do with a path of the socket in dir. The path is short enough for a socket address.
func withSocket(dir string, do func(path string) error) error {
	path := filepath.Join(dir, socketFile)
	if len(path) <= maxSocketPath {
		return do(path)
	}
	fd, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return &os.PathError{Op: "open", Path: dir, Err: err}
	}
	defer unix.Close(fd)
	return do(fmt.Sprintf("/proc/self/fd/%d/%s", fd, socketFile))
}

// listen creates the socket from which an instance's agent accepts connections. From now on, connections can wait
// there.
func listen(dir string) (*os.File, error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, os.NewSyscallError("socket", err)
	}
	file := os.NewFile(uintptr(fd), socketFile)
	err = withSocket(dir, func(path string) error { return unix.Bind(fd, &unix.SockaddrUnix{Name: path}) })
	if err == nil {
		err = unix.Listen(fd, unix.SOMAXCONN)
	}
	if err != nil {
		file.Close()
		return nil, fmt.Errorf("listen in %s: %w", dir, err)
	}
	return file, nil
}

func dial(ctx context.Context, dir string) (conn net.Conn, err error) {
	err = withSocket(dir, func(path string) error {
		conn, err = new(net.Dialer).DialContext(ctx, "unix", path)
		return err
	})
	return conn, err
}
