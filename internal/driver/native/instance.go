package native

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"os"
	"path/filepath"

	"hutch"
	"hutch/internal/ctxlock"
	"hutch/internal/driver"
	"hutch/internal/linux/cgroup"
	"hutch/internal/linux/pidfd"
)

// instance is an instance.
type instance struct {
	driver     *Driver
	id         string
	dir        string
	record     record
	group      *cgroup.Group  // nil if there are no control groups
	process    *pidfd.Process // nil if the process never started, or has ended
	done       chan struct{}  // closed by watch
	destroying ctxlock.Lock   // held by the caller that destroys

	releaseImage func() // releases the mount that instances of the image share; nil without such a mount
}

func (d *Driver) newInstance(id string) *instance {
	return &instance{driver: d, id: id, dir: filepath.Join(d.dir, id), done: make(chan struct{}), destroying: ctxlock.New()}
}

// watch waits for the end of the instance.
func (i *instance) watch() {
	i.process.Wait()
	close(i.done)
	i.process.Close()
}

// ID implements driver.Instance.
func (i *instance) ID() string { return i.id }

// Handle returns the record.
func (i *instance) Handle() driver.Handle {
	b, _ := json.Marshal(i.record) // numbers and strings can always be encoded
	return b
}

// Dial connects to the agent.
func (i *instance) Dial(ctx context.Context) (net.Conn, error) {
	conn, err := dial(ctx, i.dir)
	if err != nil {
		return nil, hutch.Errorf(hutch.Unavailable, "the native sandbox %q cannot be reached: look at its status, or destroy it and make a new one", i.id).Because(err)
	}
	return conn, nil
}

// Done returns a channel that is closed when the first process is dead. The kernel has then killed all other processes.
func (i *instance) Done() <-chan struct{} { return i.done }

// Destroy kills the instance and removes its remains.
func (i *instance) Destroy(ctx context.Context) error {
	if err := i.destroying.Take(ctx); err != nil {
		return i.destroyError(err)
	}
	defer i.destroying.Put()
	if err := i.kill(ctx); err != nil {
		return i.destroyError(err)
	}
	if i.releaseImage != nil {
		i.releaseImage()
	}
	if !i.owned() {
		return nil
	}
	if i.group != nil {
		if err := errors.Join(i.group.Kill(), i.group.Remove(ctx)); err != nil {
			return i.destroyError(err)
		}
	}
	if err := os.RemoveAll(i.dir); err != nil {
		return i.destroyError(err)
	}
	i.driver.freeUID(i.record.UID)
	return nil
}

func (i *instance) destroyError(err error) error {
	return hutch.Errorf(hutch.Unavailable, "the native sandbox %q is not all gone yet: destroy it again", i.id).Because(err)
}

// kill ends all processes. When the first process dies, the kernel kills the rest, and reports the end of the first
// only after all others have ended.
func (i *instance) kill(ctx context.Context) error {
	if i.process == nil {
		return nil
	}
	if err := i.process.Kill(); err != nil {
		return err
	}
	if err := i.Thaw(ctx); err != nil { // frozen processes do not die
		return err
	}
	select {
	case <-i.done:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// owned reports whether the folder and the group with that name still belong to this instance, not to a later one.
func (i *instance) owned() bool {
	now, err := readRecord(i.dir)
	return err != nil || now == i.record
}
