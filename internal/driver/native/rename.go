package native

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"hutch"
	"hutch/internal/driver"
	"hutch/internal/driver/native/inside"
	"hutch/internal/linux/clone"
	"hutch/internal/linux/names"
)

var _ driver.Renamer = (*instance)(nil)

// Rename gives the instance another host name. It does so from outside, because no process inside has the right to
// change it.
func (i *instance) Rename(hostname string) error {
	err := i.process.With(func(fd int) error { return clone.SetHostname(fd, hostname) })
	if errors.Is(err, unix.EPERM) || errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOSYS) {
		return hutch.Errorf(hutch.Unsupported, "this system gives a native sandbox no other host name").Because(err)
	}
	if err == nil {
		err = errors.Join(i.rewrite(inside.NameFD, hostname+"\n"), i.rewrite(inside.HostsFD, names.Hosts(hostname)))
	}
	if err != nil {
		return fmt.Errorf("rename an instance: %w", err)
	}
	return nil
}

// rewrite replaces the content of a file that the agent keeps open.
func (i *instance) rewrite(fd int, text string) error {
	file, err := i.process.File(fd)
	if err != nil {
		return err
	}
	_, err = file.WriteAt([]byte(text), 0)
	if err == nil {
		err = file.Truncate(int64(len(text)))
	}
	return errors.Join(err, file.Close())
}
