package inside

import (
	"encoding/binary"
	"net"
	"time"

	"hutch/internal/driver/memguard"
)

// The daemon decides when programs are ended for the memory limit, but only the pod can see its memory soon enough. So
// the first process reads the memory. It reports the memory once at first, when it crosses the limit, and when it
// changes above the limit.

// sentryOwn is about what gVisor's kernel uses for itself. gVisor's figures do not include it.
const sentryOwn = 32 << 20

// step is the smallest change above the limit that is reported.
const step = 1 << 20

// Above the limit, the memory is read again after leastRest. While the memory does not change, the pause grows up to
// mostRest.
const (
	leastRest = 5 * time.Millisecond
	mostRest  = 100 * time.Millisecond
)

// report writes the results of used to a stream, each as eight bytes, until the stream ends.
func report(conn net.Conn, limits memguard.Limits, used func() int64) {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		conn.Read(make([]byte, 1)) // returns at the end of the stream
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
			rest = memguard.Until(now, limits.Hard) // at that limit, two reserves are left
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

// meter measures the memory in use that cannot be reclaimed.
type meter struct {
	groups folder // of control groups
	proc   folder
}

// memoryMeter reads the memory of the container. The first process sees the container's own files; only programs see
// the files that showLimit writes.
var memoryMeter = meter{groups: groups, proc: "/proc"}

// used reads how much memory is in use, from the control group of the container or, in gVisor, from gVisor's kernel.
func (m meter) used() int64 {
	for _, names := range []memoryFiles{memory2, memory1} {
		if m.groups.read(names.stat) != "" {
			return m.groups.memoryInUse(names)
		}
	}
	return field(m.proc.read("meminfo"), "Active(anon):")<<10 + sentryOwn
}
