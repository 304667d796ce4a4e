package native

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"hutch"
	"hutch/internal/driver"
	"hutch/internal/driver/native/place"
	"hutch/internal/linux/clone"
)

var _ driver.Renamer = (*instance)(nil)

// Rename gives the place another host name, from outside: nothing within ever
// has the right to.
func (i *instance) Rename(hostname string) error {
	err := i.process.With(func(fd int) error { return clone.SetHostname(fd, hostname) })
	if errors.Is(err, unix.EPERM) || errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOSYS) {
		return hutch.Errorf(hutch.Unsupported, "this system gives a native sandbox no other host name").Because(err)
	}
	if err == nil {
		err = i.writeName(hostname)
	}
	if err != nil {
		return fmt.Errorf("rename a place: %w", err)
	}
	return nil
}

// writeName writes what programs read in /etc/hostname.
func (i *instance) writeName(hostname string) error {
	file, err := i.process.File(place.NameFD)
	if err != nil {
		return err
	}
	_, err = file.WriteAt([]byte(hostname+"\n"), 0)
	if err == nil {
		err = file.Truncate(int64(len(hostname)) + 1)
	}
	return errors.Join(err, file.Close())
}
