package gvisor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"hutch/internal/linux/cgroup"
)

// folder has the paths of one instance's files on the host.
type folder struct {
	dir   string        // its folder
	group *cgroup.Group // nil if there are no control groups
}

func (p folder) files() string { return filepath.Join(p.dir, "files") } // path of the backing file

// socketDir returns the path of the folder that is mounted in the sandbox for the socket between daemon and agent. On
// the host the folder stays empty: the gofer covers it with a small file system in memory.
func (p folder) socketDir() string { return filepath.Join(p.dir, "run") }

func (p folder) config() string { return filepath.Join(p.dir, "config.json") }
func (p folder) upper() string  { return filepath.Join(p.dir, "upper.tar") }
func (p folder) state() string  { return filepath.Join(p.dir, "runsc") } // runsc's --root
func (p folder) control() control {
	return control{filepath.Join(p.state(), "runsc-"+container+".sock")}
}

// processes are the processes that live as long as the sandbox. A handle contains them.
type processes struct {
	Sentry process `json:"sentry"`
	Gofer  process `json:"gofer"`
	// Network reports that the sandbox has a network device.
	Network bool `json:"network,omitempty"`
	// Memory is the limit of the programs inside, in bytes. 0 means that an earlier version created the instance, and
	// the kernel enforces its limit.
	Memory int64 `json:"memory,omitempty"`
}

// processes reads the numbers of the sandbox's processes from runsc's state.
func (p folder) processes() (processes, error) {
	name := fmt.Sprintf("%s_sandbox:%s.state", container, container)
	text, err := os.ReadFile(filepath.Join(p.state(), name))
	if err != nil {
		return processes{}, err
	}
	var state struct {
		GoferPID int `json:"goferPid"`
		Sandbox  struct {
			PID int `json:"pid"`
		} `json:"sandbox"`
	}
	if err := json.Unmarshal(text, &state); err != nil {
		return processes{}, fmt.Errorf("read %s: %w", name, err)
	}
	sentry, err := identify(state.Sandbox.PID)
	if err != nil {
		return processes{}, err
	}
	gofer, err := identify(state.GoferPID)
	return processes{Sentry: sentry, Gofer: gofer}, err
}

// removeAll kills all processes of the instance, waits for their end and removes everything. It needs only the instance's
// name, so it also removes an instance whose creation was interrupted.
func (p folder) removeAll(ctx context.Context) error {
	if p.group != nil {
		if err := p.group.Kill(); err != nil {
			return err
		}
	}
	if err := killNamed(ctx, "--root="+p.state()); err != nil {
		return err
	}
	return p.clear(ctx)
}

// clear removes the control group and the folder of an instance whose processes have ended.
func (p folder) clear(ctx context.Context) error {
	var err error
	if p.group != nil {
		err = p.group.Remove(ctx)
	}
	return errors.Join(err, os.RemoveAll(p.dir))
}
