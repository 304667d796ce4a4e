package main

import (
	"context"
	"os"
	"os/signal"
	"sync"
	"syscall"
)

// interrupts handles the signals that end the program. A command can receive Ctrl-C itself for a while.
type interrupts struct {
	mu    sync.Mutex
	taken chan<- struct{} // receives Ctrl-C; nil while Ctrl-C ends the program
}

// watch cancels a context at the first signal; the second one ends the program
// at once.
func (i *interrupts) watch(cancel context.CancelCauseFunc) {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	for sig := range signals {
		if sig == os.Interrupt && i.pass() {
			continue
		}
		signal.Stop(signals)
		cancel(interrupted(sig.(syscall.Signal)))
		return
	}
}

// pass sends Ctrl-C to the command that handles it, if there is one.
func (i *interrupts) pass() bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.taken == nil {
		return false
	}
	select {
	case i.taken <- struct{}{}:
	default: // an earlier Ctrl-C is still waiting
	}
	return true
}

// take gives the caller every Ctrl-C until release.
func (i *interrupts) take() (pressed <-chan struct{}, release func()) {
	c := make(chan struct{}, 1)
	i.set(c)
	return c, func() { i.set(nil) }
}

func (i *interrupts) set(c chan<- struct{}) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.taken = c
}
