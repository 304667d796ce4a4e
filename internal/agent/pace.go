package agent

import (
	"sync"
	"sync/atomic"
	"time"

	"hutch/internal/wire"
)

// A program that prints endlessly keeps two processors busy: its own, and that of the reading agent. Through a pipe
// they wake each other thousands of times a second, and other sandboxes wait for both. So the agent reads the first
// freeOutput bytes of a process at full speed, and all later output at a rate that the processes of the sandbox share.
// The pipe fills up, and the program sleeps. This also spares the server, which reads no faster than the agent sends.
const (
	freeOutput   = 256 << 20
	attachedRate = 128 << 20 // bytes a second, for output that a caller reads live
	loggedRate   = 32 << 20  // bytes a second, for background processes, whose logs keep only the newest megabytes
	// outputBurst is how much is read between two pauses: short pauses would wake the reader as often as the program does.
	outputBurst = 1 << 20
	// maxPause bounds a pause, also if the clock has been set back because the sandbox was restored.
	maxPause = time.Second
)

// pace bounds the rate of output of a sandbox's processes.
type pace struct {
	free  int64
	rate  int // bytes a second
	sleep func(time.Duration)

	mu   sync.Mutex
	paid time.Time // when the output that was read so far is due at this rate
}

func newPace(rate int) *pace { return &pace{free: freeOutput, rate: rate, sleep: time.Sleep} }

// of returns a sink for one process. The sink passes output to out, and then makes its reader pause if the process is
// too fast.
func (p *pace) of(out sink) sink {
	var read atomic.Int64
	return func(t wire.Type, data []byte) {
		out(t, data)
		if read.Add(int64(len(data))) <= p.free {
			return
		}
		if wait := p.take(len(data), time.Now()); wait > 0 {
			p.sleep(wait)
		}
	}
}

// take counts n bytes, and returns how long the reader must pause.
func (p *pace) take(n int, now time.Time) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.paid.Before(now) {
		p.paid = now
	}
	p.paid = p.paid.Add(p.duration(n))
	wait := p.paid.Sub(now)
	if wait > maxPause {
		wait, p.paid = maxPause, now.Add(maxPause)
	}
	if wait < p.duration(outputBurst) {
		return 0
	}
	return wait
}

// duration returns how long n bytes take.
func (p *pace) duration(n int) time.Duration {
	return time.Duration(n) * time.Second / time.Duration(p.rate)
}
