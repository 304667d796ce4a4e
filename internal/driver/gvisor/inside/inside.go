// Package inside prepares a gVisor sandbox from inside, before its first process becomes the agent. These steps cannot
// be done from outside.
package inside

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Threads is how many threads the agent keeps in reserve. They count towards the limit on processes inside.
const Threads = 16

// Prepare empties the bounding set of this process, so that no program that it starts can gain privileges. It also
// writes the control files that settings give as path=value. If filter is not nil, it puts this process under that
// seccomp filter, an array of the kernel's struct sock_filter.
//
// In gVisor the agent itself has no filter, and each child loads one for itself ([wire.Boot].Filter). For each thread
// that is created or restored with a filter, gVisor runs the filter on every system call number. That takes 0.6 ms of
// CPU each, and the agent has 25 threads.
//
// If apart is set, Prepare returns a descriptor of the user namespace of commands; otherwise 0.
func Prepare(filter []byte, settings []string, apart bool) (namespace int, err error) {
	// This must come before further threads exist: each has its own bounding set.
	if err := errors.Join(shed(), coverStart()); err != nil {
		return 0, err
	}
	for _, s := range settings {
		path, value, ok := strings.Cut(s, "=")
		if !ok {
			return 0, fmt.Errorf("setting %q is not path=value", s)
		}
		if err := set(path, value); err != nil {
			return 0, err
		}
	}
	if apart {
		if namespace, err = separate(); err != nil {
			return 0, fmt.Errorf("keep commands away from the agent: %w", err)
		}
	}
	if filter != nil {
		if err := load(filter); err != nil {
			return 0, fmt.Errorf("load the seccomp filter: %w", err)
		}
	}
	reserveThreads(Threads)
	return namespace, nil
}

// separate makes the user namespace of commands, and makes the agent's files inaccessible to it.
func separate() (int, error) {
	if err := protect(); err != nil {
		return 0, err
	}
	if err := becomeAgent(); err != nil {
		return 0, fmt.Errorf("become user %d: %w", agentID, err)
	}
	namespace, err := newNamespace()
	if err != nil {
		return 0, fmt.Errorf("make a user namespace: %w", err)
	}
	return namespace, nil
}

// load puts all threads of this process under a filter, permanently.
func load(filter []byte) error {
	if len(filter) == 0 || len(filter)%instruction != 0 {
		return fmt.Errorf("a filter of %d bytes", len(filter))
	}
	program := unix.SockFprog{Len: uint16(len(filter) / instruction), Filter: (*unix.SockFilter)(unsafe.Pointer(&filter[0]))}
	_, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(&program)))
	if errno != 0 {
		return errno
	}
	return nil
}

// reserveThreads starts n threads, which the runtime keeps for later. If the runtime needed a new thread while the
// limit on processes is reached, the runtime would end the agent and with it the sandbox. Any fork bomb could cause
// that.
func reserveThreads(n int) {
	var ready, done sync.WaitGroup
	ready.Add(n)
	for range n {
		done.Go(func() {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			ready.Done()
			ready.Wait()
		})
	}
	done.Wait()
}

// set writes a file that must exist, in one write.
func set(path, value string) error {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(value)
	return errors.Join(err, f.Close())
}

// shed drops every capability from the bounding set of all threads.
func shed() error {
	for c := uintptr(0); ; c++ {
		held, err := unix.PrctlRetInt(unix.PR_CAPBSET_READ, c, 0, 0, 0)
		if err != nil { // there are no more
			return nil
		}
		if held == 0 {
			continue
		}
		if _, _, errno := syscall.AllThreadsSyscall(unix.SYS_PRCTL, unix.PR_CAPBSET_DROP, c, 0); errno != 0 {
			return fmt.Errorf("drop capability %d: %w", c, errno)
		}
	}
}
