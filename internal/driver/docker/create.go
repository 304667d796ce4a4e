package docker

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/moby/moby/api/pkg/stdcopy"
	"github.com/moby/moby/client"

	"hutch"
	"hutch/internal/driver"
	"hutch/internal/image"
	"hutch/internal/linux/names"
	"hutch/internal/linux/seccomp"
	"hutch/internal/linux/tun"
	"hutch/internal/wire"
)

const (
	createTime = 40 * time.Second // a create takes a third of a second; the first create takes half a second more
	importTime = 5 * time.Minute  // time limit of the import of an image, which happens once
	undoTime   = 20 * time.Second
)

// These are files in the folder of an instance.
const (
	socketFolder = "run"
	socketFile   = "agent"
)

// nameFiles are the files of /etc that each instance has separately.
var nameFiles = []string{"hostname", "hosts", "resolv.conf"}

// Create implements driver.Driver.
func (d *Driver) Create(ctx context.Context, spec driver.Spec) (driver.Instance, error) {
	if err := hutch.CheckID(spec.ID); err != nil {
		return nil, err
	}
	if err := d.prepare(ctx, spec.Root); err != nil {
		return nil, driver.CreateError(ctx, err, "the Docker engine could not start a sandbox: `hutch doctor` shows what is missing")
	}
	ctx, cancel := context.WithTimeoutCause(ctx, createTime, fmt.Errorf("not started within %v: %w", createTime, driver.ErrLate))
	defer cancel()
	i, err := d.create(ctx, spec)
	if err != nil {
		return nil, driver.CreateError(ctx, err, "the Docker engine could not start a sandbox: `hutch doctor` shows what is missing")
	}
	return i, nil
}

// prepare imports an EROFS image into the engine if the engine does not have it. The import has its own time limit,
// importTime, because it can take longer than a create. Other roots need no import here.
func (d *Driver) prepare(ctx context.Context, root image.Root) error {
	if root.EROFS == "" {
		return nil
	}
	ctx, cancel := context.WithTimeoutCause(ctx, importTime, fmt.Errorf("the image was not imported within %v: %w", importTime, driver.ErrLate))
	defer cancel()
	api, err := d.engine()
	if err == nil {
		_, err = d.image(ctx, api, root)
	}
	return err
}

// create creates an instance, or leaves nothing after an error. The folder prevents two instances with the same id.
func (d *Driver) create(ctx context.Context, spec driver.Spec) (_ *instance, err error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	api, err := d.engine()
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(d.dir, 0o700); err != nil {
		return nil, err
	}
	i := d.newInstance(api, spec.ID, record{Image: spec.Root.EROFS != ""})
	if err := os.Mkdir(i.dir, 0o700); errors.Is(err, fs.ErrExist) {
		return nil, hutch.Errorf(hutch.Conflict, "there is a sandbox %q of the runtime docker already: use it, or destroy it first", spec.ID)
	} else if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			undo, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTime)
			defer cancel()
			err = errors.Join(err, i.Destroy(undo))
		}
	}()
	if err := i.writeFiles(spec.Boot.Hostname); err != nil {
		return nil, err
	}
	imageName, err := d.image(ctx, api, spec.Root)
	if err != nil {
		return nil, err
	}
	made, err := api.ContainerCreate(ctx, d.options(spec, imageName))
	if err != nil {
		return nil, fmt.Errorf("make a container: %w", err)
	}
	i.record.Container = made.ID
	return i, i.start(ctx, spec)
}

// writeFiles makes the files that the container binds from the folder of the instance. The engine's root user can
// differ from ours, so the files are open to other users; the folder above them is closed to other users.
func (i *instance) writeFiles(hostname string) error {
	texts := map[string]string{
		"hostname": hostname + "\n", "hosts": names.Hosts(hostname),
		"resolv.conf": tun.Resolver,
	}
	for _, name := range nameFiles {
		path := filepath.Join(i.dir, name)
		if err := errors.Join(os.WriteFile(path, []byte(texts[name]), 0o644), os.Chmod(path, 0o644)); err != nil {
			return err
		}
	}
	run := filepath.Join(i.dir, socketFolder)
	return errors.Join(os.Mkdir(run, 0o777), os.Chmod(run, 0o777))
}

// start starts the container, and waits until its agent accepts connections.
func (i *instance) start(ctx context.Context, spec driver.Spec) error {
	boot, err := boot(spec)
	if err != nil {
		return err
	}
	stdin, err := i.api.ContainerAttach(ctx, i.record.Container, client.ContainerAttachOptions{Stream: true, Stdin: true, Stderr: true})
	if err != nil {
		return fmt.Errorf("attach to a container: %w", err)
	}
	defer stdin.Close()
	stop := context.AfterFunc(ctx, stdin.Close)
	defer stop()
	said := listenTo(stdin.Reader)
	if _, err := i.api.ContainerStart(ctx, i.record.Container, client.ContainerStartOptions{}); err != nil {
		return fmt.Errorf("start a container: %w", err)
	}
	go i.watch()
	if spec.Network {
		if err := i.makeNetwork(ctx); err != nil {
			return err
		}
	}
	if _, err := stdin.Conn.Write(boot); err != nil {
		return fmt.Errorf("send the agent its first message: %w", err)
	}
	return i.answer(ctx, said)
}

// boot returns the message to the agent. The filter is the same as in the runtime native, because both share the
// host's kernel.
func boot(spec driver.Spec) ([]byte, error) {
	b := spec.Boot
	b.Version, b.Listen = wire.Version, "unix:"+socketDir+"/"+socketFile
	if err := driver.SetUser(&b, spec.Root); err != nil {
		return nil, err
	}
	var err error
	if b.Filter, err = seccomp.Filter(); err != nil {
		return nil, err
	}
	text, err := json.Marshal(b)
	return append(text, '\n'), err
}

// answer waits until the agent accepts connections.
func (i *instance) answer(ctx context.Context, said <-chan string) error {
	for {
		conn, err := i.dial(ctx)
		if err == nil {
			return conn.Close()
		}
		select {
		case <-time.After(2 * time.Millisecond):
		case <-ctx.Done():
			return errors.Join(context.Cause(ctx), err)
		case <-i.done:
			return fmt.Errorf("the container ended before its agent was ready: %s", <-said)
		}
	}
}

// listenTo returns the container's standard error. It reads until the container ends or the connection is closed.
func listenTo(r io.Reader) <-chan string {
	const most = 4 << 10
	said := make(chan string, 1)
	go func() {
		var text bytes.Buffer
		stdcopy.StdCopy(io.Discard, &text, io.LimitReader(r, most))
		said <- text.String()
	}()
	return said
}
