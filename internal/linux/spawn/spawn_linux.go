// Package spawn starts programs for a process that must find and end all their descendants.
//
// A child leads its own session and is a child subreaper: all its descendants stay below it until it ends. The kernel
// offers no way to set that from outside. A helper program that sets it and then executes the real program would cost a
// millisecond. So this package has its own vfork and execve. A child shares its parent's memory until it executes, and
// reports a failure through that memory. A child can load a seccomp filter for itself, so that its parent does not need
// one.
package spawn

import (
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Command is a program to be started.
type Command struct {
	Path string   // path of the program; PATH is not searched
	Argv []string // at least the program's name
	Env  []string // KEY=VALUE
	Dir  string   // working directory; empty means the parent's
	// Files become descriptors 0, 1 and 2; all others are closed. Each number must be above 2.
	Files [3]int
	// Terminal makes descriptor 0 the controlling terminal.
	Terminal bool
	// User is the user that the program runs as; nil means the parent's user.
	User *User
	// ReadAll gives User one capability that lets it read all files regardless of permissions, if the parent has it and
	// can pass it on. Without ReadAll, User has no capabilities and can inherit none.
	ReadAll bool
	// Apart, if set, puts the child into a user namespace. It needs a User.
	Apart *Apart
	// MaxFiles, if not zero, is the soft limit of open files. Go's runtime raises the limit of its own process, and a
	// child should not inherit that.
	MaxFiles uint64
	// Pass is the value that a seccomp filter expects in the two arguments of clone3 and setns after those that the
	// kernel uses: see [Start].
	Pass [2]uint64
	// Filter, if not empty, is a seccomp filter that the child loads for itself and its descendants, as an array of the
	// kernel's struct sock_filter. The parent needs no_new_privs, or the capability to load filters.
	Filter []byte
	// Offer makes the kernel kill the child and its descendants before the parent when memory runs out. Without it, the
	// kernel could kill the parent, if most memory belongs to no process (for example, to sockets). The child can undo
	// this.
	Offer bool
}

// Apart is a user namespace for children that can be root in it but must not be root outside. In the namespace, a child
// can gain privileges by a program's setuid bit, but only the capabilities in Keep.
type Apart struct {
	Namespace int    // an open user namespace, not that of the parent
	Keep      uint64 // bit n is capability n
}

// User is the user that a child becomes before it enters its folder and executes.
type User struct {
	UID, GID int
	Groups   []int // supplementary
	// KeepGroups leaves the supplementary groups unchanged, for a user namespace that forbids changing them.
	KeepGroups bool
}

// Step names the operation at which a child failed.
type Step int

const (
	Fork Step = iota
	Setup
	Become // become another user
	Chdir
	Exec
)

// Error is the error for a program that did not start.
type Error struct {
	Step  Step
	Path  string // path of the program, or of the folder in step Chdir
	Errno syscall.Errno
}

func (e *Error) Error() string {
	return fmt.Sprintf("%s %s: %v", [...]string{"fork for", "prepare", "change user for", "enter", "execute"}[e.Step], e.Path, e.Errno)
}

func (e *Error) Unwrap() error { return e.Errno }

// Start starts a program and returns its process. With an error of type [*Error], a pid other than 0 is that of a dead
// child. The caller has to reap it like a living one.
//
// A child has none of its parent's signal handlers. If clone3 can be called, the kernel resets them. Otherwise the
// child resets them with about sixty calls, which take a millisecond on gVisor and almost no time on Linux.
func Start(c Command) (pid int, err error) {
	p, err := c.plan()
	if err != nil {
		return 0, err
	}
	p.bare = !noClone3.Load()
	id, errno := forkExec(p)
	afterFork()
	if p.bare && (errno == uintptr(unix.ENOSYS) || errno == uintptr(unix.EINVAL) || errno == uintptr(unix.EPERM)) {
		noClone3.Store(true) // the kernel is too old, or a filter forbids clone3
		p.bare = false
		id, errno = forkExec(p)
		afterFork()
	}
	runtime.KeepAlive(p)
	switch {
	case errno != 0:
		return 0, &Error{Fork, c.Path, syscall.Errno(errno)}
	case p.errno == 0:
		return int(id), nil
	case p.step == Chdir:
		return int(id), &Error{Chdir, c.Dir, p.errno}
	}
	return int(id), &Error{p.step, c.Path, p.errno}
}

// noClone3 is set when clone3 cannot make a child without signal handlers.
var noClone3 atomic.Bool

// plan is a Command in the form that the child needs. The child must neither allocate nor touch its parent's stack.
type plan struct {
	path, dir *byte
	argv, env []*byte
	files     [3]uintptr
	terminal  bool
	user      bool
	setgroups bool
	groups    []uint32
	uid, gid  uintptr
	limit     *unix.Rlimit
	readAll   bool
	rights    unix.CapUserHeader
	right     [2]unix.CapUserData
	namespace uintptr   // namespace of Apart, else 0
	dropped   []uintptr // the capabilities that a child in Apart drops permanently
	root      bool      // the child is root in Apart
	mask      uint64    // no signal is blocked
	bare      bool      // the child starts without signal handlers
	pass      [2]uint64
	offer     bool
	filter    *unix.SockFprog

	step  Step // the child's current step
	errno syscall.Errno
}

// instruction is the size of a filter's instruction.
const instruction = 8

const readAll = 1 << unix.CAP_DAC_READ_SEARCH

func (c Command) plan() (*plan, error) {
	p := &plan{}
	var err error
	if p.path, err = syscall.BytePtrFromString(c.Path); err != nil {
		return nil, &Error{Exec, c.Path, syscall.EINVAL}
	}
	if p.argv, err = syscall.SlicePtrFromStrings(c.Argv); err != nil || len(c.Argv) == 0 {
		return nil, &Error{Exec, c.Path, syscall.EINVAL}
	}
	if p.env, err = syscall.SlicePtrFromStrings(c.Env); err != nil {
		return nil, &Error{Exec, c.Path, syscall.EINVAL}
	}
	if c.Dir != "" {
		if p.dir, err = syscall.BytePtrFromString(c.Dir); err != nil {
			return nil, &Error{Chdir, c.Dir, syscall.EINVAL}
		}
	}
	for i, fd := range c.Files {
		if fd < 3 {
			return nil, &Error{Setup, c.Path, syscall.EBADF}
		}
		p.files[i] = uintptr(fd)
	}
	if c.User != nil {
		p.user, p.setgroups = true, !c.User.KeepGroups
		p.uid, p.gid = uintptr(c.User.UID), uintptr(c.User.GID)
		for _, g := range c.User.Groups {
			p.groups = append(p.groups, uint32(g))
		}
		p.rights.Version = unix.LINUX_CAPABILITY_VERSION_3
		if p.readAll = c.ReadAll; p.readAll {
			p.right[0] = unix.CapUserData{Effective: readAll, Permitted: readAll, Inheritable: readAll}
		}
	}
	if c.Apart != nil {
		if c.User == nil || c.Apart.Namespace < 3 {
			return nil, &Error{Become, c.Path, syscall.EINVAL}
		}
		p.namespace, p.root = uintptr(c.Apart.Namespace), c.User.UID == 0
		p.dropped = c.Apart.droppedCapabilities()
	}
	if len(c.Filter)%instruction != 0 {
		return nil, &Error{Setup, c.Path, syscall.EINVAL}
	}
	if n := len(c.Filter) / instruction; n > 0 {
		p.filter = &unix.SockFprog{Len: uint16(n), Filter: (*unix.SockFilter)(unsafe.Pointer(&c.Filter[0]))}
	}
	p.terminal, p.pass, p.offer = c.Terminal, c.Pass, c.Offer
	p.limit = c.limit()
	return p, nil
}

// droppedCapabilities returns the capabilities that are not in Keep.
func (a *Apart) droppedCapabilities() (list []uintptr) {
	for c := uintptr(0); c < 64; c++ { // includes capabilities of later kernels
		if a.Keep&(1<<c) == 0 {
			list = append(list, c)
		}
	}
	return list
}

func (c Command) limit() *unix.Rlimit {
	l := openFiles()
	if c.MaxFiles == 0 || l.Max < c.MaxFiles {
		return nil
	}
	l.Cur = c.MaxFiles
	return &l
}

// openFiles is this process's limit of open files, zero if it is unknown.
var openFiles = sync.OnceValue(func() (l unix.Rlimit) {
	_ = unix.Prlimit(0, unix.RLIMIT_NOFILE, nil, &l)
	return l
})
