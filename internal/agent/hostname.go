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

// overwrite replaces the text of a regular file. If root in the sandbox has put anything else at the path, overwrite
// leaves it unchanged. overwrite runs in each create from the pool, so it does not empty the file first, for which
// gVisor frees a page and takes another: it only cuts off the rest of a longer text.
func overwrite(path, text string) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0o644)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return errors.New("no regular file")
	}
	if _, err := f.WriteString(text); err != nil || info.Size() <= int64(len(text)) {
		return err
	}
	return f.Truncate(int64(len(text)))
}
