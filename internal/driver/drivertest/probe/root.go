package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// rootAttempts are further attacks, by root inside. Each reports success by a nil error.
var rootAttempts = []attempt{
	{"kill the agent", func() error { return syscall.Kill(1, syscall.SIGKILL) }},
	{"wake the agent by a signal", func() error { return syscall.Kill(1, syscall.SIGUSR1) }},
	{"kill a thread of the agent", func() error { return eachThread(1, func(tid int) error { return unix.Tgkill(1, tid, unix.SIGKILL) }) }},
	{"signal the agent by its descriptor", signalByDescriptor},
	{"signal the agent by the owner of a pipe", signalByOwner},
	{"signal the agent's group", func() error { return syscall.Kill(-pgid(1), syscall.SIGKILL) }},
	{"limit the agent", limitAgent},
	{"slow the agent", func() error { return unix.Setpriority(unix.PRIO_PROCESS, 1, 19) }},
	{"write to the agent's memory", func() error { return writeSome("/proc/1/mem") }},
	{"read the agent's memory by a call", readMemory},
	{"program of the agent", func() error { _, err := os.ReadFile("/proc/1/exe"); return err }},
	{"folder of the agent", func() error { _, err := os.ReadDir("/proc/1/cwd/.hutch/own"); return err }},
	{"threads of the agent", func() error { _, err := os.ReadFile("/proc/1/task/1/environ"); return err }},
	{"enter the agent's user namespace", func() error { return enter("/proc/1/ns/user", unix.CLONE_NEWUSER) }},
	{"map ids for the agent", func() error { return os.WriteFile("/proc/1/uid_map", []byte("0 0 1"), 0) }},
	{"become the agent's user", func() error { return syscall.Setresuid(agentID, agentID, agentID) }},
	{"join the agent's group", func() error { return syscall.Setgroups([]int{agentID}) }},
	{"give a file to the agent", func() error { return giveTo("/tmp/agents", agentID) }},
	{"read the agent's boot message", func() error { return readSome("/proc/gvisor/spec_environ") }},
	{"uncover the agent's boot message", func() error {
		unix.Unmount("/proc/gvisor/spec_environ", unix.MNT_DETACH)
		return readSome("/proc/gvisor/spec_environ")
	}},
	{"list the private folder", func() error { _, err := os.ReadDir("/.hutch/own"); return err }},
	{"list the moved socket folder", func() error { _, err := os.ReadDir("/.hutch/own/run"); return err }},
	{"connect to the agent's moved socket", func() error { _, err := net.Dial("unix", "/.hutch/own/run/agent.sock"); return err }},
	{"open the private folder to all", func() error { return os.Chmod("/.hutch/own", 0o777) }},
	{"own the private folder", func() error { return os.Chown("/.hutch/own", 0, 0) }},
	{"move the private folder", func() error { return os.Rename("/.hutch/own", "/.hutch/theirs") }},
	{"add to the agent's folder", func() error { return os.Mkdir("/.hutch/theirs", 0o755) }},
	{"write pids.max", func() error { return os.WriteFile("/sys/fs/cgroup/agent/pids.max", []byte("max"), 0) }},
	{"leave the control group", func() error { return os.WriteFile("/sys/fs/cgroup/cgroup.procs", []byte("0"), 0) }},
	{"make a control group", func() error { return os.Mkdir("/sys/fs/cgroup/mine", 0o755) }},
	{"write a limit that is open to all", func() error {
		os.Chmod("/sys/fs/cgroup/agent/pids.max", 0o777)
		return os.WriteFile("/sys/fs/cgroup/agent/pids.max", []byte("max"), 0)
	}},
	{"mount the control groups again", func() error { return mounted("cgroup2") }},
	{"mount control groups of version 1", func() error { return mounted("cgroup") }},
	{"mount a proc", func() error { return mounted("proc") }},
	{"make a mount writable", func() error { return unix.Mount("", "/sys/fs/cgroup", "", unix.MS_REMOUNT, "") }},
	{"unmount the control groups", func() error { return unix.Unmount("/sys/fs/cgroup", unix.MNT_DETACH) }},
	{"unmount the settings", func() error { return unix.Unmount("/proc/sys", unix.MNT_DETACH) }},
	{"move a mount", func() error { return unix.Mount("/dev/shm", "/mnt", "", unix.MS_MOVE, "") }},
	{"bind a folder", func() error { return unix.Mount("/.hutch", "/mnt", "", unix.MS_BIND|unix.MS_REC, "") }},
	{"change the root of all", func() error { return unix.PivotRoot("/", "/") }},
	{"a mount namespace", func() error { return unix.Unshare(unix.CLONE_NEWNS) }},
	{"a user namespace", func() error { return unix.Unshare(unix.CLONE_NEWUSER) }},
	{"a user namespace by clone", cloneUser},
	{"a pid namespace", func() error { return unix.Unshare(unix.CLONE_NEWPID) }},
	{"a network namespace", func() error { return unix.Unshare(unix.CLONE_NEWNET) }},
	{"a host name's namespace", func() error { return unix.Unshare(unix.CLONE_NEWUTS) }},
	{"enter the agent's mounts", func() error { return enter("/proc/1/ns/mnt", unix.CLONE_NEWNS) }},
	{"enter the agent by a descriptor of it", enterByDescriptor},
	{"a domain name", func() error { return syscall.Setdomainname([]byte("evil")) }},
	{"a setting of the network", func() error { return os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0) }},
	{"a setting of ports", func() error { return os.WriteFile("/proc/sys/net/ipv4/ip_local_port_range", []byte("1 2"), 0) }},
	{"the number of files that may be open", func() error { return os.WriteFile("/proc/sys/fs/nr_open", []byte("8"), 0) }},
	{"who may trace", func() error { return os.WriteFile("/proc/sys/kernel/yama/ptrace_scope", []byte("0"), 0) }},
	{"have the sandbox saved", func() error { return writeSome("/proc/gvisor/checkpoint") }},
	{"trigger a system request", func() error { return os.WriteFile("/proc/sysrq-trigger", []byte("b"), 0) }},
	{"a raw socket", func() error {
		_, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_RAW, syscall.IPPROTO_ICMP)
		return err
	}},
	{"a packet socket", func() error { _, err := syscall.Socket(syscall.AF_PACKET, syscall.SOCK_RAW, 0); return err }},
	{"an address for a device", func() error { return setAddress() }},
	{"load a module", func() error { return unix.InitModule([]byte("\x7fELF"), "") }},
	{"load a program into the kernel", func() error { _, _, errno := syscall.Syscall(unix.SYS_BPF, 0, 0, 0); return failed(errno) }},
	{"set the clock", func() error { return syscall.Settimeofday(&syscall.Timeval{Sec: 1}) }},
	{"reboot", func() error { return syscall.Reboot(syscall.LINUX_REBOOT_CMD_RESTART) }},
	{"swap", func() error {
		p := []byte("/tmp/swap\x00")
		_, _, errno := syscall.Syscall(unix.SYS_SWAPON, uintptr(unsafe.Pointer(&p[0])), 0, 0)
		return failed(errno)
	}},
	{"raise a hard limit", raiseLimit},
	{"a capability that it does not have", func() error { return capability(unix.CAP_SYS_ADMIN) }},
	{"trace any process", func() error { return capability(unix.CAP_SYS_PTRACE) }},
	{"put a capability back", func() error {
		return unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_RAISE, unix.CAP_SYS_ADMIN, 0, 0)
	}},
	{"no longer be found", func() error { return unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0) }},
	{"the root of a changed root", leaveRoot},
}

// idAttempts are attacks by root inside an instance of native, where the kernel gives a sandbox only some ids.
var idAttempts = []attempt{
	{"become a user beyond the map", func() error { return syscall.Setresuid(beyond, beyond, beyond) }},
	{"join a group beyond the map", func() error { return syscall.Setgroups([]int{beyond}) }},
	{"have a group beyond the map", func() error { return syscall.Setresgid(beyond, beyond, beyond) }},
	{"give a file to a user beyond the map", func() error { return giveTo("/tmp/beyond", beyond) }},
	{"map more ids", func() error { return os.WriteFile("/proc/self/uid_map", []byte("65536 0 1"), 0) }},
	{"allow more groups", func() error { return os.WriteFile("/proc/self/setgroups", []byte("allow"), 0) }},
}

// beyond is an id that no image of native can use.
const beyond = 1 << 16

// attempt is an attack that must not succeed.
type attempt struct {
	name string
	try  func() error
}

const agentID = 1<<32 - 2

func mkfifo(path string) error { return unix.Mkfifo(path, 0o666) }

func eachThread(pid int, do func(int) error) error {
	threads, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	if err != nil {
		return err
	}
	for _, t := range threads {
		tid := 0
		fmt.Sscan(t.Name(), &tid)
		if err = do(tid); err == nil {
			return nil
		}
	}
	return err
}

func signalByDescriptor() error {
	fd, err := unix.PidfdOpen(1, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0)
}

// signalByOwner asks the kernel to signal the agent for each byte in a socket. The kernel refuses silently, so the test
// checks whether the agent is alive.
func signalByOwner() error {
	pair, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	if err != nil {
		return err
	}
	for _, cmd := range [][2]int{{unix.F_SETOWN, 1}, {unix.F_SETSIG, int(syscall.SIGKILL)}, {unix.F_SETFL, unix.O_ASYNC | unix.O_NONBLOCK}} {
		if _, err := unix.FcntlInt(uintptr(pair[0]), cmd[0], cmd[1]); err != nil {
			return err
		}
	}
	syscall.Write(pair[1], []byte("x"))
	return errors.New("no answer")
}

func pgid(pid int) int {
	id, err := syscall.Getpgid(pid)
	if err != nil || id < 2 {
		return 1 << 22 // no process has this group id
	}
	return id
}

func limitAgent() error { return unix.Prlimit(1, unix.RLIMIT_NOFILE, &unix.Rlimit{}, nil) }

func readMemory() error {
	var b [8]byte
	local := []unix.Iovec{{Base: &b[0], Len: 8}}
	_, err := unix.ProcessVMReadv(1, local, []unix.RemoteIovec{{Base: 0x400000, Len: 8}}, 0)
	return err
}

func writeSome(path string) error {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = f.Write([]byte("1"))
	return err
}

func giveTo(path string, id int) error {
	if err := os.WriteFile(path, nil, 0o755); err != nil {
		return err
	}
	return os.Chown(path, id, id)
}

func mounted(kind string) error {
	os.MkdirAll("/mnt", 0o755)
	return unix.Mount("none", "/mnt", kind, 0, "")
}

func cloneUser() error {
	pid, _, errno := syscall.RawSyscall6(unix.SYS_CLONE, uintptr(unix.CLONE_NEWUSER|unix.SIGCHLD), 0, 0, 0, 0, 0)
	if errno == 0 && pid == 0 {
		syscall.RawSyscall(unix.SYS_EXIT, 0, 0, 0)
	}
	return failed(errno)
}

func failed(errno syscall.Errno) error {
	if errno == 0 {
		return nil
	}
	return errno
}

func enter(path string, kind int) error {
	fd, err := unix.Open(path, unix.O_RDONLY, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return unix.Setns(fd, kind)
}

func enterByDescriptor() error {
	fd, err := unix.PidfdOpen(1, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return unix.Setns(fd, unix.CLONE_NEWNS)
}

func setAddress() error {
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_DGRAM, 0)
	if err != nil {
		return err
	}
	defer syscall.Close(fd)
	req, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	req.SetUint16(0)
	_, _, errno := syscall.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCSIFFLAGS, uintptr(unsafe.Pointer(req)))
	return failed(errno)
}

func raiseLimit() error {
	var l unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &l); err != nil {
		return err
	}
	l.Max++
	return unix.Setrlimit(unix.RLIMIT_NOFILE, &l)
}

func capability(c int) error {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		return err
	}
	data[c/32].Effective |= 1 << (c % 32)
	data[c/32].Permitted |= 1 << (c % 32)
	return unix.Capset(&header, &data[0])
}

// leaveRoot changes its root, and looks for a root above it. In a container, it finds the same root again. It is the
// last attempt, because the program cannot get back.
func leaveRoot() error {
	before, err := os.ReadDir("/")
	if err != nil {
		return err
	}
	os.MkdirAll("/tmp/jail", 0o755)
	if err := syscall.Chroot("/tmp/jail"); err != nil {
		return err
	}
	for range 64 {
		os.Chdir("..")
	}
	if err := syscall.Chroot("."); err != nil {
		return err
	}
	after, err := os.ReadDir("/")
	if err != nil {
		return err
	}
	for _, entry := range after {
		if !slices.ContainsFunc(before, func(b os.DirEntry) bool { return b.Name() == entry.Name() }) {
			return nil
		}
	}
	return errors.New("the same root as before, or one below")
}
