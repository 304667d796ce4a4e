package agent

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"

	"hutch/internal/linux/names"
)

// setHostname sets the instance's host name, if the agent has the right to do so, and writes the files that contain it.
// If those are read only, the driver writes them.
func setHostname(name string) error {
	if err := unix.Sethostname([]byte(name)); err != nil {
		return err
	}
	_ = asRoot(func() error {
		return errors.Join(overwrite("/etc/hostname", name+"\n"), overwrite("/etc/hosts", names.Hosts(name)))
	})
	return nil
}

// overwrite writes a regular file. Root inside may have put anything else there, which is not changed.
func overwrite(path, text string) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0o644)
	if err != nil {
		return err
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return errors.New("no regular file")
	}
	if err := f.Truncate(0); err != nil {
		return err
	}
	_, err = f.WriteString(text)
	return err
}
