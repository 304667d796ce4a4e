package agent

import (
	"context"
	"net"
	"os"
	"os/signal"
	"syscall"
	"time"

	"hutch"
)

// parkTime is how long a parked agent waits until its instance is saved, or the save is cancelled. After that time,
// neither will happen any more.
const parkTime = 15 * time.Minute

// resumed is the signal that a parked agent waits for. No process inside can send it to the agent.
const resumed = syscall.SIGUSR1

// park closes every socket that connects to the host, because an instance cannot be saved with one: the listener and
// all connections. self is closed after its answer. They open again after the save, both in the instance and in every
// restored copy.
func (a *agent) park(self *conn) error {
	if a.opt.Listen == nil {
		return hutch.Errorf(hutch.Unsupported, "this instance cannot be saved")
	}
	saved, err := os.Open(a.boot.Saved) // from now on, this descriptor signals the first save
	if err != nil {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.saved != nil || a.closed {
		saved.Close()
		return hutch.Errorf(hutch.Conflict, "the sandbox is being saved")
	}
	a.saved, a.resume = saved, make(chan os.Signal, 1)
	signal.Notify(a.resume, resumed)
	a.closeAllButLocked(self)
	return a.ln.Close() // see reopen
}

func (a *agent) closeAllButLocked(self *conn) {
	for _, c := range a.unauthenticated {
		c.Close()
	}
	for c := range a.conns {
		if c != self {
			c.Close()
		}
	}
}

// reopen waits until the instance has been saved, and listens again. It returns nil if the agent was not parked: then
// the agent ends.
func (a *agent) reopen(ctx context.Context) (net.Listener, error) {
	a.mu.Lock()
	saved, resume := a.saved, a.resume
	a.mu.Unlock()
	if saved == nil || ctx.Err() != nil {
		return nil, nil
	}
	defer signal.Stop(resume)
	read := make(chan struct{})
	go func() {
		saved.Read(make([]byte, 16))
		saved.Close()
		close(read)
	}()
	select {
	case <-read:
	case <-resume:
	case <-time.After(parkTime):
	case <-ctx.Done():
	}
	ln, err := a.opt.Listen()
	a.mu.Lock()
	defer a.mu.Unlock()
	a.ln, a.saved, a.resume = ln, nil, nil
	return ln, err
}
