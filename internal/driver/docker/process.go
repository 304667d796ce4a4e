package docker

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"

	"github.com/moby/moby/client"
	"golang.org/x/sys/unix"
)

// process is the first process of a container. Its parent belongs to the engine.
type process struct {
	pid  int
	file *os.File // a pidfd
}

// errElsewhere is the error when the processes of containers are not visible, or cannot be entered.
var errElsewhere = errors.New("the processes of containers cannot be entered: that takes root, on the host of the Docker engine")

// process returns the container's first process. The engine's number can belong to another process in our pid
// namespace, so process checks that the process is in the control group of the container.
func (i *instance) process(ctx context.Context) (*process, error) {
	if !i.driver.root {
		return nil, errElsewhere
	}
	found, err := i.api.ContainerInspect(ctx, i.record.Container, client.ContainerInspectOptions{})
	if err != nil {
		return nil, err
	}
	state := found.Container.State
	if state == nil || !state.Running || state.Pid <= 1 {
		return nil, os.ErrProcessDone
	}
	fd, err := unix.PidfdOpen(state.Pid, 0)
	if errors.Is(err, unix.ESRCH) {
		return nil, errElsewhere
	} else if err != nil {
		return nil, os.NewSyscallError("pidfd_open", err)
	}
	p := &process{state.Pid, os.NewFile(uintptr(fd), "pidfd")}
	groups, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", p.pid))
	if err != nil || !bytes.Contains(groups, []byte(found.Container.ID)) || p.dead() {
		p.Close()
		return nil, errElsewhere
	}
	return p, nil
}

func (p *process) Close() error { return p.file.Close() }

func (p *process) fd() int { return int(p.file.Fd()) }

// dead reports whether the process has ended. After that, another process can have its number.
func (p *process) dead() bool { return unix.PidfdSendSignal(p.fd(), 0, nil, 0) != nil }

// within runs do on a thread that is in a namespace of the process.
func (p *process) within(namespace int, do func() error) error {
	ended := make(chan error, 1)
	go func() {
		// The thread is never unlocked, so that it ends with this goroutine and no other goroutine runs on it. The
		// first thread cannot end, so it is never used for this.
		runtime.LockOSThread()
		if unix.Gettid() == unix.Getpid() {
			defer runtime.UnlockOSThread()
			ended <- p.within(namespace, do)
			return
		}
		if err := unix.Setns(p.fd(), namespace); err != nil {
			ended <- fmt.Errorf("enter a namespace of a container: %w", err)
			return
		}
		ended <- do()
	}()
	return <-ended
}
