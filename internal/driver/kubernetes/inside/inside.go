// Package inside is the part of the runtime kubernetes that runs in a pod, in the agent's program.
//
// The first process of the container, [Pod], waits for the boot message, and then builds the instance around a second
// process: namespaces of users, mounts, network, names and IPC, and a root that shows the container's folders. That process
// becomes the agent. So programs never have the pod's network, whether or not the cluster enforces policies, and
// everything that they write is in memory of a limited size. It needs no capability over the machine: the second process
// has all capabilities, but only over its own namespaces, and keeps those of an agent.
//
// The daemon reaches the pod only through "exec" of the cluster's API, which starts [Relay] in the container. A relay is
// a multiplexer: each stream of it is one connection to the first process, whose first byte says what it is for. The
// boot message with the agent's token comes on such a stream, so it is not in any object of the cluster.
package inside

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"hutch/internal/driver/memguard"
	"hutch/internal/wire"
)

// Commands of the agent's program.
const (
	PodCommand      = "kubernetes-pod"
	RelayCommand    = "kubernetes-relay"
	InstallCommand  = "kubernetes-install" // with the folder
	instanceCommand = "kubernetes-instance"
)

// Folder is a volume of the container, which holds the agent's program and is writable to root only.
const Folder = "/.hutch"

const (
	agentProgram = Folder + "/agent"
	podSocket    = Folder + "/run/pod"
	agentSocket  = Folder + "/run/agent"
	memoryDir    = Folder + "/memory" // written files
	layersDir    = Folder + "/layers" // what the root is made of
	rootDir      = Folder + "/root"   // where the root is mounted before it is entered
)

// The first byte of a stream says what it is for.
const (
	ToBoot    = 'b' // a Boot as JSON; the answer is a Reply
	ToAgent   = 'a' // a connection to the agent
	ToUsage   = 'u' // the answer is a Usage
	ToFiles   = 'f' // chunks of a tar archive, each after its length in four bytes; after an empty one, a Reply
	ToMemory  = 'm' // the answer is the memory in use, in eight bytes, again whenever it changes above the limit
	ToNetwork = 'n' // packets, each after its length in two bytes; the newest such stream has the device
)

// Boot describes an instance.
type Boot struct {
	Agent wire.Boot `json:"agent"`
	// Files are put over those of the container; a folder precedes its content.
	Files []File `json:"files"`
	// Writable are the folders of the user, all of them in Files. They begin empty.
	Writable []string `json:"writable"`
	// Size and Inodes limit the written files.
	Size   int64 `json:"size"`
	Inodes int64 `json:"inodes"`
	// Memory says when the memory in use is reported.
	Memory memguard.Limits `json:"memory"`
	// Limit is the limit of the memory of programs, in bytes, as they see it. 0: they see what the container shows.
	Limit int64 `json:"limit"`
	// Processes bounds the processes and threads of the user.
	Processes uint64 `json:"processes"`
	// Network asks for a network device.
	Network bool `json:"network"`
}

// File is a file or a folder over the container's.
type File struct {
	Path    string      `json:"path"`
	Mode    os.FileMode `json:"mode"`
	UID     int         `json:"uid,omitempty"`
	GID     int         `json:"gid,omitempty"`
	Content string      `json:"content,omitempty"`
}

// Reply answers a Boot, and a request for the files: it succeeded if Error is empty.
type Reply struct {
	Error string `json:"error,omitempty"`
	// NoNetwork says that the instance has no device, because the container offers none.
	NoNetwork bool `json:"noNetwork,omitempty"`
}

// Usage is what the container uses now. Figures that cannot be measured are 0.
type Usage struct {
	CPUSeconds float64 `json:"cpuSeconds"`
	Memory     int64   `json:"memory"`
	MemoryPeak int64   `json:"memoryPeak"`
	PIDs       int     `json:"pids"`
	Disk       int64   `json:"disk"`
	OOMKills   int     `json:"oomKills"`
}

// chunks writes a stream in chunks; Unchunk reads it.
type chunks struct{ w io.Writer }

func (c chunks) Write(b []byte) (int, error) {
	if len(b) == 0 {
		return 0, nil
	}
	if _, err := c.w.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(b))), b...)); err != nil {
		return 0, err
	}
	return len(b), nil
}

// end writes the chunk after the last.
func (c chunks) end() error {
	_, err := c.w.Write(make([]byte, 4))
	return err
}

// mostChunk bounds the length of a chunk.
const mostChunk = 1 << 20

// Unchunk copies the content of chunks until the empty one.
func Unchunk(w io.Writer, r io.Reader) error {
	for {
		var size [4]byte
		if _, err := io.ReadFull(r, size[:]); err != nil {
			return err
		}
		n := binary.BigEndian.Uint32(size[:])
		if n > mostChunk {
			return fmt.Errorf("a chunk of %d bytes", n)
		}
		if n == 0 {
			return nil
		}
		if _, err := io.CopyN(w, r, int64(n)); err != nil {
			return err
		}
	}
}

// Main runs the agent program if its first argument is a command of this package; otherwise handled is false. run runs
// the agent.
func Main(args []string, run func(wire.Boot) error) (handled bool, err error) {
	switch {
	case args[0] == PodCommand:
		return true, Pod()
	case args[0] == RelayCommand:
		return true, Relay()
	case args[0] == InstallCommand && len(args) == 2:
		return true, install(args[1])
	case args[0] == instanceCommand:
		return true, runInstance(run)
	}
	return false, nil
}

// install copies this program to a folder, for containers that have another image.
func install(dir string) error {
	from, err := os.Open("/proc/self/exe")
	if err != nil {
		return err
	}
	defer from.Close()
	to, err := os.OpenFile(filepath.Join(dir, filepath.Base(agentProgram)), os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o755)
	if err != nil {
		return fmt.Errorf("install the agent: %w", err)
	}
	_, err = io.Copy(to, from)
	return errors.Join(err, to.Chmod(0o755), to.Close())
}
