package clone

import (
	"fmt"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

const keep = ^uintptr(0) // leaves an id unchanged

// asOwner calls f on a thread whose user is owner, but which keeps its capabilities and its rights to files. That user
// then owns the user namespaces that f creates.
func asOwner(owner int, f func()) error {
	if owner == 0 {
		f()
		return nil
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var caps [2]unix.CapUserData
	if err := unix.Capget(&header, &caps[0]); err != nil {
		return os.NewSyscallError("capget", err)
	}
	root := uintptr(unix.Geteuid())
	// Package syscall would change all threads, so this is a raw call. Because of its saved id, the thread can return
	// and keeps its permitted capabilities. It has to make them effective again.
	if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, uintptr(owner), uintptr(owner), keep); errno != 0 {
		return fmt.Errorf("take on user %d: %w", owner, errno)
	}
	defer func() {
		if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, root, root, keep); errno != 0 {
			panic(fmt.Sprintf("return to user %d: %v", root, errno)) // a thread that stayed another user would be dangerous
		}
		_ = unix.Capset(&header, &caps[0])
	}()
	if err := unix.Capset(&header, &caps[0]); err != nil {
		return os.NewSyscallError("capset", err)
	}
	if _, _, errno := unix.RawSyscall(unix.SYS_SETFSUID, root, 0, 0); errno != 0 {
		return fmt.Errorf("keep the right to files: %w", errno)
	}
	f()
	return nil
}
