package agent

import (
	"os"

	"hutch"
	"hutch/internal/wire"
)

// adopt takes on the identity of the sandbox that the place is for from now on.
// Only the agent of a place of its own may give that a name: a driver that has
// done so already is not in its way.
func (a *agent) adopt(i wire.Identity) error {
	if now, _ := os.Hostname(); a.opt.Rename != nil && now != i.Hostname {
		if err := a.opt.Rename(i.Hostname); err != nil {
			return hutch.Errorf(hutch.Unsupported, "this place cannot be given another host name").Because(err)
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.env = i.Env
	return nil
}

// baseEnv is what every command's environment is based on.
func (a *agent) baseEnv() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.env
}
