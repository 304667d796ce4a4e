package main

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// attempts are attacks by a hostile image's own program. Each reports success by a nil error.
var attempts = []attempt{
	{"root by the setuid bit", func() error {
		if os.Geteuid() == 0 {
			return nil
		}
		return syscall.EPERM
	}},
	{"become user 0", func() error { return syscall.Setresuid(0, 0, 0) }},
	{"join group 0", func() error { return syscall.Setgroups([]int{0}) }},
	{"memory of the host by the image's node", func() error { return readSome("/nodes/mem") }},
	{"log of the host by the image's node", func() error { return readSome("/nodes/kmsg") }},
	{"disk of the host by the image's node", func() error { return readSome("/nodes/disk") }},
	{"memory of the agent", func() error { return readSome("/proc/1/mem") }},
	{"environment of the agent", func() error { return readSome("/proc/1/environ") }},
	{"descriptors of the agent", openDescriptor},
	{"root of the agent", func() error { _, err := os.ReadDir("/proc/1/root/"); return err }},
	{"trace the agent", func() error { return syscall.PtraceAttach(1) }},
	{"stop the agent", func() error { return stopped(1) }},
	{"replace the agent", func() error { return os.WriteFile("/.hutch/agent", nil, 0o755) }},
	{"remove the agent", func() error { return os.Remove("/.hutch/agent") }},
	{"move the agent's folder", func() error { return os.Rename("/.hutch", "/tmp/.hutch") }},
	{"list the socket folder", func() error { _, err := os.ReadDir("/.hutch/run"); return err }},
	{"write into the socket folder", func() error { return os.WriteFile("/.hutch/run/file", nil, 0o600) }},
	{"connect to the agent", func() error { _, err := net.Dial("unix", "/.hutch/run/agent.sock"); return err }},
	{"write a limit of the control group", writeLimits},
	{"mount a file system", func() error { return syscall.Mount("x", "/tmp", "tmpfs", 0, "") }},
	{"change the host name", func() error { return syscall.Sethostname([]byte("evil")) }},
	{"write the names", func() error { return os.WriteFile("/etc/hosts", nil, 0o644) }},
	{"replace the names", func() error { return os.Rename("/etc/hosts", "/etc/hosts.old") }},
	{"give a file to root", func() error { return giveAway("/tmp/given") }},
	{"make a device", func() error { return syscall.Mknod("/tmp/mem", syscall.S_IFCHR|0o666, 1<<8|1) }},
	{"write a setting of the kernel", func() error {
		return os.WriteFile("/proc/sys/kernel/core_pattern", []byte("|/tmp/x"), 0)
	}},
}

// attack prints a line for each attempt.
func attack(attempts []attempt) {
	for _, a := range attempts {
		if err := a.try(); err != nil {
			fmt.Printf("denied\t%s\t%v\n", a.name, err)
		} else {
			fmt.Printf("REACHED\t%s\n", a.name)
		}
	}
}

// openDescriptor opens a file that the agent has open. The numbers of the agent's descriptors are not secret.
func openDescriptor() error {
	list, err := os.ReadDir("/proc/1/fd")
	if err != nil {
		return err
	}
	for _, entry := range list {
		path := "/proc/1/fd/" + entry.Name()
		if _, err = os.Readlink(path); err == nil {
			return nil
		}
		if _, err = syscall.Open(path, syscall.O_RDONLY|syscall.O_NONBLOCK, 0); err == nil {
			return nil
		}
	}
	return err
}

func readSome(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = f.Read(make([]byte, 64))
	return err
}

// stopped stops a process, and checks that it is stopped: the first process of a namespace ignores the signal.
func stopped(pid int) error {
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		return err
	}
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err == nil && !strings.Contains(string(text), ") T ") {
		err = syscall.EPERM
	}
	return err
}

func writeLimits() error {
	var found []string
	for _, pattern := range []string{"/sys/fs/cgroup/*.max", "/sys/fs/cgroup/*/*.max", "/sys/fs/cgroup/*/*/*limit*"} {
		files, _ := filepath.Glob(pattern) // no error, because our pattern is valid
		found = append(found, files...)
	}
	for _, path := range found {
		if os.WriteFile(path, []byte("max"), 0) == nil {
			return nil
		}
	}
	return syscall.EACCES
}

func giveAway(path string) error {
	if err := os.WriteFile(path, nil, 0o755); err != nil {
		return err
	}
	return os.Chown(path, 0, 0)
}
