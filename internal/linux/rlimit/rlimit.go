// Package rlimit sets resource limits of this process, which its children inherit.
package rlimit

import (
	"fmt"
	"syscall"
)

// Lower lowers both limits of a resource to most, or to the hard limit if that is lower, because a process without
// privileges over the machine cannot raise a hard limit.
func Lower(resource int, most uint64) error {
	var now syscall.Rlimit
	if err := syscall.Getrlimit(resource, &now); err != nil {
		return err
	}
	most = min(most, now.Max)
	if err := syscall.Setrlimit(resource, &syscall.Rlimit{Cur: most, Max: most}); err != nil {
		return fmt.Errorf("set limit %d to %d: %w", resource, most, err)
	}
	return nil
}
