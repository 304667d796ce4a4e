package agent

import (
	"sync"
	"syscall"
	"time"

	"hutch/internal/linux/spawn"
)

// children starts processes and reports how they ended.
//
// If the agent is the first process of its namespace, it inherits orphans that it does not know, and one thread waits
// for all children: an ended process is either in the table, or an orphan. If not, other code in this process has
// children too, so each child has its own goroutine that waits for it.
type children struct {
	init    bool
	started chan struct{} // signals that there can be a child to wait for again
	waiters sync.WaitGroup

	// starting is held for reading from before a fork until the child is in the table. A caller that holds it for
	// writing finds every child in the table.
	starting sync.RWMutex
	mu       sync.Mutex
	ends     map[int]child
	orphans  orphans
	list     list
}

// child is a process that the agent has started.
type child struct {
	mark string // mark of the tree whose root is this child
	end  chan<- syscall.WaitStatus
}

func newChildren(init bool) *children {
	c := &children{init: init, started: make(chan struct{}, 1), ends: map[int]child{}, orphans: orphans{}}
	if init {
		c.list = openList()
		go c.reap()
	}
	return c
}

// start starts the root of a tree, with the given mark. Its status will arrive once on the channel.
func (c *children) start(cmd spawn.Command, mark string) (int, <-chan syscall.WaitStatus, error) {
	end := make(chan syscall.WaitStatus, 1)
	c.starting.RLock()
	pid, err := spawn.Start(cmd)
	if pid != 0 && c.init {
		c.mu.Lock()
		c.ends[pid] = child{mark, end}
		c.mu.Unlock()
	}
	c.starting.RUnlock()
	switch {
	case pid == 0:
	case c.init:
		select {
		case c.started <- struct{}{}:
		default:
		}
	case err != nil: // dead already
		waitFor(pid)
	default:
		c.waiters.Go(func() {
			_, status, _ := waitFor(pid)
			end <- status
		})
	}
	return pid, end, err
}

// wait waits until every child with its own goroutine has ended.
func (c *children) wait() { c.waiters.Wait() }

// freeze stops all other processes until thaw. This process must be alone in its
// pid namespace: see Options. A child that is stopped before it executes would stop its parent
// too, so no child is started meanwhile.
//
// On gVisor, one signal to all processes can miss children that are started while it
// is sent, and one of them is enough for a fork bomb to grow again. So freeze
// repeats the signal until thaw.
func (c *children) freeze() (thaw func()) {
	c.starting.Lock()
	for range 8 {
		syscall.Kill(-1, syscall.SIGSTOP)
	}
	enough, over := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(over)
		repeatStop(enough)
	}()
	return func() {
		close(enough)
		<-over // otherwise processes would be stopped after thaw
		syscall.Kill(-1, syscall.SIGCONT)
		c.starting.Unlock()
	}
}

// repeatStop stops all processes repeatedly, at growing intervals.
func repeatStop(enough <-chan struct{}) {
	for pause := time.Millisecond; ; pause = min(pause*5/4, 50*time.Millisecond) {
		select {
		case <-enough:
			return
		case <-time.After(pause):
			syscall.Kill(-1, syscall.SIGSTOP)
		}
	}
}

// reap waits for children to die, and reaps them.
func (c *children) reap() {
	for {
		if err := awaitExitOfChild(); err != nil { // no child at all
			<-c.started
			continue
		}
		c.starting.Lock()
		c.reapDead()
		c.starting.Unlock()
	}
}

func waitFor(pid int) (int, syscall.WaitStatus, error) {
	var status syscall.WaitStatus
	for {
		got, err := syscall.Wait4(pid, &status, 0, nil)
		if err != syscall.EINTR {
			return got, status, err
		}
	}
}
