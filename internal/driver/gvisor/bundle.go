package gvisor

import (
	"archive/tar"
	"bytes"
	"cmp"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/opencontainers/runtime-spec/specs-go"

	"hutch"
	"hutch/internal/driver"
	"hutch/internal/driver/gvisor/contract"
	"hutch/internal/driver/gvisor/inside"
	"hutch/internal/image"
	"hutch/internal/linux/seccomp"
	"hutch/internal/tarball"
	"hutch/internal/wire"
)

const (
	container   = "agent"         // every sandbox has one container, with this name
	socketDir   = image.SocketDir // folder inside for the socket between daemon and agent: see [folder.socketDir]
	agentSocket = "agent.sock"

	// upperFile is the initial writable layer, and filesDir is the folder for the file that stores the written files.
	// Both are open in runsc. gVisor requires the same paths in all instances that are restored from one save.
	upperFile, filesDir = "/proc/self/fd/5", "/proc/self/fd/6"
)

// writeBundle writes the files from which runsc creates the instance.
func (p folder) writeBundle(spec driver.Spec, agent string, from origin) error {
	bundle, err := bundle(spec, agent)
	if err != nil {
		return err
	}
	bundle.Annotations = annotations(spec)
	bundle.Mounts = append(bundle.Mounts, specs.Mount{
		Destination: socketDir, Type: "bind", Source: p.socketDir(), Options: []string{"bind", "rw", "nosuid", "nodev", "noexec"},
	})
	text, err := json.Marshal(bundle)
	if err != nil {
		return err
	}
	for _, dir := range []string{p.files(), p.socketDir()} {
		if err := os.Mkdir(dir, 0o700); err != nil {
			return err
		}
	}
	if from.layer != "" {
		err = os.Symlink(from.layer, p.upper())
	} else {
		err = os.WriteFile(p.upper(), upperLayer(spec.Root), 0o600)
	}
	if err != nil {
		return err
	}
	if from.config != nil {
		text = from.config
	}
	return os.WriteFile(p.config(), text, 0o600)
}

// annotations returns additions to a bundle: those of gVisor, and the paths that hutch-runsc hides. For an EROFS file
// they also contain settings that are options of runsc for other roots, because runsc ignores these options for such a
// file: without size, the written files would have no limit.
func annotations(spec driver.Spec) map[string]string {
	a := map[string]string{"dev.gvisor.tar.rootfs.upper": upperFile}
	if spec.Root.EROFS != "" {
		a[rootfs+"source"] = spec.Root.EROFS
		a[rootfs+"type"] = "erofs"
		a[rootfs+"overlay"] = "dir=" + filesDir
		a[rootfs+"options"] = fmt.Sprintf("size=%dm", spec.Limits.Disk)
	}
	if len(spec.Root.Masks) > 0 {
		text, _ := json.Marshal(spec.Root.Masks) // no error: a list of texts can always be encoded
		a[contract.Masks] = string(text)
	}
	return a
}

const rootfs = "dev.gvisor.spec.rootfs."

// noRoot is the bundle's root folder if the root is an EROFS file. gVisor requires a root folder, but does not use it.
const noRoot = "/.hutch/none"

// bundle returns the OCI configuration of an instance.
func bundle(spec driver.Spec, agent string) (*specs.Spec, error) {
	boot := spec.Boot
	boot.Version, boot.Listen = wire.Version, "unix:"+socketDir+"/"+agentSocket
	boot.Saved = "/proc/gvisor/checkpoint"
	boot.Pass = seccomp.NewPass()
	ancestry, setUser, capabilities := seccomp.Ancestry, driver.SetUser, agentCapabilities
	if boot.Apart = spec.Root.EROFS != ""; boot.Apart {
		ancestry, setUser, capabilities = seccomp.AncestryApart, driver.SetAnyUser, apartCapabilities
		boot.Listen = "unix:" + wire.PrivateDir + "/run/" + agentSocket
	}
	err := setUser(&boot, spec.Root)
	if err != nil {
		return nil, err
	}
	if boot.Filter, err = ancestry(boot.Pass); err != nil {
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
		Root:     &specs.Root{Path: cmp.Or(spec.Root.Dir, noRoot)},
		Mounts:   mounts(spec.Root, agent),
		Process: &specs.Process{
			Args: slices.Concat([]string{image.AgentPath, "gvisor", lossDetection}, innerLimits(spec.Limits)),
			// The environment contains no variables of the image, because one of them could be a forged boot message.
			Env:             []string{"HUTCH_BOOT=" + base64.StdEncoding.EncodeToString(text)},
			Cwd:             "/",
			Capabilities:    capabilities(),
			NoNewPrivileges: !boot.Apart, // with it, setuid bits would have no effect
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
// them from the bounding set, so that the programs that it starts have none.
func agentCapabilities() *specs.LinuxCapabilities { return capabilities() }

// apartCapabilities returns agentCapabilities, and the capability to map user 0 in the namespace of commands.
func apartCapabilities() *specs.LinuxCapabilities { return capabilities("CAP_SETFCAP") }

func capabilities(more ...string) *specs.LinuxCapabilities {
	caps := append([]string{
		"CAP_SETUID", "CAP_SETGID", "CAP_KILL", "CAP_SYS_PTRACE",
		"CAP_CHOWN", "CAP_FOWNER", "CAP_DAC_OVERRIDE", "CAP_DAC_READ_SEARCH", "CAP_SETPCAP", "CAP_SYS_ADMIN",
	}, more...)
	handed := []string{"CAP_DAC_READ_SEARCH"} // passed to the program that saves all files, by spawn.Command.ReadAll
	return &specs.LinuxCapabilities{Bounding: caps, Effective: caps, Permitted: caps, Inheritable: handed}
}

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
			continue // otherwise runsc would create the mount point on the host
		}
		list = append(list, specs.Mount{
			Destination: b.Target, Type: "bind", Source: b.Source, Options: []string{"bind", "ro", "nosuid", "nodev"},
		})
	}
	return list
}

// groups is the path of gVisor's own control groups inside. They belong to root.
const groups = "/sys/fs/cgroup"

// lossDetection is the setting that turns RACK off in TCP. With RACK, connections can wait forever after a loss: see
// internal/netstack.
const lossDetection = "/proc/sys/net/ipv4/tcp_recovery=0"

// innerLimits returns the settings of the control group inside, which contains all processes; package inside writes
// them. gVisor enforces the limit on processes. The other limits are only visible to programs that choose sizes by
// them; the host enforces those limits. (Setting them over the control socket makes this version of gVisor panic.)
func innerLimits(l hutch.Limits) []string {
	group := groups + "/" + container
	return []string{
		fmt.Sprintf("%s/pids.max=%d", group, l.PIDs+inside.Threads),
		fmt.Sprintf("%s/memory.max=%d", group, l.Memory<<20),
		fmt.Sprintf("%s/cpu.max=%.0f 100000", group, l.CPU*100_000),
	}
}

// upperLayer returns a tar archive of the initial writable layer. Its files have the times that mark files as
// unchanged.
func upperLayer(root image.Root) []byte {
	files := root.Files
	if root.EROFS == "" {
		files = userFolders()
	}
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, f := range files { // no error: writing to memory does not fail
		h := &tar.Header{Typeflag: tar.TypeReg, Name: "." + f.Path, Mode: int64(f.Mode.Perm()), Uid: f.UID, Gid: f.GID, Size: int64(len(f.Content)), ModTime: tarball.Untouched(f.Path)}
		if f.Mode.IsDir() {
			h.Typeflag, h.Name = tar.TypeDir, strings.TrimSuffix(h.Name, "/")+"/"
		}
		if f.Mode&fs.ModeSticky != 0 {
			h.Mode |= 0o1000
		}
		w.WriteHeader(h)
		io.WriteString(w, f.Content)
	}
	w.Close()
	return b.Bytes()
}

// userFolders returns the folders of the ordinary user on a host image. They cannot come from the image: if only our
// own user is mapped in the kernel, the image's files have other owners.
func userFolders() []image.File {
	const folder = 0o755 | fs.ModeDir
	files := []image.File{{Path: "/", Mode: folder}}
	made := map[string]bool{"/": true}
	for _, path := range image.Writable {
		if parent := filepath.Dir(path); !made[parent] {
			made[parent] = true
			files = append(files, image.File{Path: parent, Mode: folder})
		}
		f := image.File{Path: path, Mode: folder, UID: image.UID, GID: image.UID}
		if strings.HasSuffix(path, "tmp") {
			f.Mode = 0o777 | fs.ModeDir | fs.ModeSticky
		}
		files = append(files, f)
	}
	return files
}
