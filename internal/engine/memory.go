package engine

import (
	"errors"
	"time"

	"golang.org/x/sys/unix"

	"hutch"
)

// Memory tells of that of the machine. Of the zero Memory there is always enough.
type Memory struct {
	// Exhausted reports whether there is too little for one more sandbox.
	Exhausted func() bool
	// Kills counts the processes that the kernel has ended for want of it.
	Kills func() int
}

// errShort is of what was not begun, so that the kernel need not end something
// else for it.
var errShort = hutch.Errorf(hutch.Exhausted,
	"the server is short of memory: try again in a few seconds. Destroy sandboxes, or let idle ones sleep sooner, if it stays so").
	With("limit", "memory of the server").With("retryAfter", 5)

// glanceEvery is for how long a look at the memory counts: it takes a tenth of
// what a create from the pool does.
const glanceEvery = 50 * time.Millisecond

// scarceLocked reports whether there is too little memory for one more sandbox.
func (e *Engine) scarceLocked() bool {
	if e.opt.Memory.Exhausted == nil {
		return false
	}
	if now := time.Now(); now.After(e.looked.Add(glanceEvery)) {
		e.looked, e.scarce = now, e.opt.Memory.Exhausted()
	}
	return e.scarce
}

// kills is how many processes the kernel has ended for want of memory so far.
func (e *Engine) kills() int {
	if e.opt.Memory.Kills == nil {
		return 0
	}
	return e.opt.Memory.Kills()
}

// shortage tells whether it was for want of memory that a place could not be
// made: the kernel said so, or has ended more processes than before.
func (e *Engine) shortage(err error, before int) bool {
	return errors.Is(err, unix.ENOMEM) || errors.Is(err, hutch.Unavailable) && e.kills() > before
}
