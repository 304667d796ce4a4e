package gvisor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"hutch/internal/driver"
	"hutch/internal/driver/gvisor/contract"
	"hutch/internal/linux/cgroup"
)

var _ driver.Guarded = (*instance)(nil)

// The memory of an instance, in the order of size:
//
//   - its limit, which is for the programs inside;
//   - the soft limit, which adds what the sentry and the gofer take for
//     themselves: above it, programs are ended;
//   - the hard limit, which adds a reserve, so that the sandbox lives on until
//     they are. Near it the daemon raises it, by no more than two further
//     reserves; at the last one the kernel holds the sandbox back.
const overhead = 64 << 20

func softLimit(limit int64) int64 { return limit + overhead }
func reserve(limit int64) int64   { return 128<<20 + limit/8 }
func hardLimit(limit int64) int64 { return softLimit(limit) + reserve(limit) }

const (
	// headroom is how far below the hard limit an instance should stay while programs in it are ended.
	headroom = 64 << 20
	// tolerance is how much an instance that cannot be made smaller can grow beyond its resting use before programs are
	// ended again.
	tolerance = 16 << 20
	// easeTime is how long an instance can be over its soft limit without getting smaller before it is given up.
	easeTime = 20 * time.Second
	// settleTime is how long the memory of an ended program can take to be released. retryTime is the pause after an
	// agent could not end a program.
	settleTime = 3 * time.Second
	retryTime  = 100 * time.Millisecond
	// collectTime is how long an instance that does not grow can be over its limit, so that its sentry can collect
	// garbage before a program is ended.
	collectTime  = time.Second
	collectEvery = 400 * time.Millisecond
	// restTime is how long an instance must not grow to count as resting.
	restTime = 300 * time.Millisecond
)

// errNoMemory ends the guard of an instance that was over its limit for too long.
var errNoMemory = errors.New("it used more memory than its limit, and ending programs did not help")

// guard does the work of GuardMemory. Only one goroutine uses it, except in calls of relieve.
type guard struct {
	*instance
	watch   *cgroup.MemoryWatch // nil without control groups
	relieve func(ctx context.Context, used int64, urgent bool) (bool, error)
	limit   int64 // the soft limit, plus the present tolerance
	extra   int64 // how much the hard limit is raised now

	pending   chan error // receives the result of a call of relieve; nil when no call runs
	tried     bool       // relieve was called since the instance was below its limit
	settled   time.Time  // until then memory can be freed without further action,
	level     int64      // unless use is above this
	trend     trend
	collected time.Time // when the sentry was last asked to collect garbage
	file      string    // see memoryFile
}

// GuardMemory implements driver.Guarded.
func (i *instance) GuardMemory(ctx context.Context, relieve func(ctx context.Context, used int64, urgent bool) (bool, error)) error {
	if i.procs.Memory == 0 {
		return nil
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-i.done:
			cancel()
		case <-ctx.Done():
		}
	}()
	g := &guard{instance: i, relieve: relieve, limit: softLimit(i.procs.Memory)}
	if i.group != nil {
		watch, err := i.group.WatchMemory(g.limit)
		if err != nil {
			return ignoreEnd(ctx, err)
		}
		defer watch.Close()
		g.watch = watch
	}
	for ctx.Err() == nil {
		m, err := g.read()
		if err != nil {
			return ignoreEnd(ctx, err)
		}
		g.forgive(m)
		if !m.Held && m.Used <= g.limit {
			g.wait(ctx, m)
			continue
		}
		if err := g.ease(ctx); err != nil {
			return ignoreEnd(ctx, err)
		}
	}
	return nil
}

// ignoreEnd drops the errors of an instance that has ended.
func ignoreEnd(ctx context.Context, err error) error {
	if ctx.Err() != nil || errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ENODEV) {
		return nil
	}
	return err
}

// read looks at the memory of the instance.
func (g *guard) read() (cgroup.MemoryReading, error) {
	if g.watch != nil {
		return g.watch.Read()
	}
	used := g.memoryFile() + g.procs.Sentry.anonymous() + g.procs.Gofer.anonymous()
	return cgroup.MemoryReading{Charged: used, Used: used}, nil
}

// memoryFile returns the size of the file that holds the memory inside. It uses a descriptor of the sentry whose number
// never changes.
func (g *guard) memoryFile() int64 {
	if g.file == "" {
		fds, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", g.procs.Sentry.PID))
		for _, fd := range fds {
			if name, _ := os.Readlink(fd); isMemoryFile(name) {
				g.file = fd
			}
		}
	}
	var st unix.Stat_t
	if name, _ := os.Readlink(g.file); !isMemoryFile(name) || unix.Stat(g.file, &st) != nil {
		g.file = ""
		return 0
	}
	return st.Blocks * 512
}

// forgive ends a tolerance that the instance no longer needs.
func (g *guard) forgive(m cgroup.MemoryReading) {
	if soft := softLimit(g.procs.Memory); m.Used < soft {
		g.limit = soft
	}
}

// The fastest expected growth of an instance, in bytes a second. If the kernel reports the soft limit, this is only
// needed above it, where cached files hide the growth.
const fastest = 2 << 30

// wait waits until the instance could be over its limit.
func (g *guard) wait(ctx context.Context, m cgroup.MemoryReading) {
	if g.watch != nil && g.watch.Events() && m.Charged < softLimit(g.procs.Memory) {
		g.watch.Wait(ctx, time.Minute)
		return
	}
	d := time.Duration(float64(g.limit-m.Used) / fastest * float64(time.Second))
	d = min(max(d, 10*time.Millisecond), 500*time.Millisecond)
	if g.watch != nil {
		g.watch.Wait(ctx, d)
		return
	}
	pause(ctx, d)
}

// ease ends programs until the instance is below its limit again, or rests below the hard limit: memory that belongs to
// no program cannot be freed.
func (g *guard) ease(ctx context.Context) error {
	m, err := g.read()
	if err != nil {
		return err
	}
	defer g.lower()
	g.begin(m)
	for ctx.Err() == nil {
		if m, err = g.read(); err != nil {
			return err
		}
		g.trend.note(m.Used)
		g.answered(m.Used)
		g.collect(m)
		switch {
		case !m.Held && m.Used <= g.limit:
			return nil
		case !g.keepAhead(m), g.trend.stuck():
			return errNoMemory
		case g.pending != nil || time.Now().Before(g.settled) && !m.Held && m.Used < g.level:
		case g.tried && !m.Held && g.trend.resting() && m.Used < hardLimit(g.procs.Memory)-tolerance:
			g.limit = m.Used + tolerance
			return nil
		default:
			g.ask(ctx, m.Used)
		}
		pause(ctx, 3*time.Millisecond)
	}
	return nil
}

// begin prepares an easing. If there is time, the sentry first collects its garbage, which can be enough.
func (g *guard) begin(m cgroup.MemoryReading) {
	g.trend, g.tried, g.settled = trend{}, false, time.Time{}
	hard := hardLimit(g.procs.Memory)
	if g.watch != nil {
		g.watch.SetSoft(hard - tolerance) // otherwise the agent that ends programs would be slowed down
	}
	if m.Used < hard-reserve(g.procs.Memory)*3/4 {
		g.settled, g.level = time.Now().Add(collectTime), m.Used+tolerance
	}
}

// collect makes the sentry collect garbage, at intervals while there is time. The content of an ended program's pipes
// and sockets is such garbage.
func (g *guard) collect(m cgroup.MemoryReading) {
	if m.Held || time.Since(g.collected) < collectEvery {
		return
	}
	g.collected = time.Now()
	g.sentry.Signal(contract.Collect)
}

// ask begins a call of relieve.
func (g *guard) ask(ctx context.Context, used int64) {
	done := make(chan error, 1)
	g.pending = done
	go func() {
		_, err := g.relieve(ctx, used, used > hardLimit(g.procs.Memory)-headroom)
		done <- err
	}()
}

// answered reads the result of a call of relieve, if there is one.
func (g *guard) answered(used int64) {
	select {
	case err := <-g.pending:
		g.pending, g.settled, g.level = nil, time.Now().Add(retryTime), used+tolerance
		if err == nil {
			g.tried, g.settled, g.collected = true, time.Now().Add(settleTime), time.Time{}
		}
	default:
	}
}

// keepAhead raises the hard limit before the instance reaches it: when the kernel throttles a sandbox, its sentry's
// system calls fail and it can hardly end programs. It returns false when the instance is throttled and the limit cannot
// be raised further.
func (g *guard) keepAhead(m cgroup.MemoryReading) bool {
	most := 2 * reserve(g.procs.Memory)
	if g.watch == nil || !m.Held && m.Charged < hardLimit(g.procs.Memory)+g.extra-headroom {
		return true
	}
	if g.extra >= most {
		return !m.Held
	}
	g.extra = min(g.extra+headroom, most)
	return g.group.SetMemory(hardLimit(g.procs.Memory)+g.extra) == nil
}

// lower resets the limits.
func (g *guard) lower() {
	if g.watch != nil {
		g.watch.SetSoft(g.limit)
	}
	if g.extra > 0 && g.group.SetMemory(hardLimit(g.procs.Memory)) == nil {
		g.extra = 0
	}
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// trend tracks the use of memory.
type trend struct {
	top, low   int64
	rose, sank time.Time // when use was last above top, and below low
}

func (t *trend) note(used int64) {
	now := time.Now()
	if t.rose.IsZero() {
		*t = trend{top: used, low: used, rose: now, sank: now}
		return
	}
	if used > t.top+tolerance/2 {
		t.top, t.rose = used, now
	}
	if used < t.low-tolerance/2 {
		t.low, t.sank = used, now
	}
	t.top = min(t.top, used+tolerance/2)
}

// resting reports whether use has not grown for a while.
func (t *trend) resting() bool { return time.Since(t.rose) > restTime }

// stuck reports whether use has not become less for a long time.
func (t *trend) stuck() bool { return time.Since(t.sank) > easeTime }

// SaveFiles implements driver.Guarded. The sandbox can be at its limit: stopped programs need no more memory, and
// writing the files needs only a little.
func (i *instance) SaveFiles(ctx context.Context, dir string) error {
	if i.group != nil && i.procs.Memory > 0 { // else the kernel enforces the limit of an earlier version
		if err := i.group.SetMemory(hardLimit(i.procs.Memory) + 2*reserve(i.procs.Memory)); err != nil {
			return err
		}
	}
	if err := i.control().call(ctx, contract.Pause, nil, nil); err != nil {
		return err
	}
	if err := i.copyFiles(ctx, dir); err != nil {
		return err
	}
	return syncAll(dir)
}
