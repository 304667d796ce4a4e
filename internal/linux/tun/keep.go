package tun

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// Keep makes the device of a descriptor outlive all its descriptors. The device then ends with its network namespace.
func Keep(fd int) error {
	if err := unix.IoctlSetInt(fd, unix.TUNSETPERSIST, 1); err != nil {
		return fmt.Errorf("keep the network device: %w", err)
	}
	return nil
}

// Attach attaches fd to the device that Keep kept in the network namespace of the calling thread. fd must be a descriptor
// of Path that was opened in that namespace. The error is ErrNone if the namespace has no such device. At most one
// descriptor can be attached at a time.
func Attach(fd int) error {
	if _, err := index(); err != nil {
		return fmt.Errorf("%w: %w", ErrNone, err)
	}
	request, err := unix.NewIfreq(Name)
	if err != nil {
		return err
	}
	request.SetUint16(unix.IFF_TUN | unix.IFF_NO_PI)
	if err := unix.IoctlIfreq(fd, unix.TUNSETIFF, request); err != nil {
		return fmt.Errorf("attach to the network device: %w", err)
	}
	return nil
}
