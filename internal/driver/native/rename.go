package native

import (
	"fmt"

	"golang.org/x/sys/unix"

	"hutch"
	"hutch/internal/driver"
)

var _ driver.Renamer = (*instance)(nil)

// Rename gives the place another host name. Only root may enter its namespaces:
// an ordinary user would have to enter that of users first, which no program
// with threads can.
func (i *instance) Rename(hostname string) error {
	if !i.driver.root {
		return hutch.Errorf(hutch.Unsupported, "a native sandbox can be renamed by root alone")
	}
	err := i.process.In(unix.CLONE_NEWUTS, func() error { return unix.Sethostname([]byte(hostname)) })
	if err != nil {
		return fmt.Errorf("rename a place: %w", err)
	}
	return nil
}
