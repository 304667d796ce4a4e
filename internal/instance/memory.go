package instance

import (
	"errors"
	"time"

	"golang.org/x/sys/unix"

	"hutch"
)

// Memory reports on the memory of the machine. The zero Memory reports that there is always enough.
type Memory struct {
	// Exhausted reports whether there is too little memory for one more sandbox.
	Exhausted func() bool
	// Kills counts the processes that the kernel has ended for lack of memory.
	Kills func() int
	// Stalls reports whether programs make no progress for lack of memory while the kernel does not kill any. Call it
	// every second.
	Stalls func() bool
}

// ErrShort is the error for an instance that was not started because the kernel would have to kill another process for
// it.
var ErrShort = hutch.Errorf(hutch.Exhausted,
	"the server is short of memory: try again in a few seconds. Destroy sandboxes, or let idle ones sleep sooner, if it stays so").
	With("limit", "memory of the server").With("retryAfter", 5)

// lookEvery is how long a check of the memory is valid. A check takes a tenth as long as a create from the pool.
const lookEvery = 50 * time.Millisecond

// Scarce reports whether there is too little memory for one more sandbox.
func (m *Maker) Scarce() bool {
	if m.opt.Memory.Exhausted == nil {
		return false
	}
	m.memory.Lock()
	defer m.memory.Unlock()
	if now := time.Now(); now.After(m.looked.Add(lookEvery)) {
		m.looked, m.scarce = now, m.opt.Memory.Exhausted()
	}
	return m.scarce
}

// Kills returns how many processes the kernel has killed for lack of memory so far.
func (m *Maker) Kills() int {
	if m.opt.Memory.Kills == nil {
		return 0
	}
	return m.opt.Memory.Kills()
}

// WasShort reports whether an instance could not be made for lack of memory: the kernel returned that error, or has
// killed more processes than before.
func (m *Maker) WasShort(err error, before int) bool {
	return errors.Is(err, unix.ENOMEM) || errors.Is(err, hutch.Unavailable) && m.Kills() > before
}
