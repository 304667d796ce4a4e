package gvisor

import (
	"archive/tar"
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/opencontainers/runtime-spec/specs-go"

	"hutch"
	"hutch/internal/driver"
	"hutch/internal/driver/gvisor/inside"
	"hutch/internal/image"
	"hutch/internal/linux/seccomp"
	"hutch/internal/wire"
)

const (
	container   = "agent"       // every sandbox has one container, with this name
	meeting     = "/.hutch/run" // where daemon and agent meet, inside: see [place.meeting]
	agentSocket = "agent.sock"

	// upperFile is the initial writable layer, open in runsc. gVisor requires the same path in all places that are
	// restored from one save.
	upperFile = "/proc/self/fd/5"
)

// writeBundle writes the files from which runsc creates the place.
func (p place) writeBundle(spec driver.Spec, agent string, from origin) error {
	bundle, err := bundle(spec, agent)
	if err != nil {
		return err
	}
	bundle.Annotations = map[string]string{"dev.gvisor.tar.rootfs.upper": upperFile}
	bundle.Mounts = append(bundle.Mounts, specs.Mount{
		Destination: meeting, Type: "bind", Source: p.meeting(), Options: []string{"bind", "rw", "nosuid", "nodev", "noexec"},
	})
	text, err := json.Marshal(bundle)
	if err != nil {
		return err
	}
	for _, dir := range []string{p.files(), p.meeting()} {
		if err := os.Mkdir(dir, 0o700); err != nil {
			return err
		}
	}
	if from.layer != "" {
		err = os.Symlink(from.layer, p.upper())
	} else {
		err = os.WriteFile(p.upper(), upperLayer(), 0o600)
	}
	if err != nil {
		return err
	}
	if from.config != nil {
		text = from.config
	}
	return os.WriteFile(p.config(), text, 0o600)
}

// bundle is the OCI configuration of a place.
func bundle(spec driver.Spec, agent string) (*specs.Spec, error) {
	boot := spec.Boot
	boot.Version, boot.Listen = wire.Version, "unix:"+meeting+"/"+agentSocket
	boot.Saved = "/proc/gvisor/checkpoint"
	boot.UID, boot.GID = image.UID, image.GID
	var err error
	boot.Pass = seccomp.NewPass()
	if boot.Filter, err = seccomp.Ancestry(boot.Pass); err != nil {
		return nil, err
	}
	text, err := json.Marshal(boot)
	if err != nil {
		return nil, err
	}
	memory := int64(spec.Limits.Memory) << 20
	return &specs.Spec{
		Version:  specs.Version,
		Hostname: boot.Hostname,
		Root:     &specs.Root{Path: spec.Root.Dir},
		Mounts:   mounts(spec.Root, agent),
		Process: &specs.Process{
			Args:            append([]string{image.AgentPath, "gvisor"}, innerLimits(spec.Limits)...),
			Env:             append(spec.Root.Env[:len(spec.Root.Env):len(spec.Root.Env)], "HUTCH_BOOT="+base64.StdEncoding.EncodeToString(text)),
			Cwd:             "/",
			Capabilities:    agentCapabilities,
			NoNewPrivileges: true,
		},
		Linux: &specs.Linux{
			Resources: &specs.LinuxResources{Memory: &specs.LinuxMemory{Limit: &memory}},
			Namespaces: []specs.LinuxNamespace{
				{Type: specs.PIDNamespace}, {Type: specs.IPCNamespace}, {Type: specs.UTSNamespace},
				{Type: specs.MountNamespace}, {Type: specs.NetworkNamespace},
			},
		},
	}, nil
}

// agentCapabilities let the agent, which is root inside, become the ordinary user, kill that user's programs, give
// files to it and remove them, read the environment of processes, and set the host name. The agent then drops all of
// them from the bounding set, so that programs it starts have none.
var agentCapabilities = func() *specs.LinuxCapabilities {
	caps := []string{
		"CAP_SETUID", "CAP_SETGID", "CAP_KILL", "CAP_SYS_PTRACE",
		"CAP_CHOWN", "CAP_FOWNER", "CAP_DAC_OVERRIDE", "CAP_DAC_READ_SEARCH", "CAP_SETPCAP", "CAP_SYS_ADMIN",
	}
	handed := []string{"CAP_DAC_READ_SEARCH"} // passed to the program that saves all files, by spawn.Command.ReadAll
	return &specs.LinuxCapabilities{Bounding: caps, Effective: caps, Permitted: caps, Inheritable: handed}
}()

func mounts(root image.Root, agent string) []specs.Mount {
	list := []specs.Mount{
		{Destination: "/proc", Type: "proc", Source: "proc"},
		{Destination: "/dev", Type: "tmpfs", Source: "tmpfs"},
		{Destination: "/dev/shm", Type: "tmpfs", Source: "shm", Options: []string{"nosuid", "nodev", "mode=1777", "size=64m"}},
		{Destination: "/sys", Type: "sysfs", Source: "sysfs", Options: []string{"nosuid", "noexec", "nodev", "ro"}},
		// Without a mount here, runsc mounts a memory file system without a limit. For an unknown type it mounts
		// nothing.
		{Destination: "/tmp", Type: "nothing", Source: "nothing"},
		{Destination: groups, Type: "cgroup", Source: "cgroup", Options: []string{"nosuid", "noexec", "nodev"}},
	}
	for _, b := range append(root.Binds[:len(root.Binds):len(root.Binds)], image.Bind{Source: agent, Target: image.AgentPath}) {
		if !root.Needs(b) {
			continue // runsc would create the missing mount point on the host
		}
		list = append(list, specs.Mount{
			Destination: b.Target, Type: "bind", Source: b.Source, Options: []string{"bind", "ro", "nosuid", "nodev"},
		})
	}
	return list
}

// groups is the path of gVisor's own control groups inside. They belong to root.
const groups = "/sys/fs/cgroup"

// innerLimits are the settings of the control group inside, which contains everything; package inside writes them.
// gVisor enforces the limit on processes. The other limits are only shown to programs that choose sizes by them; the
// host enforces those. (Setting them over the control socket makes this version of gVisor panic.)
func innerLimits(l hutch.Limits) []string {
	group := groups + "/" + container
	return []string{
		fmt.Sprintf("%s/pids.max=%d", group, l.PIDs+inside.Threads),
		fmt.Sprintf("%s/memory.max=%d", group, l.Memory<<20),
		fmt.Sprintf("%s/cpu.max=%.0f 100000", group, l.CPU*100_000),
	}
}

// upperLayer is a tar archive of the initial writable layer: the folders of the ordinary user. They cannot come from
// the image: if the kernel knows only our own user, the image's files have other owners.
func upperLayer() []byte {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	made := map[string]bool{}
	folder := func(path string, mode int64, id int) {
		if !made[path] {
			made[path] = true
			w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: "." + path + "/", Mode: mode, Uid: id, Gid: id})
		}
	}
	folder("", 0o755, 0)
	for _, path := range image.Writable {
		mode := int64(0o755)
		if strings.HasSuffix(path, "tmp") {
			mode = 0o1777
		}
		if parent := filepath.Dir(path); parent != "/" {
			folder(parent, 0o755, 0)
		}
		folder(path, mode, image.UID)
	}
	w.Close()
	return b.Bytes()
}
