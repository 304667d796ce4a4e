// Package creds lets a thread act with the rights of another user for a while.
//
// Only the effective ids change, which the kernel checks when a file is opened; the
// effective capabilities disappear with the effective user, and come back with it. The
// real and the saved ids stay, so processes of the other user can neither signal nor
// trace this process meanwhile.
package creds

import (
	"fmt"
	"runtime"

	"golang.org/x/sys/unix"
)

const keep = ^uintptr(0) // leaves an id unchanged

// Do calls f with the effective ids uid and gid in place of the process's own. It needs CAP_SETUID and CAP_SETGID,
// and a process without supplementary groups, because those would give f more rights. Goroutines that f starts have
// the process's own rights.
func Do(uid, gid int, f func() error) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	euid, egid := uintptr(unix.Geteuid()), uintptr(unix.Getegid())
	// Package syscall would change all threads.
	if _, _, errno := unix.RawSyscall(unix.SYS_SETRESGID, keep, uintptr(gid), keep); errno != 0 {
		return fmt.Errorf("take on group %d: %w", gid, errno)
	}
	defer must(unix.SYS_SETRESGID, egid)
	if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, keep, uintptr(uid), keep); errno != 0 {
		return fmt.Errorf("take on user %d: %w", uid, errno)
	}
	defer must(unix.SYS_SETRESUID, euid)
	return f()
}

// must returns to an id that is still the real one, which the kernel always allows. A thread that stayed another user
// would be dangerous.
func must(call, id uintptr) {
	if _, _, errno := unix.RawSyscall(call, keep, id, keep); errno != 0 {
		panic(fmt.Sprintf("return to id %d: %v", id, errno))
	}
}
