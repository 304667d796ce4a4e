package agent

import (
	"os"

	"golang.org/x/sys/unix"

	"hutch/internal/linux/names"
)

// setHostname sets the place's host name, if the agent has the right to, and writes the files that contain it. If
// those are read only, the driver writes them.
func setHostname(name string) error {
	if err := unix.Sethostname([]byte(name)); err != nil {
		return err
	}
	_ = os.WriteFile("/etc/hostname", []byte(name+"\n"), 0o644)
	_ = os.WriteFile("/etc/hosts", []byte(names.Hosts(name)), 0o644)
	return nil
}
