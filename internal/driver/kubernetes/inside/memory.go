package inside

import (
	"bytes"
	"encoding/binary"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"hutch/internal/driver/memguard"
)

// The daemon has programs ended when an instance is over its memory limit, but only the pod can see its memory soon
// enough. So the first process looks, and says what it sees while that matters: when the memory comes to be over the
// limit, whenever it changes there, and when it is below again.

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
	groups string // where control groups are
	proc   string // where the kernel's files are
	buffer [4096]byte
}

// used reads it from the control group of the container, or, in gVisor, from its kernel.
func (m *meter) used() int64 {
	for _, g := range []struct{ stat, charged, cached string }{
		{"memory.stat", "memory.current", ""},
		{"memory/memory.stat", "memory/memory.usage_in_bytes", "total_"},
	} {
		stat := m.read(filepath.Join(m.groups, g.stat))
		if len(stat) == 0 {
			continue
		}
		cached := value(stat, g.cached+"active_file ") + value(stat, g.cached+"inactive_file ")
		charged, _ := strconv.ParseInt(string(bytes.TrimSpace(m.read(filepath.Join(m.groups, g.charged)))), 10, 64)
		return max(charged-cached, 0)
	}
	return value(m.read(filepath.Join(m.proc, "meminfo")), "Active(anon):")<<10 + sentryOwn
}

// read reads the beginning of a file; nothing if that is impossible.
func (m *meter) read(name string) []byte {
	f, err := os.Open(name)
	if err != nil {
		return nil
	}
	defer f.Close()
	n, _ := f.Read(m.buffer[:])
	return m.buffer[:n]
}

// value reads the number in the line that begins with a key.
func value(text []byte, key string) int64 {
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, key); ok {
			if fields := strings.Fields(rest); len(fields) > 0 {
				n, _ := strconv.ParseInt(fields[0], 10, 64)
				return n
			}
		}
	}
	return 0
}
