package docker

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/mount"
	"github.com/moby/moby/client"

	"hutch"
	"hutch/internal/driver"
	"hutch/internal/image"
)

const (
	// agentThreads is the number of the agent's threads, which do not count towards the user's limit of processes.
	agentThreads = 32
	// sharedMemory is the size of /dev/shm.
	sharedMemory = 64 << 20
	// oomScore makes the kernel end programs of sandboxes before other programs when the host has no memory left.
	oomScore = 500
)

// agentCapabilities let the agent, which is root inside, become the user, kill the user's programs, give files to the
// user, read all files of the user, and read the environment of processes. The agent empties its bounding set, so that
// no program that it starts can gain a capability.
var agentCapabilities = []string{"SETUID", "SETGID", "KILL", "SYS_PTRACE", "CHOWN", "FOWNER", "DAC_OVERRIDE", "DAC_READ_SEARCH", "SETPCAP"}

// options describes the container of an instance.
func (d *Driver) options(spec driver.Spec, imageName string) client.ContainerCreateOptions {
	return client.ContainerCreateOptions{
		Name: d.container(spec.ID),
		Config: &container.Config{
			Image: imageName, Hostname: spec.Boot.Hostname, User: "0:0", WorkingDir: "/",
			Entrypoint: []string{image.AgentPath, "docker"},
			OpenStdin:  true, StdinOnce: true, AttachStdin: true, AttachStderr: true,
			Labels: map[string]string{folderLabel: d.dir, sandboxLabel: spec.ID},
		},
		HostConfig: d.hostConfig(spec),
	}
}

func (d *Driver) hostConfig(spec driver.Spec) *container.HostConfig {
	no := false
	return &container.HostConfig{
		NetworkMode: "none", IpcMode: "private", CgroupnsMode: "private", Init: &no,
		CapDrop: []string{"ALL"}, CapAdd: agentCapabilities, SecurityOpt: []string{"no-new-privileges"},
		ReadonlyRootfs: true, Mounts: d.mounts(spec), Tmpfs: memoryFolders(spec.Limits, spec.Root.Account()), ShmSize: sharedMemory,
		LogConfig: container.LogConfig{Type: "none"}, OomScoreAdj: oomScore,
		Resources: resources(spec.Limits), Sysctls: sysctls(),
	}
}

// sysctls turn on settings that the engine turns off in a container without a network.
func sysctls() map[string]string {
	const six = "/proc/sys/net/ipv6/conf/all/disable_ipv6"
	if _, err := os.Stat(six); err != nil { // this kernel has no IPv6
		return nil
	}
	return map[string]string{"net.ipv6.conf.all.disable_ipv6": "0", "net.ipv6.conf.default.disable_ipv6": "0"}
}

func resources(l hutch.Limits) container.Resources {
	memory, pids := int64(l.Memory)<<20, int64(l.PIDs)+agentThreads
	return container.Resources{
		Memory: memory, MemorySwap: memory, NanoCPUs: int64(l.CPU * 1e9), PidsLimit: &pids,
	}
}

// memoryFolders returns the folders of the user. Each can be as large as the disk limit; all of them together must
// fit into the memory limit.
func memoryFolders(l hutch.Limits, user image.Account) map[string]string {
	folders := map[string]string{}
	for _, path := range image.Writable {
		mode := "755"
		if strings.HasSuffix(path, "tmp") {
			mode = "1777"
		}
		folders[path] = fmt.Sprintf("rw,exec,nosuid,nodev,size=%dm,nr_inodes=%d,mode=%s,uid=%d,gid=%d", l.Disk, l.Disk*256+1024, mode, user.UID, user.GID)
	}
	return folders
}

// mounts returns the host's folders that the image shows, the agent, the folder of the agent's socket, and the files
// with the instance's names. File systems that are mounted below a folder of the host are left out: older engines would
// make them writable.
func (d *Driver) mounts(spec driver.Spec) (list []mount.Mount) {
	binds := spec.Root.Binds[:len(spec.Root.Binds):len(spec.Root.Binds)]
	binds = append(binds, image.Bind{Source: d.agent, Target: image.AgentPath})
	for _, name := range nameFiles {
		binds = append(binds, image.Bind{Source: filepath.Join(d.dir, spec.ID, name), Target: "/etc/" + name})
	}
	for _, b := range binds {
		if spec.Root.Needs(b) { // otherwise the engine would make the mount point on the host
			list = append(list, bind(b, true))
		}
	}
	return append(list, bind(image.Bind{Source: filepath.Join(d.dir, spec.ID, socketFolder), Target: socketDir}, false))
}

func bind(b image.Bind, readOnly bool) mount.Mount {
	return mount.Mount{
		Type: mount.TypeBind, Source: b.Source, Target: b.Target, ReadOnly: readOnly,
		BindOptions: &mount.BindOptions{Propagation: mount.PropagationRPrivate, NonRecursive: true},
	}
}
