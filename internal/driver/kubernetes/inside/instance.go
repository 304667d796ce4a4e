package inside

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"hutch/internal/linux/netns"
	"hutch/internal/linux/rlimit"
	"hutch/internal/linux/tun"
	"hutch/internal/wire"
)

// These are descriptors of the second process, in addition to the boot message at 0.
const (
	listenFD  = 3
	controlFD = 4
)

// ready is the report of the second process when it becomes the agent. Any other report is an error.
const ready = "ready"

// runInstance is the second process.
func runInstance(run func(wire.Boot) error) error {
	unix.CloseOnExec(listenFD)
	unix.CloseOnExec(controlFD)
	boot, fds, err := build()
	said := ready
	if err != nil {
		said = err.Error()
	}
	var rights []byte
	if len(fds) > 0 {
		rights = unix.UnixRights(fds...)
	}
	serr := unix.Sendmsg(controlFD, []byte(said), rights, nil, 0)
	for _, fd := range fds {
		unix.Close(fd)
	}
	if err := errors.Join(err, serr); err != nil {
		return err
	}
	file := os.NewFile(controlFD, "control")
	control, err := net.FileConn(file)
	file.Close()
	if err != nil {
		return err
	}
	go keep(control.(*net.UnixConn))
	return run(boot)
}

// build builds the instance around this process. It returns descriptors of the written files' file system and, if it
// exists, of the network device.
func build() (wire.Boot, []int, error) {
	var b Boot
	if err := json.NewDecoder(os.Stdin).Decode(&b); err != nil {
		return b.Agent, nil, fmt.Errorf("read the boot message: %w", err)
	}
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return b.Agent, nil, err
	}
	defer null.Close()
	if err := unix.Dup3(int(null.Fd()), 0, 0); err != nil {
		return b.Agent, nil, err
	}
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return b.Agent, nil, fmt.Errorf("inherit orphans: %w", err)
	}
	fds, err := isolate(b)
	if err == nil {
		err = errors.Join(limit(b), drop())
	}
	b.Agent.Listen = fmt.Sprintf("fd:%d", listenFD)
	b.Agent.Alone = true
	return b.Agent, fds, err
}

func isolate(b Boot) ([]int, error) {
	memory, err := makeRoot(b)
	if err != nil {
		return nil, err
	}
	fds := []int{memory}
	if err := unix.Sethostname([]byte(b.Agent.Hostname)); err != nil {
		return fds, fmt.Errorf("set the host name: %w", err)
	}
	if err := netns.RaiseLoopback(); err != nil && !errors.Is(err, unix.ENOTTY) { // gVisor's is always up
		return fds, err
	}
	_ = os.WriteFile("/proc/sys/net/ipv4/ip_unprivileged_port_start", []byte("0"), 0) // read only in some runtimes
	if !b.Network {
		return fds, nil
	}
	fd, err := unix.Open(tun.Path, unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return fds, nil // the container offers no network device
	}
	if err := tun.Create(fd); errors.Is(err, tun.ErrNone) {
		unix.Close(fd)
		return fds, nil
	} else if err != nil {
		unix.Close(fd)
		return fds, err
	}
	return append(fds, fd), nil
}

// mostFiles bounds the open files of a process.
const mostFiles = 1 << 16

// limit limits resources that no control group of a pod limits. The kernel counts processes separately for each user of
// a user namespace.
func limit(b Boot) error {
	for resource, most := range map[int]uint64{
		unix.RLIMIT_CORE: 0, unix.RLIMIT_NOFILE: mostFiles, unix.RLIMIT_NPROC: b.Processes, unix.RLIMIT_MEMLOCK: 8 << 20,
		unix.RLIMIT_SIGPENDING: 4096, unix.RLIMIT_MSGQUEUE: 800 << 10, unix.RLIMIT_NICE: 0, unix.RLIMIT_RTPRIO: 0,
	} {
		// gVisor refuses to set limits that it does not have. Other kernels always allow lowering a limit.
		if err := rlimit.Lower(resource, most); err != nil && !errors.Is(err, unix.EPERM) {
			return err
		}
	}
	return nil
}

// agentCaps are the capabilities that the agent keeps, over its own namespaces: it starts commands as another user, reads
// the environment of processes, kills them, gives files to the user, lets the program that saves files read all of them,
// empties its bounding set, and changes the host name.
const agentCaps = 1<<unix.CAP_SETUID | 1<<unix.CAP_SETGID | 1<<unix.CAP_KILL | 1<<unix.CAP_SYS_PTRACE | 1<<unix.CAP_CHOWN |
	1<<unix.CAP_FOWNER | 1<<unix.CAP_DAC_OVERRIDE | 1<<unix.CAP_DAC_READ_SEARCH | 1<<unix.CAP_SETPCAP | 1<<unix.CAP_SYS_ADMIN

// These are the arguments of capset for all threads. They must not move in memory.
var (
	header = unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	sets   [2]unix.CapUserData
)

// drop drops all other capabilities of all threads, and prevents programs from gaining privileges.
func drop() error {
	sets[0] = unix.CapUserData{Effective: agentCaps, Permitted: agentCaps, Inheritable: 1 << unix.CAP_DAC_READ_SEARCH}
	if _, _, errno := syscall.AllThreadsSyscall6(unix.SYS_PRCTL, unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0, 0); errno != 0 {
		return fmt.Errorf("forbid new privileges: %w", errno)
	}
	_, _, errno := syscall.AllThreadsSyscall(unix.SYS_CAPSET, uintptr(unsafe.Pointer(&header)), uintptr(unsafe.Pointer(&sets)), 0)
	if errno != 0 {
		return fmt.Errorf("drop capabilities: %w", errno)
	}
	return nil
}
