package inside

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"hutch/internal/linux/clone"
	"hutch/internal/wire"
)

// Commands of an image can run as root, and the agent must be out of their reach. So they are in a separate user
// namespace, which has every id except the agent's: the agent takes an id that no other process can have or reach. The
// capabilities of root in that namespace apply to files and processes with ids of that namespace. They do not apply to
// anything that belongs to the sandbox as a whole: not to the agent, mounts, the host name, devices of the network or
// the control groups.
//
// That leaves only access by the owner of a file, because the files of gVisor's own file systems belong to user 0. So
// protect makes those file systems read only, and gives the folder of the socket between daemon and agent to the
// agent's id.

const (
	agentID   = wire.AgentID
	agentPath = "/.hutch/agent"
	ownDir    = "/.hutch"
	private   = wire.PrivateDir
	socketDir = "/.hutch/run"
	groups    = "/sys/fs/cgroup"
	settings  = "/proc/sys"
	devices   = "/dev"
)

// readOnly are the flags of a mount that no program can write to.
const readOnly = unix.MS_REMOUNT | unix.MS_RDONLY | unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC

// protect makes the files that only the agent and the daemon may use inaccessible to root.
func protect() error {
	if err := unix.Mount("", groups, "", readOnly, ""); err != nil {
		return fmt.Errorf("make %s read only: %w", groups, err)
	}
	if err := unix.Mount(settings, settings, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("mount %s: %w", settings, err)
	}
	if err := unix.Mount("", settings, "", readOnly, ""); err != nil {
		return fmt.Errorf("make %s read only: %w", settings, err)
	}
	// The file system of devices is in memory, and has no limit. Devices can still be written to after this.
	if err := unix.Mount("", devices, "", unix.MS_REMOUNT|unix.MS_RDONLY|unix.MS_NOSUID, ""); err != nil {
		return fmt.Errorf("make %s read only: %w", devices, err)
	}
	to := filepath.Join(private, "run")
	err := errors.Join(os.MkdirAll(to, 0o700), os.Chown(ownDir, agentID, agentID), os.Chown(private, agentID, agentID))
	if err == nil {
		err = unix.Mount(socketDir, to, "", unix.MS_MOVE, "")
	}
	if err == nil {
		err = os.Chown(socketDir, agentID, agentID) // the path is now the empty folder that the mount covered
	}
	if err == nil { // makes the folder a mount, which root cannot move
		err = unix.Mount(ownDir, ownDir, "", unix.MS_BIND|unix.MS_REC, "")
	}
	if err != nil {
		return fmt.Errorf("hide %s: %w", socketDir, err)
	}
	return nil
}

// These are the arguments of capset for all threads. They must not move in memory.
var (
	header = unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	sets   [2]unix.CapUserData
)

// becomeAgent gives this process the agent's id, and keeps its capabilities.
func becomeAgent() error {
	if err := unix.Capget(&header, &sets[0]); err != nil {
		return err
	}
	// The setting must stay, because package creds switches to the id of root and back.
	if _, _, errno := syscall.AllThreadsSyscall6(unix.SYS_PRCTL, unix.PR_SET_KEEPCAPS, 1, 0, 0, 0, 0); errno != 0 {
		return errno
	}
	if err := errors.Join(syscall.Setgroups(nil), syscall.Setresgid(agentID, agentID, agentID), syscall.Setresuid(agentID, agentID, agentID)); err != nil {
		return err
	}
	_, _, errno := syscall.AllThreadsSyscall(unix.SYS_CAPSET, uintptr(unsafe.Pointer(&header)), uintptr(unsafe.Pointer(&sets)), 0)
	if errno != 0 {
		return errno
	}
	return nil
}

// newNamespace makes the user namespace of commands, and returns a descriptor of it. A separate process makes it and
// then ends, because a program with threads cannot make a user namespace.
func newNamespace() (int, error) {
	pid, pidfd, err := clone.Start(clone.Command{Path: agentPath, Argv: []string{"hutch-agent", Hold}, Namespaces: unix.CLONE_NEWUSER})
	if err != nil {
		return -1, err
	}
	defer func() {
		unix.PidfdSendSignal(pidfd, unix.SIGKILL, nil, 0)
		unix.Close(pidfd)
		for {
			if _, err := unix.Wait4(pid, nil, 0, nil); err != unix.EINTR {
				return
			}
		}
	}()
	proc, ids := fmt.Sprintf("/proc/%d/", pid), fmt.Sprintf("0 0 %d\n", agentID)
	if err := errors.Join(set(proc+"uid_map", ids), set(proc+"gid_map", ids)); err != nil {
		return -1, err
	}
	return unix.Open(proc+"ns/user", unix.O_RDONLY|unix.O_CLOEXEC, 0)
}

// Hold is the argument that makes the agent's program only wait to be killed.
const Hold = "hold"

// Wait never returns.
func Wait() {
	for {
		unix.Pause()
	}
}
