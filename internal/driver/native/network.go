package native

import (
	"os"

	"hutch"
	"hutch/internal/driver"
	"hutch/internal/driver/native/inside"
	"hutch/internal/linux/tun"
)

var _ driver.Networked = (*instance)(nil)

// Network copies the descriptor that the instance's agent keeps. No process inside can get the descriptor from the
// agent. Even with it, a process would see only the packets of its own sandbox.
func (i *instance) Network() (*os.File, error) {
	if i.process == nil {
		return nil, i.unreachable(os.ErrProcessDone)
	}
	file, err := i.process.File(inside.NetworkFD)
	if err != nil {
		return nil, i.unreachable(err)
	}
	if !tun.Is(file) {
		file.Close()
		return nil, hutch.Errorf(hutch.Unavailable, "the sandbox %q was made without a network: `hutch doctor` shows what this machine lacks for one; fix that, and create a new sandbox", i.id)
	}
	return file, nil
}

func (i *instance) unreachable(err error) error {
	return hutch.Errorf(hutch.Unavailable, "the network of sandbox %q cannot be reached: look at its status, or destroy it and make a new one", i.id).Because(err)
}
