package agent

import (
	"os"

	"golang.org/x/sys/unix"

	"hutch/internal/linux/names"
)

// setHostname gives the place a host name, where the agent has the right to that,
// and writes the files that tell programs of it. Where those are read only, they
// are the driver's to write.
func setHostname(name string) error {
	if err := unix.Sethostname([]byte(name)); err != nil {
		return err
	}
	_ = os.WriteFile("/etc/hostname", []byte(name+"\n"), 0o644)
	_ = os.WriteFile("/etc/hosts", []byte(names.Hosts(name)), 0o644)
	return nil
}
