// Package memguard enforces the memory limit of an instance from outside: it makes the agent end programs inside before
// the kernel would end the whole instance. It decides when to do so. A runtime reads the memory of its instances, by
// implementing [Memory].
package memguard

import (
	"context"
	"errors"
	"time"

	"hutch/internal/delay"
	"hutch/internal/linux/cgroup"
)

// Limits are the memory limits of an instance, in bytes. They are above the limit of the user, which is for the
// programs inside.
type Limits struct {
	Soft int64 `json:"soft"` // the user's limit and the overhead of the instance: above Soft, programs are ended
	Hard int64 `json:"hard"` // Soft and a reserve, so that the instance survives until programs have ended
}

// overhead is the memory that an instance itself can use, in addition to its programs.
const overhead = 64 << 20

// LimitsOf returns the limits for a limit of the user.
func LimitsOf(limit int64) Limits {
	soft := limit + overhead
	return Limits{Soft: soft, Hard: soft + 128<<20 + limit/8}
}

// Reserve returns the difference between Hard and Soft.
func (l Limits) Reserve() int64 { return l.Hard - l.Soft }

// Last returns the limit that the kernel enforces. It is two reserves above Hard, because programs can grow by that
// much while they are being ended.
func (l Limits) Last() int64 { return l.Hard + 2*l.Reserve() }

const (
	// Headroom is how far below the hard limit an instance should stay while programs in it are ended.
	Headroom = 64 << 20
	// Tolerance is how much an instance that cannot be made smaller can grow beyond its present usage before programs
	// are ended again.
	Tolerance = 16 << 20
	// easeTime is how long an instance can be over its soft limit without getting smaller. After that, the guard gives
	// it up.
	easeTime = 20 * time.Second
	// settleTime is how long the memory of an ended program can take to be released. retryTime is the pause after an
	// agent has failed to end a program.
	settleTime = 3 * time.Second
	retryTime  = 100 * time.Millisecond
	// collectTime is how long the guard lets an instance that does not grow stay over its limit, so that garbage can be
	// collected before a program is ended.
	collectTime  = time.Second
	collectEvery = 400 * time.Millisecond
	// restTime is how long an instance must not grow to count as no longer growing.
	restTime = 300 * time.Millisecond
)

// Memory is the memory of an instance. Only one goroutine uses it.
type Memory interface {
	// Read returns the present usage. An error ends the guard.
	Read() (cgroup.MemoryReading, error)
	// Wait waits until the usage could be above limit. last is the previous reading.
	Wait(ctx context.Context, last cgroup.MemoryReading, limit int64)
	// Begin prepares for ending programs.
	Begin()
	// Collect makes the instance free its garbage. It returns false if the instance has no garbage collection.
	Collect() bool
	// Raise keeps the kernel's own limit above the usage, because an instance that the kernel slows down can hardly end
	// programs. It returns false if the instance is slowed down and the limit cannot be raised further.
	Raise(last cgroup.MemoryReading) bool
	// End undoes Begin and Raise. After it, programs are ended when the usage is above limit.
	End(limit int64)
}

// Relieve ends the programs that use the most memory, as in driver.Guarded.
type Relieve func(ctx context.Context, used int64, urgent bool) (ended bool, err error)

// errNoMemory is the error of an instance that was over its limit for too long.
var errNoMemory = errors.New("it used more memory than its limit, and ending programs did not help")

// guard is the state of Run. Only one goroutine uses it, except in calls of relieve.
type guard struct {
	memory  Memory
	limits  Limits
	relieve Relieve
	limit   int64 // the soft limit, plus the present tolerance

	pending   chan error // receives the result of a call of relieve; nil when no call runs
	tried     bool       // relieve was called since the usage went above the limit
	settled   time.Time  // before this time, the guard waits for memory to be freed,
	level     int64      // unless the usage is above this
	trend     trend
	collected time.Time // when the instance was last asked to collect garbage
	noGarbage bool      // the instance cannot collect garbage
}

// Run keeps an instance below its limits until ctx is done. The error is an error of Read, or errNoMemory.
func Run(ctx context.Context, m Memory, limits Limits, relieve Relieve) error {
	g := &guard{memory: m, limits: limits, relieve: relieve, limit: limits.Soft}
	for ctx.Err() == nil {
		last, err := m.Read()
		if err != nil {
			return err
		}
		if last.Used < limits.Soft { // the instance no longer needs a tolerance
			g.limit = limits.Soft
		}
		if !last.Held && last.Used <= g.limit {
			m.Wait(ctx, last, g.limit)
			continue
		}
		if err := g.freeMemory(ctx); err != nil {
			return err
		}
	}
	return nil
}

// freeMemory ends programs until the usage is below the limit again, or no longer grows and is below the hard limit. In
// the second case, the rest belongs to no program, so it cannot be freed.
func (g *guard) freeMemory(ctx context.Context) error {
	m, err := g.memory.Read()
	if err != nil {
		return err
	}
	g.memory.Begin()
	defer func() { g.memory.End(g.limit) }()
	g.begin(m)
	for ctx.Err() == nil {
		if m, err = g.memory.Read(); err != nil {
			return err
		}
		g.trend.note(m.Used)
		g.answered(m.Used)
		g.collect(m)
		switch {
		case !m.Held && m.Used <= g.limit:
			return nil
		case !g.memory.Raise(m), g.trend.stoppedShrinking():
			return errNoMemory
		case g.pending != nil || time.Now().Before(g.settled) && !m.Held && m.Used < g.level:
		case g.tried && !m.Held && g.trend.stoppedGrowing() && m.Used < g.limits.Hard-Tolerance:
			g.limit = m.Used + Tolerance
			return nil
		default:
			g.ask(ctx, m.Used)
		}
		delay.Wait(ctx, 3*time.Millisecond)
	}
	return nil
}

// begin resets what freeMemory has observed. If time permits, it first makes the instance collect its garbage, which
// can free enough memory.
func (g *guard) begin(m cgroup.MemoryReading) {
	g.trend, g.tried, g.settled = trend{}, false, time.Time{}
	g.collect(m)
	if m.Used < g.limits.Hard-g.limits.Reserve()*3/4 && !g.noGarbage {
		g.settled, g.level = time.Now().Add(collectTime), m.Used+Tolerance
	}
}

// collect makes the instance collect garbage, at intervals, if time permits. The content of an ended program's pipes
// and sockets can be such garbage.
func (g *guard) collect(m cgroup.MemoryReading) {
	if g.noGarbage || m.Held || time.Since(g.collected) < collectEvery {
		return
	}
	g.collected = time.Now()
	g.noGarbage = !g.memory.Collect()
}

// ask begins a call of relieve.
func (g *guard) ask(ctx context.Context, used int64) {
	done := make(chan error, 1)
	g.pending = done
	go func() {
		_, err := g.relieve(ctx, used, used > g.limits.Hard-Headroom)
		done <- err
	}()
}

// answered reads the result of a call of relieve, if the call has ended.
func (g *guard) answered(used int64) {
	select {
	case err := <-g.pending:
		g.pending, g.settled, g.level = nil, time.Now().Add(retryTime), used+Tolerance
		if err == nil {
			g.tried, g.settled, g.collected = true, time.Now().Add(settleTime), time.Time{}
		}
	default:
	}
}

// fastest is the fastest expected growth of an instance, in bytes per second.
const fastest = 2 << 30

// Until returns how long an instance is certain to stay below its limit, with a minimum and a maximum.
func Until(used, limit int64) time.Duration {
	d := time.Duration(float64(limit-used) / fastest * float64(time.Second))
	return min(max(d, 10*time.Millisecond), 500*time.Millisecond)
}

// trend tracks the memory usage.
type trend struct {
	top, low           int64
	lastRise, lastFall time.Time // when the usage was last above top, and below low
}

func (t *trend) note(used int64) {
	now := time.Now()
	if t.lastRise.IsZero() {
		*t = trend{top: used, low: used, lastRise: now, lastFall: now}
		return
	}
	if used > t.top+Tolerance/2 {
		t.top, t.lastRise = used, now
	}
	if used < t.low-Tolerance/2 {
		t.low, t.lastFall = used, now
	}
	t.top = min(t.top, used+Tolerance/2)
}

// stoppedGrowing reports whether the usage has not grown for a while.
func (t *trend) stoppedGrowing() bool { return time.Since(t.lastRise) > restTime }

// stoppedShrinking reports whether the usage has not become less for a long time.
func (t *trend) stoppedShrinking() bool { return time.Since(t.lastFall) > easeTime }
