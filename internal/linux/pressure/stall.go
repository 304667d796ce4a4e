package pressure

import (
	"os"
	"strconv"
	"time"

	"hutch/internal/linux/cgroup"
)

const (
	stall    = 0.3             // share of the time in which all programs waited for memory
	patience = 3 * time.Second // how long a stall lasts before it counts
)

// Stall recognizes that programs make no progress for lack of memory while the kernel kills none of them. The kernel
// kills none as long as it can drop parts of running programs, however often it must read them from disk again. Use one
// Stall for each machine.
type Stall struct {
	at     time.Time
	waited time.Duration // waiting time so far, as the kernel counts it
	kills  int
	since  time.Time // when a program last made progress, or a stall was reported
}

// Stalls checks once, and reports whether programs have made no progress for a while. It then waits as long again
// before it reports another stall. Call it about every second. It always returns false if the kernel does not count
// waiting times.
func (s *Stall) Stalls() bool {
	all, free := room()
	waited, ok := waitedByAll()
	return ok && s.look(time.Now(), waited, free*share < all, Kills())
}

func (s *Stall) look(now time.Time, waited time.Duration, short bool, kills int) bool {
	works := s.at.IsZero() || float64(waited-s.waited) < stall*float64(now.Sub(s.at))
	if works || !short || kills > s.kills {
		s.since = now
	}
	s.at, s.waited, s.kills = now, waited, kills
	if now.Sub(s.since) < patience {
		return false
	}
	s.since = now
	return true
}

// waitedByAll returns how long all programs at once have waited for memory so far. It counts the programs of this
// process's control group or, if the kernel does not count that for groups, those of the machine.
func waitedByAll() (time.Duration, bool) {
	if psi, err := cgroup.Pressure(); err == nil {
		return total(psi)
	}
	psi, _ := os.ReadFile("/proc/pressure/memory")
	return total(string(psi))
}

// total returns the value total of the line "full".
func total(psi string) (time.Duration, bool) {
	microseconds, err := strconv.ParseInt(stallValue(psi, "full", "total"), 10, 64)
	return time.Duration(microseconds) * time.Microsecond, err == nil
}
