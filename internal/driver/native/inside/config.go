package inside

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"

	"hutch/internal/wire"
)

// These are descriptors that an instance starts with, in addition to null devices at 0, 1 and 2. The trees of [Bind]
// come after them.
const (
	listenFD = 3 // the socket on which the agent listens
	configFD = 4 // input from [Send]
	statusFD = 5 // output for [Receive]
	agentFD  = 6 // the agent program
	// NetworkFD is the other end of the network device. The instance puts it there, and the agent keeps it for a later
	// daemon.
	NetworkFD = 7
	// NameFD is the file with the host name, and HostsFD the file with the host's address. The instance opens them at
	// these numbers. The agent keeps them open, so that the daemon can write another name. All other programs can only
	// read the files.
	NameFD, HostsFD = 8, 9
	// namespaceFD is the user namespace of commands, if they are in a separate one: see Config.Apart. The instance puts
	// it there.
	namespaceFD = 10
	// FirstTree is the first descriptor that Bind.Tree can name.
	FirstTree = 11
)

// Program is the path of the program to execute, as the process itself sees it.
var Program = fmt.Sprintf("/proc/self/fd/%d", agentFD)

// Listen is the agent's listen address.
var Listen = fmt.Sprintf("fd:%d", listenFD)

// These are commands of the agent program.
const (
	initCommand = "native-init"
	runCommand  = "native-run"
)

// InitArgs are the arguments of the agent program at its start.
var InitArgs = []string{"hutch-agent", initCommand}

// Env is the environment of that program. With one processor, Go starts fewer threads, and the agent needs no more than
// one.
var Env = []string{"GOMAXPROCS=1"}

// Config describes the instance.
type Config struct {
	Hostname string `json:"hostname"`
	// Privileged instances have two users: root, who runs the agent, and the user with the ids User and Group, who runs
	// everything else. Other instances have one user for both.
	Privileged bool `json:"privileged"`
	User       int  `json:"user"`
	// Shared reports that the kernel counts what the instance uses for the server's user. The instance then shares that
	// user's limits with the server and its other instances.
	Shared bool `json:"shared,omitempty"`
	// Agent is the path of the agent program on the host, if the instance has only one user: see showAgent. It is empty
	// in privileged instances.
	Agent string `json:"agent,omitempty"`
	Group int    `json:"group"`
	// Apart is how many ids, counted from 0, the user namespace of commands has. It is for a privileged instance whose
	// commands can be root; the agent then has the id wire.AgentID. It is 0 for other instances, whose commands are in
	// the agent's namespace.
	Apart int `json:"apart,omitempty"`
	// Size and Inodes bound the written files.
	Size   int64 `json:"size"`
	Inodes int64 `json:"inodes"`
	// Layered reports that the daemon attaches the root at AttachPoint before it sends this configuration. The root
	// then has files that instances share, under the written files.
	Layered bool `json:"layered,omitempty"`
	// Image is set if the root is an overlay over an image.
	Image *Image `json:"image,omitempty"`
	// Folders, Links, Files and Binds are the root file system, created in this order.
	Folders []Folder `json:"folders"`
	Links   []Link   `json:"links"`
	Files   []string `json:"files"` // empty files; something is bound over each
	Binds   []Bind   `json:"binds"`
	// Devices is the descriptor of a tree with the device nodes; with 0, the instance shows the host's nodes.
	Devices int    `json:"devices,omitempty"`
	CPUs    string `json:"cpus"` // as in /sys/devices/system/cpu/online
	// Network requests a network device.
	Network bool `json:"network,omitempty"`
	// Filter is the seccomp filter in the kernel's format.
	Filter []byte `json:"filter"`
	// MaxFiles limits the open files of a process. Processes limits the processes and threads of each id.
	MaxFiles  uint64 `json:"maxFiles"`
	Processes uint64 `json:"processes"`
}

// Folder is a folder that the instance creates.
type Folder struct {
	Path string `json:"path"`
	Mode uint32 `json:"mode"`
	User bool   `json:"user,omitempty"` // the folder belongs to the user
}

// Link is a symbolic link.
type Link struct {
	Path   string `json:"path"`
	Target string `json:"target"`
}

// Bind shows a part of the host in the instance, read only.
type Bind struct {
	Target string `json:"target"`
	// Tree is the descriptor of a mount tree; if it is 0, Source is cloned.
	Tree   int    `json:"tree,omitempty"`
	Source string `json:"source,omitempty"`
	Folder bool   `json:"folder,omitempty"`
	// Hidden are paths below the target, without a leading slash, that are hidden.
	Hidden []string `json:"hidden,omitempty"`
}

// maxConfig limits the size of each part that [Send] sends.
const maxConfig = 16 << 20

// Send sends an instance its configuration, and its agent the boot message. The readers are two programs, one after the
// other, so the first part begins with its length; the second part extends to the end.
func Send(w io.Writer, c Config, boot wire.Boot) error {
	first, err := json.Marshal(c)
	if err != nil {
		return err
	}
	second, err := json.Marshal(boot)
	if err != nil {
		return err
	}
	b := binary.BigEndian.AppendUint32(nil, uint32(len(first)))
	b = append(append(b, first...), second...)
	_, err = w.Write(b)
	return err
}

// receiveConfig reads exactly the first part. If the daemon dies before it has sent everything, the result is an
// error.
func receiveConfig(r io.Reader) (c Config, err error) {
	var n uint32
	if err := binary.Read(r, binary.BigEndian, &n); err != nil {
		return c, fmt.Errorf("read the size of the configuration: %w", err)
	}
	if n > maxConfig {
		return c, fmt.Errorf("a configuration of %d bytes", n)
	}
	b := make([]byte, n)
	if _, err := io.ReadFull(r, b); err != nil {
		return c, fmt.Errorf("read the configuration: %w", err)
	}
	return c, json.Unmarshal(b, &c)
}

func receiveBoot(r io.Reader) (boot wire.Boot, err error) {
	b, err := io.ReadAll(io.LimitReader(r, maxConfig))
	if err != nil {
		return boot, fmt.Errorf("read the boot configuration: %w", err)
	}
	return boot, json.Unmarshal(b, &boot)
}

// ready is the message of an instance whose agent is about to serve. Any earlier message is an error.
const ready = "ready"

// maxStatus bounds how much is read from an instance.
const maxStatus = 4 << 10

// Receive waits until an instance is ready, or reports an error.
func Receive(r io.Reader) error {
	b, err := io.ReadAll(io.LimitReader(r, maxStatus))
	switch {
	case err != nil:
		return err
	case string(b) == ready:
		return nil
	case len(b) == 0:
		return fmt.Errorf("the instance ended before it was ready")
	}
	return fmt.Errorf("set up the instance: %s", b)
}
