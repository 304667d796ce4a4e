package rest

import (
	"context"
	"fmt"
	"time"
)

const (
	// interrupts are the keys that make a terminal drop output that it has not shown: Ctrl-C, Ctrl-\ and Ctrl-Z. When
	// the kernel turns one of them into a signal, it also drops the output that it holds.
	interrupts = "\x03\x1c\x1a"

	// mostReplayed is the most bytes of old output that a client with catchUp gets when it connects: more than a
	// screen's history.
	mostReplayed = 1 << 20
	// A slow client with catchUp is checked at growing intervals. If it is further behind than mostBehind, it continues
	// keptBehind before the newest output. After an interrupt, the first checks are early and strict, because the
	// person who typed it waits for the prompt.
	mostBehind, keptBehind                 = 1 << 20, 256 << 10
	mostAfterInterrupt, keptAfterInterrupt = 32 << 10, 8 << 10
	firstCheck, longestCheck               = 2 * time.Second, 30 * time.Second
	firstAfterInterrupt, interruptWindow   = 100 * time.Millisecond, time.Second
)

// pace holds back the output of a viewer until its client has consumed the output sent before.
//
// Output can wait in many places: in the agent, on its connection, in the sockets of both ends, in the page. All of it
// would be shown before the prompt that follows a Ctrl-C. A window of unacknowledged bytes limits what waits between
// this server and the screen. With catchUp, the client does not want old output at all: the viewer drops its connection
// to the agent, with all the output that waits there, and continues near the newest output.
type pace struct {
	window  int  // most bytes sent but not consumed yet; 0 for no limit
	catchUp bool // skip output if the client is too slow

	taken       chan int64 // the newest count of consumed bytes
	interrupted chan time.Time

	sent, known int64 // bytes sent, and bytes known to be consumed
	interval    time.Duration
	check       time.Time // when the client is checked next
}

// skipped is the error that ends a read of the log, so that the next read begins at the later position to.
type skipped struct{ to int64 }

func (s skipped) Error() string { return fmt.Sprintf("output up to %d is skipped", s.to) }

// take records how many bytes the client has consumed in total.
func (p *pace) take(total int64) {
	select {
	case <-p.taken: // only the newest count matters
	default:
	}
	p.taken <- total
}

// interrupt makes the next check of the client come early.
func (p *pace) interrupt() {
	select {
	case p.interrupted <- time.Now():
	default:
	}
}

// room returns how many of n bytes can be sent now. If there are none, it first waits until the client has consumed
// more. If the client is too far behind, it returns skipped, so that the read continues at a later position.
func (v *viewer) room(ctx context.Context, n int) (int, error) {
	p := &v.pace
	if p.window == 0 {
		return n, nil
	}
	for {
		select {
		case p.known = <-p.taken:
		default:
		}
		if free := int64(p.window) - (p.sent - p.known); free > 0 {
			return int(min(int64(n), free)), nil
		}
		if err := v.heldBack(ctx); err != nil {
			return 0, err
		}
	}
}

// heldBack waits for an acknowledgement, and meanwhile checks how far behind the client is.
func (v *viewer) heldBack(ctx context.Context) error {
	p, now := &v.pace, time.Now()
	if p.interval == 0 || now.Sub(p.check) > max(p.interval, firstCheck) { // the client kept up for a while
		p.interval, p.check = firstCheck, now.Add(firstCheck)
	}
	var due <-chan time.Time
	if p.catchUp {
		timer := time.NewTimer(p.check.Sub(now))
		defer timer.Stop()
		due = timer.C
	}
	select {
	case p.known = <-p.taken:
	case at := <-p.interrupted:
		if now.Sub(at) < interruptWindow { // an older interrupt is not about the output that waits now
			p.interval, p.check = firstAfterInterrupt, now.Add(firstAfterInterrupt)
		}
	case <-due:
		return v.catchUp(ctx)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	return nil
}

// catchUp returns skipped if the client is too far behind.
func (v *viewer) catchUp(ctx context.Context) error {
	p := &v.pace
	most, kept := int64(mostBehind), int64(keptBehind)
	if p.interval < interruptWindow {
		most, kept = mostAfterInterrupt, keptAfterInterrupt
	}
	newest, err := v.newest(ctx)
	if err != nil {
		return err
	}
	p.interval = min(2*p.interval, longestCheck)
	p.check = time.Now().Add(p.interval)
	if newest-v.req.Cursor <= most {
		return nil
	}
	return skipped{newest - kept}
}
