package netstack

import (
	"context"
	"runtime"
	"sync/atomic"

	"golang.org/x/time/rate"
)

// The cost of a packet to the daemon, in units of one TCP segment. A flow has a goroutine, buffers and a log line;
// each datagram can be a DNS query.
const (
	costPacket   = 1
	costDatagram = 3
	costFlow     = 12
)

// together paces all sandboxes: they get half of the machine's CPU, and the other half is left for everything else.
var together = newPace(float64(runtime.NumCPU()) * 40_000)

// pace holds one sandbox to its share of the daemon's work. A packet that has to wait
// stays in the sandbox's own queue, before any work for it. When that queue is full,
// the sandbox's kernel blocks its programs or drops packets, and the sandbox pays
// for that.
//
// Work is bought in portions, so that a flood wakes its reader a hundred times in a
// second and not with each packet.
type pace struct {
	own     *rate.Limiter
	credit  atomic.Int64
	portion int
}

func newPace(perSecond float64) *rate.Limiter {
	return rate.NewLimiter(rate.Limit(perSecond), max(int(perSecond/10), costFlow+1))
}

// paceOf returns the pace of a sandbox that can send a number of packets in a second and has a number of cores; 0
// cores mean no limit.
func paceOf(packets int, cores float64) *pace {
	perSecond := float64(packets)
	if cores > 0 && cores < 1 {
		perSecond = max(perSecond*cores, leastPackets)
	}
	return &pace{own: newPace(perSecond), portion: max(int(perSecond/100), 1)}
}

// leastPackets is how many packets in a second the smallest sandbox can send: with packets of full size, one gigabit.
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

// charge pays for finished work; if the credit becomes negative, the next packet waits.
func (p *pace) charge(cost int) { p.credit.Add(-int64(cost)) }
