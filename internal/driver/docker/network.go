package docker

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"

	"golang.org/x/sys/unix"

	"hutch"
	"hutch/internal/driver"
	"hutch/internal/linux/netns"
	"hutch/internal/linux/tun"
)

var (
	_ driver.Networked = (*instance)(nil)
	_ driver.Connector = (*instance)(nil)
	_ driver.Renamer   = (*instance)(nil)
)

// makeNetwork makes the network device. If that is impossible, the instance works without a network.
func (i *instance) makeNetwork(ctx context.Context) error {
	err := i.withDevice(ctx, func(fd int) error {
		if err := tun.Create(fd); err != nil {
			return err
		}
		return tun.Keep(fd)
	})
	if errors.Is(err, errElsewhere) || errors.Is(err, tun.ErrNone) {
		return nil
	}
	return err
}

// Network implements driver.Networked.
func (i *instance) Network() (*os.File, error) {
	var file *os.File
	err := i.withDevice(context.Background(), func(fd int) error {
		if err := tun.Attach(fd); err != nil {
			return err
		}
		own, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 3)
		if err == nil {
			file = os.NewFile(uintptr(own), tun.Path)
		}
		return err
	})
	if err != nil {
		return nil, hutch.Errorf(hutch.Unavailable, "the sandbox %q has no network: it did not ask for one, or `hutch doctor` shows what this machine lacks for one", i.id).Because(err)
	}
	return file, nil
}

// withDevice opens the path of network devices in the network namespace of the container.
func (i *instance) withDevice(ctx context.Context, do func(fd int) error) error {
	p, err := i.process(ctx)
	if err != nil {
		return err
	}
	defer p.Close()
	return p.within(unix.CLONE_NEWNET, func() error {
		fd, err := unix.Open(tun.Path, unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
		if err != nil {
			return fmt.Errorf("%w: %w", tun.ErrNone, err)
		}
		defer unix.Close(fd)
		return do(fd)
	})
}

// Connect implements driver.Connector. A socket stays in the network namespace in which it was created.
func (i *instance) Connect(ctx context.Context, port int) (net.Conn, error) {
	p, err := i.process(ctx)
	if err != nil {
		return nil, hutch.Errorf(hutch.Unsupported, "the servers of sandbox %q are reached by its agent only", i.id).Because(err)
	}
	defer p.Close()
	fd := -1
	err = p.within(unix.CLONE_NEWNET, func() (err error) {
		fd, err = unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
		return err
	})
	if err != nil {
		return nil, err
	}
	return netns.Dial(ctx, fd, port)
}
