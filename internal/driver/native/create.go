package native

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"hutch"
	"hutch/internal/driver"
	"hutch/internal/driver/native/inside"
	"hutch/internal/linux/cgroup"
	"hutch/internal/linux/clone"
	"hutch/internal/linux/pidfd"
	"hutch/internal/linux/pressure"
	"hutch/internal/linux/seccomp"
	"hutch/internal/linux/tun"
	"hutch/internal/wire"
)

const (
	createTime = 20 * time.Second // normally it takes milliseconds
	undoTime   = 10 * time.Second
	// agentThreads is the number of the agent's threads, which do not count towards the user's limit of processes.
	agentThreads = 32
	// fewestFiles and mostFiles bound the number of files that a process can have open.
	fewestFiles, mostFiles = 256, 1 << 16
)

// Create makes an instance.
func (d *Driver) Create(ctx context.Context, spec driver.Spec) (driver.Instance, error) {
	if err := hutch.CheckID(spec.ID); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, createTime)
	defer cancel()
	i, err := d.create(ctx, spec)
	if err != nil {
		return nil, driver.CreateError(ctx, err, "no native sandbox can be made: `hutch doctor` shows what this machine lacks for it")
	}
	return i, nil
}

// create creates an instance, or leaves nothing after an error. The folder prevents two instances with the same id.
func (d *Driver) create(ctx context.Context, spec driver.Spec) (_ *instance, err error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	i := d.newInstance(spec.ID)
	if err := os.Mkdir(i.dir, 0o700); errors.Is(err, fs.ErrExist) {
		return nil, hutch.Errorf(hutch.Conflict, "there is a native sandbox %q already: use it, or destroy it first", spec.ID)
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
	message, err := d.boot(spec)
	if err != nil {
		return nil, err
	}
	config, err := d.config(spec, message)
	if err != nil {
		return nil, err
	}
	if d.tree != nil {
		if i.group, err = d.tree.New(d.prefix+spec.ID, groupLimits(spec.Limits)); err != nil {
			return nil, err
		}
	}
	return i, i.start(ctx, config, message, spec)
}

func groupLimits(l hutch.Limits) cgroup.Limits {
	return cgroup.Limits{CPU: l.CPU, Memory: int64(l.Memory) << 20, PIDs: l.PIDs + agentThreads}
}

// boot returns the message to the agent. With enough ids, commands of an image can be root: see package inside.
func (d *Driver) boot(spec driver.Spec) (wire.Boot, error) {
	b := spec.Boot
	b.Version, b.Listen = wire.Version, inside.Listen
	if n, _ := d.imageIDs(); n == 0 || spec.Root.EROFS == "" {
		return b, driver.SetUser(&b, spec.Root)
	}
	b.Apart, b.Pass = true, seccomp.NewPass()
	return b, driver.SetAnyUser(&b, spec.Root)
}

// maxFiles returns how many files a process can have open. The kernel has no such limit for all processes of a group.
// So the number is chosen such that one instance with all its processes leaves half of the machine's files to others.
func maxFiles(machine uint64, pids int) uint64 {
	return min(max(machine/2/uint64(max(pids, 1)), fewestFiles), mostFiles)
}

// fileMax returns how many files all programs of the machine can have open.
func fileMax() uint64 {
	text, _ := os.ReadFile("/proc/sys/fs/file-max")
	n, err := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64)
	if err != nil {
		return math.MaxInt64 // the kernel's value for "no limit"
	}
	return n
}

// config describes the instance.
func (d *Driver) config(spec driver.Spec, boot wire.Boot) (inside.Config, error) {
	user := spec.Root.Account()
	c := inside.Config{
		Hostname: spec.Boot.Hostname, Privileged: d.root || boot.Apart, Shared: !d.root, User: user.UID, Group: user.GID,
		Size: int64(spec.Limits.Disk) << 20, Inodes: int64(spec.Limits.Disk)<<20/4096 + 1024,
		CPUs: fmt.Sprintf("0-%d", runtime.NumCPU()-1), MaxFiles: maxFiles(fileMax(), spec.Limits.PIDs), Processes: uint64(spec.Limits.PIDs), Network: spec.Network,
	}
	if !c.Privileged { // the agent has the same id, so its threads count, too
		c.Processes += agentThreads
		c.Agent = d.agent
	}
	filter := seccomp.Filter
	if boot.Apart { // processes of all ids of the commands' namespace count, and so do the agent's threads
		c.Apart, _ = d.imageIDs()
		c.Processes += agentThreads
		filter = func() ([]byte, error) { return seccomp.FilterApart(boot.Pass) }
	}
	var err error
	if c.Filter, err = filter(); err != nil {
		return c, err
	}
	if spec.Root.EROFS == "" {
		return c, plan(&c, spec.Root)
	}
	planImage(&c, spec.Root)
	return c, d.checkImage(spec)
}

// start starts the instance's first process and waits until that process is the agent.
func (i *instance) start(ctx context.Context, config inside.Config, boot wire.Boot, spec driver.Spec) error {
	b, err := i.newStartFiles(&config)
	if err != nil {
		return err
	}
	defer b.close()
	if err := i.fork(b, config); err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { i.process.Kill() })
	defer stop()
	if spec.Layer != nil {
		err = i.begin(spec.Layer.(*layer), &config)
	} else if config.Image != nil {
		err = i.attachImage(spec.Root, &config)
	}
	if err != nil {
		return err
	}
	sent := inside.Send(b.config, config, boot)
	b.config.Close()
	if err := inside.Receive(b.status); err != nil {
		return err
	}
	return sent
}

// fork starts the process and stores its record on disk. Only after that, the instance gets its configuration and
// starts.
func (i *instance) fork(b *startFiles, config inside.Config) error {
	command := clone.Command{
		Path: inside.Program, Argv: inside.InitArgs, Env: inside.Env, Files: b.descriptors(),
		Namespaces: namespaces, Capabilities: inside.Capabilities,
	}
	if config.Network {
		command.Device, command.DeviceFD = tun.Path, inside.NetworkFD
	}
	if i.driver.root {
		uid, err := i.driver.takeUID(config.Image != nil)
		if err != nil {
			return err
		}
		i.record.UID = uid
		command.Owner = i.record.UID
	}
	fd, pid := -1, 0
	err := i.inGroup(func(group int) (err error) {
		command.Group = group
		pid, fd, err = clone.Start(command)
		return err
	})
	b.closeChildFiles()
	if err != nil {
		return err
	}
	if i.process, err = pidfd.Adopt(fd, pid); err != nil {
		return err
	}
	go i.watch()
	if i.record, err = newRecord(pid, i.record.UID); err != nil {
		return err
	}
	i.record.Image = config.Image != nil
	if err := pressure.Offer(pid); err != nil {
		return err
	}
	if err := i.mapIDs(pid, config); err != nil {
		return err
	}
	return i.record.write(i.dir)
}

// namespaces are the namespaces that an instance has from its birth. It creates its cgroup namespace later, when it is
// in its group.
const namespaces = unix.CLONE_NEWUSER | unix.CLONE_NEWPID | unix.CLONE_NEWNS | unix.CLONE_NEWNET | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS

// inGroup calls start in such a way that the new process is in the group, if there is a group.
func (i *instance) inGroup(start func(group int) error) error {
	if i.group == nil {
		return start(0)
	}
	return i.group.Start(start)
}
