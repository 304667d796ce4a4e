package inside

import (
	"errors"
	"fmt"
	"os"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"hutch/internal/linux/rlimit"
	"hutch/internal/linux/tun"
	"hutch/internal/wire"
)

// agentCaps are the capabilities that the agent of a privileged instance keeps. With them it starts commands as another
// user, reads the environment of processes, kills them, gives files to the user and removes them, and lets the program
// that saves files read all files. They apply only in the instance's own user namespace.
const agentCaps = 1<<unix.CAP_SETUID | 1<<unix.CAP_SETGID | 1<<unix.CAP_KILL | 1<<unix.CAP_SYS_PTRACE |
	1<<unix.CAP_CHOWN | 1<<unix.CAP_FOWNER | 1<<unix.CAP_DAC_OVERRIDE | 1<<unix.CAP_DAC_READ_SEARCH

// Capabilities are the capabilities that the first program needs over the instance's namespaces, and passes on. The
// overlay of an image also uses them when it writes, after it has checked the rights of the writing program. So they
// must include all capabilities over files that root inside has.
var Capabilities = []uintptr{
	unix.CAP_SYS_ADMIN, unix.CAP_NET_ADMIN, unix.CAP_SETPCAP, unix.CAP_SETUID, unix.CAP_SETGID, unix.CAP_KILL,
	unix.CAP_SYS_PTRACE, unix.CAP_CHOWN, unix.CAP_FOWNER, unix.CAP_DAC_OVERRIDE,
	unix.CAP_DAC_READ_SEARCH, unix.CAP_SYS_RESOURCE, unix.CAP_SETFCAP, unix.CAP_FSETID,
}

// becomeRoot becomes the instance's root, if it has one. Before the daemon mapped ids, this process ran as the
// user nobody.
func becomeRoot(c Config) error {
	if !c.Privileged {
		return nil
	}
	// Package syscall would change all threads, but only this one remains, so this is a raw call.
	if _, _, errno := unix.RawSyscall(unix.SYS_SETGROUPS, 0, 0, 0); errno != 0 {
		return fmt.Errorf("leave all groups: %w", errno)
	}
	if _, _, errno := unix.RawSyscall(unix.SYS_SETRESGID, 0, 0, 0); errno != 0 {
		return fmt.Errorf("become group 0: %w", errno)
	}
	if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, 0, 0, 0); errno != 0 {
		return fmt.Errorf("become user 0: %w", errno)
	}
	return nil
}

func setHostname(c Config) error {
	if err := unix.Sethostname([]byte(c.Hostname)); err != nil {
		return fmt.Errorf("set the host name: %w", err)
	}
	return nil
}

// makeNetwork creates the network device with the descriptors that the daemon opened for it. If that fails, the instance
// works without a network.
func makeNetwork(c Config) error {
	if !c.Network {
		return nil
	}
	if err := tun.Create(NetworkFD); !errors.Is(err, tun.ErrNone) {
		return err
	}
	return nil
}

// setLimits limits resources that no control group limits, or that the kernel counts per user over all processes of
// that user.
func setLimits(c Config) error {
	for resource, most := range map[int]uint64{
		unix.RLIMIT_CORE:       0,
		unix.RLIMIT_NOFILE:     c.MaxFiles,
		unix.RLIMIT_NPROC:      c.Processes,
		unix.RLIMIT_MEMLOCK:    share(c, 8<<20),
		unix.RLIMIT_SIGPENDING: 4096,
		unix.RLIMIT_MSGQUEUE:   share(c, 800<<10),
		unix.RLIMIT_NICE:       0,
		unix.RLIMIT_RTPRIO:     0,
	} {
		if err := rlimit.Lower(resource, most); err != nil {
			return err
		}
	}
	return nil
}

// share returns an instance's part of its user's resources. If the instance has its own user, that is everything.
func share(c Config, all uint64) uint64 {
	if !c.Shared {
		return all
	}
	return all / sharedBy
}

// sharedBy is the number of instances that together can use up the resources of one ordinary user.
const sharedBy = 8

// leaveGroup makes the instance's control group the root of its view. If the cgroup namespace were created with the
// process, its root would be the daemon's group.
func leaveGroup(Config) error {
	if err := unix.Unshare(unix.CLONE_NEWCGROUP); err != nil {
		return fmt.Errorf("leave the control group namespace: %w", err)
	}
	return nil
}

// leaveKeyring replaces the daemon's session keyring by a new one.
func leaveKeyring(Config) error {
	_, err := unix.KeyctlInt(unix.KEYCTL_JOIN_SESSION_KEYRING, 0, 0, 0, 0)
	if err != nil && !errors.Is(err, unix.ENOSYS) {
		return fmt.Errorf("leave the session keyring: %w", err)
	}
	return nil
}

// dropPrivileges drops all privileges that the agent does not need. After it, only exec follows.
func dropPrivileges(c Config) error {
	keep := uint32(0)
	if c.Privileged {
		keep = agentCaps
	}
	// If commands can be root, programs can gain rights by their setuid bit, but only inside, and only those rights
	// that package agent leaves in the bounding set. So no_new_privs is not set, and the filter is loaded while this
	// thread has the right to load it.
	if c.Apart > 0 {
		if err := loadFilter(c.Filter); err != nil {
			return err
		}
	}
	// With an empty bounding set, root has only its inheritable capabilities after exec. A capability outside the
	// bounding set can no longer be made inheritable.
	const last = 1 << unix.CAP_SETPCAP
	if err := capset(keep|last, keep); err != nil {
		return err
	}
	if err := dropBounding(); err != nil {
		return err
	}
	if err := unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0); err != nil {
		return fmt.Errorf("clear the ambient capabilities: %w", err)
	}
	if err := capset(keep, keep); err != nil {
		return err
	}
	if c.Apart > 0 {
		return keepRights()
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("set no_new_privs: %w", err)
	}
	return loadFilter(c.Filter)
}

func dropBounding() error {
	for n := uintptr(0); ; n++ {
		err := unix.Prctl(unix.PR_CAPBSET_DROP, n, 0, 0, 0)
		if errors.Is(err, unix.EINVAL) && n > 0 {
			return nil // after the last capability that this kernel knows
		}
		if err != nil {
			return fmt.Errorf("drop capability %d: %w", n, err)
		}
	}
}

func capset(permitted, inheritable uint32) error {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	data := [2]unix.CapUserData{{Effective: permitted, Permitted: permitted, Inheritable: inheritable}}
	if err := unix.Capset(&header, &data[0]); err != nil {
		return fmt.Errorf("give up capabilities: %w", err)
	}
	return nil
}

// clearInheritable prevents programs that the agent starts from inheriting a capability, in all threads of this
// program. The only exception is the right to read all files: the agent passes it to the program that saves files
// (spawn.Command.ReadAll), and to no other program.
func clearInheritable() error {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		return err
	}
	if data[0].Inheritable == 0 {
		return nil
	}
	data[0].Inheritable = 1 << unix.CAP_DAC_READ_SEARCH
	if apart := os.Geteuid() == wire.AgentID; apart { // in their namespace, commands lose inherited capabilities anyway
		data[0].Inheritable = 0 // this removes the ambient capabilities, too
		if err := keepOnReturn(); err != nil {
			return err
		}
	}
	_, _, errno := syscall.AllThreadsSyscall(unix.SYS_CAPSET, uintptr(unsafe.Pointer(&header)), uintptr(unsafe.Pointer(&data[0])), 0)
	if errno != 0 {
		return fmt.Errorf("give up inheritable capabilities: %w", errno)
	}
	return nil
}

// loadFilter puts this thread under a seccomp filter, permanently.
func loadFilter(filter []byte) error {
	const instruction = 8
	n := len(filter) / instruction
	if n == 0 || n > unix.BPF_MAXINSNS || len(filter)%instruction != 0 {
		return fmt.Errorf("a seccomp filter of %d bytes", len(filter))
	}
	program := unix.SockFprog{Len: uint16(n), Filter: (*unix.SockFilter)(unsafe.Pointer(&filter[0]))}
	_, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, 0, uintptr(unsafe.Pointer(&program)))
	if errno != 0 {
		return fmt.Errorf("load the seccomp filter: %w", errno)
	}
	return nil
}
