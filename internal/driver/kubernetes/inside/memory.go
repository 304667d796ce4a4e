package inside

import (
	"encoding/binary"
	"net"
	"time"

	"hutch/internal/driver/memguard"
)

// The daemon decides when programs are ended for the memory limit, but only the pod can see its memory soon enough. So the
// first process reads the memory, and reports it: at first, when it crosses the limit, and when it changes above the limit.

// sentryOwn is about what gVisor's kernel takes for itself, which its own figures leave out.
const sentryOwn = 32 << 20

// step is the least change over the limit that is reported.
const step = 1 << 20

// Above the limit, the memory is looked at after leastRest, and after up to mostRest while it does not change.
const (
	leastRest = 5 * time.Millisecond
	mostRest  = 100 * time.Millisecond
)

// report reports what used returns to a stream, each time as eight bytes, until the stream ends.
func report(conn net.Conn, limits memguard.Limits, used func() int64) {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		conn.Read(make([]byte, 1)) // nothing comes
	}()
	said := int64(-1)
	for rest := leastRest; ; {
		now := used()
		over := now > limits.Soft
		changed := over && max(now-said, said-now) >= step
		if said < 0 || over != (said > limits.Soft) || changed {
			if _, err := conn.Write(binary.BigEndian.AppendUint64(nil, uint64(now))); err != nil {
				return
			}
			said = now
		}
		switch {
		case !over:
			rest = memguard.Until(now, limits.Hard) // two reserves are left there
		case changed:
			rest = leastRest
		default:
			rest = min(2*rest, mostRest)
		}
		select {
		case <-time.After(rest):
		case <-ended:
			return
		}
	}
}

// meter reads the memory in use that cannot be reclaimed.
type meter struct {
	groups folder // of control groups
	proc   folder
}

// used reads it from the control group of the container, or, in gVisor, from its kernel.
func (m meter) used() int64 {
	for _, g := range []struct{ stat, charged, cached string }{
		{"memory.stat", "memory.current", ""},
		{"memory/memory.stat", "memory/memory.usage_in_bytes", "total_"},
	} {
		if stat := m.groups.read(g.stat); stat != "" {
			return max(m.groups.number(g.charged)-field(stat, g.cached+"active_file")-field(stat, g.cached+"inactive_file"), 0)
		}
	}
	return field(m.proc.read("meminfo"), "Active(anon):")<<10 + sentryOwn
}
