// Package inside is the part of the runtime kubernetes that runs in a pod, in the agent's program.
//
// The first process of the container, [Pod], waits for the boot message. Then it builds the instance around a second
// process: with namespaces of users, mounts, network, names and IPC, and a root that shows the container's folders. The
// second process becomes the agent. So programs never have the pod's network, whether or not the cluster enforces
// policies, and everything that they write is in memory of a limited size. No capability over the machine is needed:
// the second process has all capabilities, but only over its own namespaces, and keeps only those of an agent.
//
// The daemon reaches the pod only through "exec" of the cluster's API, which starts [Relay] in the container. A relay
// is a multiplexer: each of its streams is one connection to the first process. The first byte of a stream is its
// purpose. The boot message with the agent's token comes on such a stream, so it is not in any object of the cluster.
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

// These are commands of the agent's program.
const (
	PodCommand      = "kubernetes-pod"
	RelayCommand    = "kubernetes-relay"
	InstallCommand  = "kubernetes-install" // with the folder
	instanceCommand = "kubernetes-instance"
)

// Folder is a volume of the container that holds the agent's program. Only root can write to it.
const Folder = "/.hutch"

const (
	agentProgram = Folder + "/agent"
	podSocket    = Folder + "/run/pod"
	agentSocket  = Folder + "/run/agent"
	memoryDir    = Folder + "/memory" // written files
	layersDir    = Folder + "/layers" // the parts of the root
	rootDir      = Folder + "/root"   // the mount point of the root before it becomes the root
)

// These are the purposes of a stream; its first byte is one of them.
const (
	ToBoot    = 'b' // a Boot as JSON; the answer is a Reply
	ToAgent   = 'a' // a connection to the agent
	ToUsage   = 'u' // the answer is a Usage as JSON
	ToFiles   = 'f' // chunks of a tar archive, each after its length in four bytes; an empty chunk; a Reply
	ToMemory  = 'm' // the memory in use, in eight bytes; sent again whenever it changes above the limit
	ToNetwork = 'n' // packets, each after its length in two bytes; only the newest such stream has the device
)

// Boot describes an instance.
type Boot struct {
	Agent wire.Boot `json:"agent"`
	// Files replace those of the container. A folder comes before its content.
	Files []File `json:"files"`
	// Writable are the folders of the user, all of them in Files. They are empty at first.
	Writable []string `json:"writable"`
	// Size and Inodes limit the written files.
	Size   int64 `json:"size"`
	Inodes int64 `json:"inodes"`
	// Memory has the limits at which the memory in use is reported.
	Memory memguard.Limits `json:"memory"`
	// Limit is the limit of the programs' memory that programs can see, in bytes. If it is 0, they see the values of
	// the container.
	Limit int64 `json:"limit"`
	// Processes bounds the processes and threads of the user.
	Processes uint64 `json:"processes"`
	// Network requests a network device.
	Network bool `json:"network"`
}

// File is a file or a folder that replaces one of the container.
type File struct {
	Path    string      `json:"path"`
	Mode    os.FileMode `json:"mode"`
	UID     int         `json:"uid,omitempty"`
	GID     int         `json:"gid,omitempty"`
	Content string      `json:"content,omitempty"`
}

// Reply answers a Boot, and a request for the files. An empty Error means success.
type Reply struct {
	Error string `json:"error,omitempty"`
	// NoNetwork reports that the instance has no device, because the container offers none.
	NoNetwork bool `json:"noNetwork,omitempty"`
}

// Usage is what the container uses at present. Figures that cannot be measured are 0.
type Usage struct {
	CPUSeconds float64 `json:"cpuSeconds"`
	Memory     int64   `json:"memory"`
	MemoryPeak int64   `json:"memoryPeak"`
	PIDs       int     `json:"pids"`
	Disk       int64   `json:"disk"`
	OOMKills   int     `json:"oomKills"`
}

// chunks writes a stream in chunks, which Unchunk reads.
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

// end writes the empty chunk that ends the stream.
func (c chunks) end() error {
	_, err := c.w.Write(make([]byte, 4))
	return err
}

// mostChunk bounds the length of a chunk.
const mostChunk = 1 << 20

// Unchunk copies the content of chunks until an empty chunk.
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
