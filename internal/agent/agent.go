// Package agent is the program inside every sandbox: it runs commands, keeps
// their output, and ends them with everything they started. It speaks the protocol
// of package wire, and trusts the daemon that knows its token. Everything else in
// the sandbox is hostile to it.
//
// Each connection has one goroutine that never stops reading, so that a hang-up
// kills the command even while its output cannot be delivered. A process adds one
// goroutine that waits for its end and one for each of its pipes; all other
// buffering is left to the kernel's pipes and sockets.
package agent

import (
	"context"
	"errors"
	"maps"
	"net"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"hutch/internal/files"
	"hutch/internal/linux/spawn"
	"hutch/internal/wire"
)

const (
	maxConns           = 1024 // most connections that have said hello
	maxUnauthenticated = 512  // most connections that have not said hello
	helloTime          = 10 * time.Second
	maxLive            = 10 // detached processes, unless Boot says otherwise
	commandFile        = 1024
)

// Build is the agent's commit, set by main.
var Build = "unknown"

// Options configure an agent.
type Options struct {
	// Init is set when this process is the first of its pid namespace: it then reaps every orphan, permanently. No
	// other code in the process is allowed to wait for children.
	Init bool
	// Alone is set if this process is allowed to stop all other processes of its pid namespace for a moment: all of
	// them were started by this process, or only serve it.
	Alone bool
	// Listen listens again after the instance was saved; nil if the instance cannot be saved.
	Listen func() (net.Listener, error)
	// Rename sets the instance's host name; nil if the instance shares the host's.
	Rename func(name string) error
}

// agent is one sandbox's agent.
type agent struct {
	opt       Options
	boot      wire.Boot
	user      user         // user of commands whose request names no user
	apart     *spawn.Apart // nil if commands run in the agent's own user namespace
	files     *files.FS    // to change files; see filesFor
	readable  *files.FS    // to read files
	null      *os.File
	children  *children
	jobs      *jobs
	contexts  *contexts
	group     sync.WaitGroup // every goroutine but the reaper
	idle      *idle
	attached  *pace        // rate limit for output that a caller reads live
	logged    *pace        // rate limit for output of background processes
	ports     atomic.Int32 // connections with servers
	relieving sync.Mutex   // one relieve runs at a time

	mu              sync.Mutex
	token           string   // see adopt
	env             []string // see adopt
	ln              net.Listener
	saved           *os.File // set while the agent is parked: see park
	resume          chan os.Signal
	closed          bool
	conns           map[*conn]struct{} // connections that have said hello
	unauthenticated []*conn            // connections that have not said hello, oldest first
	procs           map[*running]struct{}
}

// Serve runs an agent on the connections of ln until ctx is done; then it
// kills all processes, waits for its goroutines and returns nil.
func Serve(ctx context.Context, ln net.Listener, boot wire.Boot, opt Options) error {
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer null.Close()
	a := &agent{
		opt: opt, ln: ln, boot: boot, token: boot.Token, env: boot.Env, user: usual(boot), apart: apart(boot),
		null: null, idle: newIdle(), attached: newPace(attachedRate), logged: newPace(loggedRate),
		children: newChildren(opt.Init), conns: map[*conn]struct{}{}, procs: map[*running]struct{}{},
	}
	if ids := a.user.ids; ids != nil && !ids.KeepGroups {
		leaveGroups() // otherwise, file operations for a user would also have the rights of these groups
	}
	a.files, a.readable = filesOf(boot, a.user.ids)
	a.jobs = newJobs(a)
	a.contexts = &contexts{agent: a}
	defer a.idle.stop()
	err = a.acceptAll(ctx, ln)
	a.hangUp()
	a.jobs.close()
	a.contexts.closeAll()
	a.endAll()
	a.group.Wait()
	a.children.wait()
	a.jobs.clean()
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// leaveGroups gives up all supplementary groups. The call stops every thread, so it is made only if there are groups.
func leaveGroups() {
	if groups, err := syscall.Getgroups(); err != nil || len(groups) > 0 {
		syscall.Setgroups(nil)
	}
}

// commandRights are the capabilities of root if commands have their own user namespace: those of a Docker container,
// without raw sockets and devices.
const commandRights = 1<<unix.CAP_CHOWN | 1<<unix.CAP_DAC_OVERRIDE | 1<<unix.CAP_FSETID | 1<<unix.CAP_FOWNER |
	1<<unix.CAP_KILL | 1<<unix.CAP_SETGID | 1<<unix.CAP_SETUID | 1<<unix.CAP_SETFCAP | 1<<unix.CAP_NET_BIND_SERVICE |
	1<<unix.CAP_SYS_CHROOT | 1<<unix.CAP_AUDIT_WRITE

// apart returns the user namespace in which commands run, or nil if that is the agent's own.
func apart(boot wire.Boot) *spawn.Apart {
	if boot.Namespace == 0 {
		return nil
	}
	return &spawn.Apart{Namespace: boot.Namespace, Keep: commandRights}
}

// acceptAll accepts from ln, and from the listeners that replace it after the instance was saved.
func (a *agent) acceptAll(ctx context.Context, ln net.Listener) error {
	for {
		err := a.accept(ctx, ln)
		next, failed := a.reopen(ctx)
		if next == nil {
			return errors.Join(err, failed)
		}
		ln = next
	}
}

func (a *agent) accept(ctx context.Context, ln net.Listener) error {
	defer ln.Close()
	stop := context.AfterFunc(ctx, func() { ln.Close() })
	defer stop()
	for {
		nc, err := ln.Accept()
		switch {
		case err == nil:
			a.welcome(nc)
		case ctx.Err() != nil || errors.Is(err, net.ErrClosed):
			return err
		default: // for example, too many open files: wait and try again
			select {
			case <-ctx.Done():
			case <-time.After(20 * time.Millisecond):
			}
		}
	}
}

// welcome serves a new connection. It is unauthenticated until it has said hello. If there are too many such connections, the
// oldest is closed, so that clients without the token cannot keep out the daemon.
func (a *agent) welcome(nc net.Conn) {
	c := newConn(a, nc)
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed || a.saved != nil {
		nc.Close()
		return
	}
	if len(a.unauthenticated) >= maxUnauthenticated {
		a.unauthenticated[0].Close()
		a.unauthenticated = append(a.unauthenticated[:0], a.unauthenticated[1:]...)
	}
	a.unauthenticated = append(a.unauthenticated, c)
	a.group.Go(c.serve)
}

// markKnown marks a connection that has said hello. It returns false if there are too many such connections.
func (a *agent) markKnown(c *conn) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed || len(a.conns) >= maxConns || !a.forgetLocked(c) {
		return false
	}
	a.conns[c] = struct{}{}
	return true
}

// forgetLocked removes c from the list of unauthenticated connections, and reports whether it was in the list.
func (a *agent) forgetLocked(c *conn) bool {
	for i, s := range a.unauthenticated {
		if s == c {
			a.unauthenticated = append(a.unauthenticated[:i], a.unauthenticated[i+1:]...)
			return true
		}
	}
	return false
}

func (a *agent) gone(c *conn) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.forgetLocked(c)
	delete(a.conns, c)
}

func (a *agent) hangUp() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.closed = true
	for _, c := range a.unauthenticated {
		c.Close()
	}
	for c := range a.conns {
		c.Close()
	}
}

// track records that the output of p is still being read, because p or a process that it started is alive.
func (a *agent) track(p *running) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.procs[p] = struct{}{}
	if a.closed { // endAll can have run already
		p.closeOuts()
	}
}

func (a *agent) untrack(p *running) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.procs, p)
}

// endAll kills every process whose output is still being read, and closes the agent's ends of the pipes.
func (a *agent) endAll() {
	a.mu.Lock()
	procs := slices.Collect(maps.Keys(a.procs))
	a.mu.Unlock()
	for _, p := range procs {
		p.tree.kill()
		p.closeOuts()
	}
}
