package inside

import (
	"errors"
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"hutch/internal/linux/clone"
	"hutch/internal/wire"
)

// Commands of an image can be root if the daemon is root. Then they are in a user namespace below the instance's own,
// as on gVisor: it has every id of the instance except the agent's, each mapped to itself. Root in it has capabilities
// over files and processes with these ids, but not over anything that belongs to the instance: its mounts, its network,
// its host name, or the agent. The agent enters that namespace for each command by setns, which the filter allows only
// to the agent.
//
// That leaves access by the owner of a file. It is prevented by read-only mounts (/proc/sys, our own folder) or by
// hiding the files. The files in /proc of a process that must not be traced belong to root, but with hidepid the folder
// of that process does not exist for other users.

// separate makes the user namespace of commands, and gives this process the agent's id with its present capabilities.
func separate(c Config) error {
	if c.Apart == 0 {
		return nil
	}
	if err := becomeAgent(); err != nil {
		return fmt.Errorf("become the agent's user: %w", err)
	}
	fd, err := clone.Users([]clone.ID{{Inside: 0, Outside: 0, Size: c.Apart}})
	if err != nil {
		return fmt.Errorf("make a user namespace for commands: %w", err)
	}
	defer unix.Close(fd)
	return os.NewSyscallError("dup3", unix.Dup3(fd, namespaceFD, 0))
}

// becomeAgent changes the user and group of this thread, the only one that is left. It keeps its capabilities.
func becomeAgent() error {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var now [2]unix.CapUserData
	if err := errors.Join(unix.Capget(&header, &now[0]), unix.Prctl(unix.PR_SET_KEEPCAPS, 1, 0, 0, 0)); err != nil {
		return err
	}
	const id = wire.AgentID
	if _, _, errno := unix.RawSyscall(unix.SYS_SETRESGID, id, id, id); errno != 0 {
		return errno
	}
	if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, id, id, id); errno != 0 {
		return errno
	}
	return unix.Capset(&header, &now[0])
}

// keepRights lets the second program keep the capabilities, over exec, of a thread that is not root.
func keepRights() error {
	for n := uintptr(0); n < 32; n++ {
		if agentCaps&(1<<n) == 0 {
			continue
		}
		if err := unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_RAISE, n, 0, 0); err != nil {
			return fmt.Errorf("keep capability %d: %w", n, err)
		}
	}
	return nil
}

// keepOnReturn makes all threads of the agent keep their capabilities when creds.Do switches back from user 0: see
// package creds.
func keepOnReturn() error {
	if _, _, errno := syscall.AllThreadsSyscall6(unix.SYS_PRCTL, unix.PR_SET_KEEPCAPS, 1, 0, 0, 0, 0); errno != 0 {
		return fmt.Errorf("keep capabilities: %w", errno)
	}
	return nil
}
