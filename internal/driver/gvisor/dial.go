package gvisor

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"hutch/internal/delay"
	"hutch/internal/linux/pidfd"
)

// dial connects only to the socket at path: not to the target of a link, and not to a file of another kind. It uses the
// socket's descriptor, because a socket's path is limited to 107 bytes.
func dial(ctx context.Context, path string) (*net.UnixConn, error) {
	fd, err := unix.Open(path, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	defer unix.Close(fd)
	return dialFD(ctx, fd, path)
}

// dialAgent connects to the agent's socket, which is in a file system that only the gofer's mount namespace has. It
// opens the socket from the gofer's root without following links, because root inside can make links there.
func (i *instance) dialAgent(ctx context.Context) (*net.UnixConn, error) {
	fd, err := i.openInSocketDir(agentSocket)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	return dialFD(ctx, fd, agentSocket)
}

// openInSocketDir opens a file of the folder with the socket between daemon and agent, with O_PATH.
func (i *instance) openInSocketDir(name string) (int, error) {
	gofer := i.procs.Gofer
	path := fmt.Sprintf("/proc/%d/root", gofer.PID)
	root, err := unix.Open(path, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, &os.PathError{Op: "open", Path: path, Err: err}
	}
	defer unix.Close(root)
	if started, err := pidfd.Started(gofer.PID); err != nil || started != gofer.Started {
		return -1, &os.PathError{Op: "open", Path: path, Err: os.ErrProcessDone} // another process has its number now
	}
	path = socketDir[1:] + "/" + name
	fd, err := unix.Openat2(root, path, &unix.OpenHow{
		Flags: unix.O_PATH | unix.O_NOFOLLOW | unix.O_CLOEXEC, Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS,
	})
	if err != nil {
		return -1, &os.PathError{Op: "open", Path: path, Err: err}
	}
	return fd, nil
}

// dialFD connects to the socket with the descriptor fd. path is for errors.
func dialFD(ctx context.Context, fd int, path string) (*net.UnixConn, error) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, &os.PathError{Op: "stat", Path: path, Err: err}
	}
	if st.Mode&unix.S_IFMT != unix.S_IFSOCK {
		return nil, fmt.Errorf("%s is not a socket", path)
	}
	addr := &net.UnixAddr{Name: fmt.Sprintf("/proc/self/fd/%d", fd), Net: "unix"}
	for {
		conn, err := net.DialUnix("unix", nil, addr)
		if !errors.Is(err, unix.EAGAIN) {
			return conn, err
		}
		// The socket's queue of connections is short, and full at the moment.
		if err := delay.Wait(ctx, time.Millisecond); err != nil {
			return nil, err
		}
	}
}
