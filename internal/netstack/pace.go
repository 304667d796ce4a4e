package netstack

import (
	"context"
	"runtime"
	"sync/atomic"

	"golang.org/x/time/rate"
)

// What a packet costs the daemon, in the work that one segment of TCP is. A flow
// has a goroutine, buffers and a line in a log; each datagram may be a question
// for a name.
const (
	costPacket   = 1
	costDatagram = 3
	costFlow     = 12
)

// together is the pace of all sandboxes: half of what a machine's cores are good
// for, so that its other half is for everything else.
var together = newPace(float64(runtime.NumCPU()) * 40_000)

// pace holds one sandbox to its share of the daemon's work. A packet that has to
// wait stays in the sandbox's own queue, before anything was done for it: when
// that is full, the sandbox's kernel makes its programs wait or drops, which is
// charged to the sandbox.
//
// Work is bought in portions, so that a flood wakes its reader a hundred times in
// a second and not with each packet.
type pace struct {
	own     *rate.Limiter
	credit  atomic.Int64
	portion int
}

func newPace(perSecond float64) *rate.Limiter {
	return rate.NewLimiter(rate.Limit(perSecond), max(int(perSecond/10), costFlow+1))
}

// paceOf is for a sandbox with so many packets in a second and so many cores; 0
// cores are no limit.
func paceOf(packets int, cores float64) *pace {
	perSecond := float64(packets)
	if cores > 0 && cores < 1 {
		perSecond = max(perSecond*cores, leastPackets)
	}
	return &pace{own: newPace(perSecond), portion: max(int(perSecond/100), 1)}
}

// leastPackets is what the smallest sandbox has in a second: with full packets
// that is a gigabit.
const leastPackets = 2000

// wait returns when there is credit for a packet, or ctx is done.
func (p *pace) wait(ctx context.Context) error {
	for p.credit.Load() <= 0 {
		if err := p.own.WaitN(ctx, p.portion); err != nil {
			return err
		}
		if err := together.WaitN(ctx, p.portion); err != nil {
			return err
		}
		p.credit.Add(int64(p.portion))
	}
	return nil
}

// charge takes credit for work that is done: what is too much is waited for
// before the next packet.
func (p *pace) charge(cost int) { p.credit.Add(-int64(cost)) }
