package docker

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"
	"golang.org/x/sys/unix"

	"hutch"
	"hutch/internal/ctxlock"
	"hutch/internal/delay"
	"hutch/internal/driver"
)

// record is the data needed to find an instance again.
type record struct {
	Container string `json:"container"`       // the engine's id of the container
	Image     bool   `json:"image,omitempty"` // the image is not the host's, so its programs are untrusted
}

// instance is an instance.
type instance struct {
	driver     *Driver
	api        *client.Client
	id         string
	dir        string
	record     record
	done       chan struct{} // closed by watch
	destroying ctxlock.Lock  // held by the caller that destroys the instance
	gone       bool          // the instance was destroyed
}

func (d *Driver) newInstance(api *client.Client, id string, r record) *instance {
	return &instance{driver: d, api: api, id: id, dir: filepath.Join(d.dir, id), record: r, done: make(chan struct{}), destroying: ctxlock.New()}
}

// watch waits for the end of the container. If the engine does not answer, the container can still run, so watch
// continues.
func (i *instance) watch() {
	defer close(i.done)
	for pause := 50 * time.Millisecond; ; pause = min(2*pause, 5*time.Second) {
		wait := i.api.ContainerWait(context.Background(), i.record.Container, client.ContainerWaitOptions{Condition: container.WaitConditionNotRunning})
		select {
		case <-wait.Result:
			return
		case err := <-wait.Error:
			if errdefs.IsNotFound(err) {
				return
			}
		}
		time.Sleep(pause)
	}
}

// ID implements driver.Instance.
func (i *instance) ID() string { return i.id }

// Handle returns the record.
func (i *instance) Handle() driver.Handle {
	b, _ := json.Marshal(i.record) // text can always be encoded
	return b
}

// Done implements driver.Instance.
func (i *instance) Done() <-chan struct{} { return i.done }

// Dial implements driver.Instance.
func (i *instance) Dial(ctx context.Context) (net.Conn, error) {
	conn, err := i.dial(ctx)
	if err != nil {
		return nil, hutch.Errorf(hutch.Unavailable, "the sandbox %q cannot be reached: look at its status, or destroy it and make a new one", i.id).Because(err)
	}
	return conn, nil
}

// dial connects by a path that is short enough for a socket. It does not follow a link in the folder of the socket.
func (i *instance) dial(ctx context.Context) (net.Conn, error) {
	fd, err := unix.Open(filepath.Join(i.dir, socketFolder, socketFile), unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: i.dir, Err: err}
	}
	defer unix.Close(fd)
	return new(net.Dialer).DialContext(ctx, "unix", fmt.Sprintf("/proc/self/fd/%d", fd))
}

// Destroy implements driver.Instance.
func (i *instance) Destroy(ctx context.Context) error {
	if err := i.destroying.Take(ctx); err != nil {
		return i.destroyError(err)
	}
	defer i.destroying.Put()
	if i.gone {
		return nil
	}
	if err := i.remove(ctx); err != nil {
		return i.destroyError(err)
	}
	i.gone = true
	return nil
}

func (i *instance) destroyError(err error) error {
	return hutch.Errorf(hutch.Unavailable, "the sandbox %q is not all gone yet: destroy it again", i.id).Because(err)
}

// remove removes the container, and then the folder. The order matters, because another instance can get this id as
// soon as the folder is gone.
func (i *instance) remove(ctx context.Context) error {
	which, err := i.container(ctx)
	if err != nil {
		return err
	}
	if which != "" {
		if err := i.removeContainer(ctx, which); err != nil {
			return err
		}
	}
	if !i.owned(ctx) {
		return nil
	}
	return os.RemoveAll(i.dir)
}

// container returns the engine's id of the instance's container, or "" if there is none. If the id was never known, it
// finds the container by its name. A container that only has the same name is not ours.
func (i *instance) container(ctx context.Context) (string, error) {
	if i.record.Container != "" {
		return i.record.Container, nil
	}
	found, err := i.api.ContainerInspect(ctx, i.driver.container(i.id), client.ContainerInspectOptions{})
	switch c := found.Container; {
	case errdefs.IsNotFound(err):
		return "", nil
	case err != nil:
		return "", fmt.Errorf("find a container: %w", err)
	case c.Config == nil || c.Config.Labels[folderLabel] != i.driver.dir || c.Config.Labels[sandboxLabel] != i.id:
		return "", nil
	default:
		return c.ID, nil
	}
}

func (i *instance) removeContainer(ctx context.Context, which string) error {
	_, err := i.api.ContainerRemove(ctx, which, client.ContainerRemoveOptions{Force: true, RemoveVolumes: true})
	for errdefs.IsConflict(err) { // another call is removing the container already
		if err := delay.Wait(ctx, 50*time.Millisecond); err != nil {
			return err
		}
		_, err = i.api.ContainerRemove(ctx, which, client.ContainerRemoveOptions{Force: true, RemoveVolumes: true})
	}
	if err != nil && !errdefs.IsNotFound(err) {
		return fmt.Errorf("remove a container: %w", err)
	}
	return nil
}

// owned reports whether the folder still belongs to this instance, not to a later one.
func (i *instance) owned(ctx context.Context) bool {
	if i.record.Container == "" {
		return true
	}
	now, err := i.api.ContainerInspect(ctx, i.driver.container(i.id), client.ContainerInspectOptions{})
	return err != nil || now.Container.ID == i.record.Container
}
