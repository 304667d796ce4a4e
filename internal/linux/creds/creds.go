// Package creds lets a thread act with the rights of another user for a while.
//
// Only the effective ids change, which the kernel checks when a file is opened. Meanwhile the thread has no effective
// capabilities. The real and the saved ids do not change, so processes of the other user can neither signal nor trace
// this process.
package creds

import (
	"fmt"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

const keep = ^uintptr(0) // leaves an id unchanged

// Do calls f with the effective ids uid and gid in place of the process's own. It needs CAP_SETUID and CAP_SETGID. The
// process must have no supplementary groups, because those would give f more rights. Goroutines that f starts have the
// process's own rights. A process that is not root needs PR_SET_KEEPCAPS if uid is 0: otherwise the kernel removes its
// capabilities when it returns from root.
func Do(uid, gid int, f func() error) error { return DoWith(uid, gid, 0, f) }

// DoWith does the same as Do, but f keeps some capabilities that this process has: bit n stands for capability n, which
// is below 32. It is for processes other than root.
func DoWith(uid, gid int, rights uint32, f func() error) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	euid, egid := uintptr(unix.Geteuid()), uintptr(unix.Getegid())
	if euid != 0 { // the kernel does that for root
		c, err := readCapabilities()
		if err != nil {
			return fmt.Errorf("take on user %d: %w", uid, err)
		}
		defer c.raise()
		f = c.only(rights, f)
	}
	// Package syscall would change all threads, so this is a raw call.
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

// must changes the effective id back to the real id, which the kernel always allows. It panics if that fails, because a
// thread that remained another user would be dangerous.
func must(call, id uintptr) {
	if _, _, errno := unix.RawSyscall(call, keep, id, keep); errno != 0 {
		panic(fmt.Sprintf("return to id %d: %v", id, errno))
	}
}

// capabilities are the capabilities of the calling thread.
type capabilities struct {
	header unix.CapUserHeader
	own    [2]unix.CapUserData
}

func readCapabilities() (*capabilities, error) {
	c := &capabilities{header: unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}}
	return c, unix.Capget(&c.header, &c.own[0])
}

// only returns a function that calls f with only these capabilities in effect.
func (c *capabilities) only(low uint32, f func() error) func() error {
	return func() error {
		if err := c.set(low, 0); err != nil {
			return fmt.Errorf("put capabilities aside: %w", err)
		}
		return f()
	}
}

// raise makes the thread's capabilities effective again. A thread without capabilities would be useless.
func (c *capabilities) raise() {
	if err := c.set(c.own[0].Effective, c.own[1].Effective); err != nil {
		panic(fmt.Sprintf("take up capabilities: %v", err))
	}
}

// set makes these capabilities effective, and keeps all permitted ones.
func (c *capabilities) set(low, high uint32) error {
	now := c.own
	now[0].Effective, now[1].Effective = low, high
	if _, _, errno := unix.RawSyscall(unix.SYS_CAPSET, uintptr(unsafe.Pointer(&c.header)), uintptr(unsafe.Pointer(&now[0])), 0); errno != 0 {
		return errno
	}
	return nil
}
