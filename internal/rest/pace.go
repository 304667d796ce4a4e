package rest

import (
	"context"
	"fmt"
	"time"
)

const (
	// interrupts are the keys at which a terminal drops output that it has not shown: Ctrl-C, Ctrl-\ and Ctrl-Z. The
	// kernel does the same with the output that it holds when it turns one of them into a signal.
	interrupts = "\x03\x1c\x1a"

	// mostReplayed is the most bytes of old output that a client gets when it connects and catches up: more than a
	// screen's history.
	mostReplayed = 1 << 20
	// A client that catches up is checked at growing intervals while it holds output back. A client that is further
	// behind than mostBehind continues keptBehind before the newest output; after an interrupt, the first checks are
	// early and strict, because the person who typed it waits for the prompt.
	mostBehind, keptBehind                 = 1 << 20, 256 << 10
	mostAfterInterrupt, keptAfterInterrupt = 32 << 10, 8 << 10
	firstCheck, longestCheck               = 2 * time.Second, 30 * time.Second
	firstAfterInterrupt, interruptWindow   = 100 * time.Millisecond, time.Second
)

// pace holds the output of a viewer back until its client has consumed what was sent.
//
// Output can wait in many places: in the agent, on its connection, in the sockets of both ends, in the page. All of it
// would be shown before the prompt that follows a Ctrl-C. A window of unacknowledged bytes limits what waits between
// this server and the screen. A client that catches up does not want other old output either: the viewer drops its
// connection to the agent, with everything that waits there, and continues near the newest output.
type pace struct {
	window  int  // bytes that can be sent before the client consumes them; 0 for no bound
	catchUp bool // skip output that the client is too slow for

	taken       chan int64 // the newest count of consumed bytes
	interrupted chan time.Time

	sent, known int64 // bytes sent, and bytes known to be consumed
	interval    time.Duration
	check       time.Time // when the client is checked next
}

// skipped ends a read of the log: the next one begins at a later position.
type skipped struct{ to int64 }

func (s skipped) Error() string { return fmt.Sprintf("output up to %d is skipped", s.to) }

// take records how many bytes the client has taken in total.
func (p *pace) take(total int64) {
	select {
	case <-p.taken: // only the newest count matters
	default:
	}
	p.taken <- total
}

// interrupt brings the next check of the client forward.
func (p *pace) interrupt() {
	select {
	case p.interrupted <- time.Now():
	default:
	}
}

// room waits until the client consumes more, and returns how many of n bytes can be sent now. It returns skipped when
// the client is so far behind that the read should start elsewhere.
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
	if p.interval == 0 || now.Sub(p.check) > max(p.interval, firstCheck) { // it kept up for a while
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
		if now.Sub(at) < interruptWindow { // an older interrupt was typed at a quiet prompt, and is not about the output that waits now
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
