package kubernetes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	core "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"hutch"
	"hutch/internal/delay"
	"hutch/internal/driver"
	"hutch/internal/driver/kubernetes/inside"
	"hutch/internal/driver/memguard"
	"hutch/internal/image"
	"hutch/internal/linux/names"
	"hutch/internal/linux/seccomp"
	"hutch/internal/linux/tun"
	"hutch/internal/wire"
)

const (
	undoTime = time.Minute
	// agentThreads is the number of the agent's threads, which do not count towards the user's limit of processes.
	agentThreads = 32
)

// Create implements driver.Driver.
func (d *Driver) Create(ctx context.Context, spec driver.Spec) (driver.Instance, error) {
	if err := hutch.CheckID(spec.ID); err != nil {
		return nil, err
	}
	if _, err := d.client(); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, createTime, fmt.Errorf("not started within %v: %w", createTime, driver.ErrLate))
	defer cancel()
	i, err := d.create(ctx, spec)
	if err != nil {
		return nil, driver.CreateError(ctx, err, "the cluster could not start a sandbox: `hutch doctor` shows what is missing")
	}
	return i, nil
}

// create creates an instance, or leaves nothing after an error. The name of the pod prevents two instances with the
// same id.
func (d *Driver) create(ctx context.Context, spec driver.Spec) (_ *instance, err error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	boot, err := bootOf(spec)
	if err != nil {
		return nil, err
	}
	server, err := d.id()
	if err != nil {
		return nil, err
	}
	imageName, err := imageOf(spec)
	if err != nil {
		return nil, err
	}
	var made core.Pod
	err = d.api.Post().Namespace(d.template.Namespace).Resource("pods").Body(d.pod(spec, server, imageName)).Do(ctx).Into(&made)
	if apierrors.IsAlreadyExists(err) {
		return nil, hutch.Errorf(hutch.Conflict, "there is a sandbox %q of the runtime kubernetes already: use it, or destroy it first", spec.ID)
	}
	i := d.newInstance(spec.ID, record{Pod: podName(server, spec.ID), UID: made.UID, Memory: int64(spec.Limits.Memory) << 20})
	defer func() {
		if err != nil {
			undo, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTime)
			defer cancel()
			err = errors.Join(err, i.Destroy(undo))
		}
	}()
	if err != nil { // the pod is perhaps created nevertheless
		return nil, fmt.Errorf("make a pod: %w", err)
	}
	if err := d.await(ctx, i.record.Pod); err != nil {
		return nil, err
	}
	if err := i.connect(ctx); err != nil {
		return nil, fmt.Errorf("reach a new pod: %w", err)
	}
	if i.record.Network, err = i.boot(ctx, boot); err != nil {
		return nil, err
	}
	go i.keep()
	return i, nil
}

// await waits until a pod runs.
func (d *Driver) await(ctx context.Context, name string) error {
	for wait := 20 * time.Millisecond; ; wait = min(wait*3/2, 300*time.Millisecond) {
		pod, err := d.get(ctx, name)
		if err != nil {
			return fmt.Errorf("wait for a pod: %w", err)
		}
		if running(pod) {
			return nil
		}
		why, final := waitReason(pod)
		if final {
			return errors.New(why)
		}
		if delay.Wait(ctx, wait) != nil {
			return fmt.Errorf("%s: %w", why, context.Cause(ctx))
		}
	}
}

// boot sends the boot message and waits until the agent accepts connections.
func (i *instance) boot(ctx context.Context, boot []byte) (network bool, err error) {
	conn, err := i.open(ctx, inside.ToBoot)
	if err != nil {
		return false, err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	if _, err := conn.Write(boot); err != nil {
		return false, fmt.Errorf("send the agent its first message: %w", err)
	}
	var reply inside.Reply
	if err := json.NewDecoder(io.LimitReader(conn, mostReply)).Decode(&reply); err != nil {
		return false, fmt.Errorf("wait for the agent: %w", err)
	}
	if reply.Error != "" {
		return false, fmt.Errorf("the pod cannot hold a sandbox: %.500q", reply.Error)
	}
	return !reply.NoNetwork, nil
}

// bootOf returns the message to the first process of a pod. The filter of programs is that of the runtime native,
// because pods can share a kernel, too.
func bootOf(spec driver.Spec) ([]byte, error) {
	b := inside.Boot{
		Writable: image.Writable, Memory: memguard.LimitsOf(int64(spec.Limits.Memory) << 20), Limit: int64(spec.Limits.Memory) << 20,
		Agent: spec.Boot, Size: int64(spec.Limits.Disk) << 20, Inodes: int64(spec.Limits.Disk)*256 + 1024,
		Processes: uint64(spec.Limits.PIDs + agentThreads), Network: spec.Network,
	}
	b.Agent.Version = wire.Version
	if err := driver.SetUser(&b.Agent, spec.Root); err != nil {
		return nil, err
	}
	var err error
	if b.Agent.Filter, err = seccomp.Filter(); err != nil {
		return nil, err
	}
	if b.Files, err = filesOf(spec); err != nil {
		return nil, err
	}
	text, err := json.Marshal(b)
	return append(text, '\n'), err
}

// etcFiles are the files of /etc that are copied from the server for the image "host".
var etcFiles = []string{"passwd", "group", "nsswitch.conf", "profile", "bash.bashrc"}

// filesOf returns the files over an image. The image "host" is the template's image, with the users and folders of the
// server.
func filesOf(spec driver.Spec) (files []inside.File, err error) {
	if spec.Root.EROFS != "" {
		for _, f := range spec.Root.Files {
			files = append(files, inside.File{Path: f.Path, Mode: f.Mode, UID: f.UID, GID: f.GID, Content: f.Content})
		}
		return files, nil
	}
	folder := func(path string, mode fs.FileMode, owner int) {
		files = append(files, inside.File{Path: path, Mode: mode | fs.ModeDir, UID: owner, GID: owner})
	}
	for _, path := range []string{"/", "/proc", "/sys", "/dev", "/etc", "/home", "/var", filepath.Dir(image.AgentPath)} {
		folder(path, 0o755, 0)
	}
	files = append(files, inside.File{Path: image.AgentPath, Mode: 0o755})
	for _, path := range []string{"/tmp", "/var/tmp"} {
		folder(path, 0o777|fs.ModeSticky, image.UID) // tar sets the times of folders
	}
	for _, path := range []string{image.Workspace, image.Data, image.Home} {
		folder(path, 0o755, image.UID)
	}
	texts := map[string]string{
		"hostname": spec.Boot.Hostname + "\n", "hosts": names.Hosts(spec.Boot.Hostname),
		"resolv.conf": tun.Resolver,
	}
	for _, name := range etcFiles {
		text, err := os.ReadFile(filepath.Join(spec.Root.Dir, "etc", name))
		if err != nil {
			return nil, fmt.Errorf("read the files of the image host: %w", err)
		}
		texts[name] = string(text)
	}
	for name, text := range texts {
		files = append(files, inside.File{Path: "/etc/" + name, Mode: 0o644, Content: text})
	}
	return files, nil
}

// imageOf returns the name of the image in the cluster; "" for the template's image. The name has the digest that the
// server resolved with the caller's rights, so the cluster runs no other image.
func imageOf(spec driver.Spec) (string, error) {
	if spec.Root.EROFS == "" {
		return "", nil
	}
	if name, _, pinned := strings.Cut(spec.Image, "@sha256:"); !pinned || strings.HasPrefix(name, "localhost/") {
		return "", hutch.Errorf(hutch.Unsupported, "the cluster cannot pull the image %s, which only this server has: push it to a registry with `hutch image push`, and use that name", spec.Image).Naming(hutch.AboutField, "image")
	}
	return spec.Image, nil
}
