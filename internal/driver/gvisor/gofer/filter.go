package gofer

import (
	"fmt"

	"gvisor.dev/gvisor/pkg/seccomp"
	"gvisor.dev/gvisor/runsc/fsgofer/filter"

	compiled "hutch/internal/driver/gvisor/filter"
)

// confine installs the filter of system calls.
func confine(opt filter.Options) error {
	if opt.ConfigKey() != compiled.Gofer.Name {
		return filter.Install(opt)
	}
	instructions, err := compiled.Gofer.RenderInstructions(opt.Vars())
	if err != nil {
		return fmt.Errorf("fill it in: %w", err)
	}
	return seccomp.SetFilter(instructions)
}
