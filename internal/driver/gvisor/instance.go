package gvisor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"hutch"
	"hutch/internal/driver"
	"hutch/internal/driver/gvisor/contract"
	"hutch/internal/linux/cgroup"
	"hutch/internal/linux/pidfd"
)

// instance is a live instance.
type instance struct {
	folder
	procs  processes
	handle driver.Handle
	sentry *pidfd.Process
	done   chan struct{}            // closed when the sentry is dead or forget was called
	froze  atomic.Bool              // true if the sandbox was frozen through this value: see Thaw
	early  chan *cgroup.MemoryWatch // has at most one value: see beginMemoryWatch

	mu      sync.Mutex
	removed bool
}

// open watches the sandbox with these processes. The error is os.ErrProcessDone if its sentry is gone.
func open(p folder, procs processes) (*instance, error) {
	handle, err := json.Marshal(procs)
	if err != nil {
		return nil, err
	}
	sentry, err := pidfd.Open(procs.Sentry.PID, procs.Sentry.Started)
	if err != nil {
		return nil, err
	}
	i := &instance{folder: p, procs: procs, handle: handle, sentry: sentry, done: make(chan struct{}), early: make(chan *cgroup.MemoryWatch, 1)}
	go i.beginMemoryWatch()
	go i.watch()
	return i, nil
}

// watch waits for the end of the sentry.
func (i *instance) watch() {
	defer close(i.done)
	defer i.sentry.Close()
	i.sentry.Wait()
	go i.dropMemoryWatch()
}

// forget stops watching a sandbox that other code ends.
func (i *instance) forget() {
	i.sentry.Close()
	<-i.done
}

// answerTime is how long the agent can take to accept connections.
const answerTime = 20 * time.Second

// begin starts the agent or continues from a save, waits until the agent accepts connections, and then limits the CPU.
func (i *instance) begin(ctx context.Context, spec driver.Spec, saved saved) error {
	ctx, cancel := context.WithTimeoutCause(ctx, answerTime, fmt.Errorf("the agent did not answer in %v: %w", answerTime, driver.ErrLate))
	defer cancel()
	if err := i.start(ctx, spec, saved); err != nil {
		return err
	}
	if err := i.answer(ctx); err != nil {
		return err
	}
	if i.group == nil {
		return nil
	}
	return i.group.Limit(cgroup.Limits{CPU: spec.Limits.CPU})
}

func (i *instance) start(ctx context.Context, spec driver.Spec, saved saved) error {
	if !spec.Network {
		return i.control().start(ctx, saved)
	}
	device, err := i.endOfDevice(contract.DeviceFD)
	if err != nil {
		return err
	}
	defer device.Close()
	return i.control().start(ctx, saved, device)
}

func (i *instance) answer(ctx context.Context) error {
	for pause := time.Millisecond; ; pause = min(2*pause, 5*time.Millisecond) {
		conn, err := i.dialAgent(ctx)
		if err == nil {
			return conn.Close()
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return errors.Join(context.Cause(ctx), err)
		case <-i.done:
			return errors.Join(errors.New("the sandbox died while it started"), err)
		}
	}
}

// ID implements driver.Instance.
func (i *instance) ID() string { return filepath.Base(i.dir) }

// Handle implements driver.Instance.
func (i *instance) Handle() driver.Handle { return i.handle }

// Done implements driver.Instance.
func (i *instance) Done() <-chan struct{} { return i.done }

// Dial implements driver.Instance.
func (i *instance) Dial(ctx context.Context) (net.Conn, error) {
	conn, err := i.dialAgent(ctx)
	if err == nil {
		return conn, nil
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	return nil, hutch.Errorf(hutch.Unavailable,
		"the sandbox does not answer: look at its status, or destroy it and make a new one").Because(err)
}

// Destroy implements driver.Instance.
func (i *instance) Destroy(ctx context.Context) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.removed {
		return nil
	}
	if err := i.end(ctx); err != nil {
		return fmt.Errorf("destroy a sandbox: %w", err)
	}
	if err := i.clear(ctx); err != nil {
		return fmt.Errorf("destroy a sandbox: %w", err)
	}
	i.removed = true
	return nil
}

// end kills everything inside, and the processes of the sandbox itself.
func (i *instance) end(ctx context.Context) error {
	if i.group != nil {
		if err := i.group.Kill(); err != nil {
			return err
		}
	}
	if err := i.procs.Sentry.end(ctx); err != nil {
		return err
	}
	if err := i.procs.Gofer.end(ctx); err != nil {
		return err
	}
	<-i.done
	return nil
}
