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
	"hutch/internal/linux/cgroup"
)

var _ driver.Guarded = (*instance)(nil)

// The memory of a place, in the order of size:
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
	// headroom is how much less than the hard limit a place should use while
	// programs in it are ended.
	headroom = 64 << 20
	// tolerance is how much more than at rest a place that cannot be made smaller
	// may use until programs in it are ended again.
	tolerance = 16 << 20
	// easeTime is how long a place may use more than its soft limit without
	// getting smaller until it is given up.
	easeTime = 20 * time.Second
	// settleTime is how long memory may take to come back from a program that
	// has ended, retryTime how long an agent that could not end one is left alone.
	settleTime = 3 * time.Second
	retryTime  = 100 * time.Millisecond
	// collectTime is how long a place that does not grow may use too much, so
	// that its sentry can collect garbage before a program is ended for it.
	collectTime  = time.Second
	collectEvery = 400 * time.Millisecond
	// restTime is for how long a place must not grow to count as at rest.
	restTime = 300 * time.Millisecond
)

// errNoMemory ends a guard whose place uses too much for too long.
var errNoMemory = errors.New("it used more memory than its limit, and ending programs did not help")

// guard is the work of GuardMemory. It is one goroutine's, but for the calls of
// relieve.
type guard struct {
	*instance
	watch   *cgroup.MemoryWatch // nil without control groups
	relieve func(ctx context.Context, used int64, urgent bool) (bool, error)
	limit   int64 // the soft limit, or what is tolerated above it
	extra   int64 // by which the hard limit is raised now

	pending   chan error // gets the end of a call of relieve; nil when there is none
	tried     bool       // one has been made since the place was below its limit
	settled   time.Time  // until when memory may come back by itself,
	level     int64      // unless more than this is used
	trend     trend
	collected time.Time // when the sentry was last asked to collect its garbage
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

// ignoreEnd drops the errors of a place that is gone.
func ignoreEnd(ctx context.Context, err error) error {
	if ctx.Err() != nil || errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ENODEV) {
		return nil
	}
	return err
}

// read looks at the memory of the place.
func (g *guard) read() (cgroup.MemoryReading, error) {
	if g.watch != nil {
		return g.watch.Read()
	}
	used := g.memoryFile() + g.procs.Sentry.anonymous() + g.procs.Gofer.anonymous()
	return cgroup.MemoryReading{Charged: used, Used: used}, nil
}

// memoryFile is the size of the file that backs the memory inside, by a
// descriptor of the sentry's whose number never changes.
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

// forgive ends a tolerance that the place no longer needs.
func (g *guard) forgive(m cgroup.MemoryReading) {
	if soft := softLimit(g.procs.Memory); m.Used < soft {
		g.limit = soft
	}
}

// How fast a place is taken to grow at most, in bytes a second. Where the kernel
// tells of the soft limit, that is only needed above it, where cached files hide
// it.
const fastest = 2 << 30

// wait waits until the place could be over its limit.
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

// ease makes programs end until the place is below its limit again, or is at
// rest below the hard limit: memory that belongs to no program cannot be freed.
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

// begin prepares an easing. Where there is time for it, the sentry can collect its
// garbage first, which may be all that is too much.
func (g *guard) begin(m cgroup.MemoryReading) {
	g.trend, g.tried, g.settled = trend{}, false, time.Time{}
	hard := hardLimit(g.procs.Memory)
	if g.watch != nil {
		g.watch.SetSoft(hard - tolerance) // the agent that ends programs must not be slowed down
	}
	if m.Used < hard-reserve(g.procs.Memory)*3/4 {
		g.settled, g.level = time.Now().Add(collectTime), m.Used+tolerance
	}
}

// collect makes the sentry collect its garbage, now and then while it has time
// for that. What a program kept in pipes and sockets is garbage once it has ended.
func (g *guard) collect(m cgroup.MemoryReading) {
	if m.Held || time.Since(g.collected) < collectEvery {
		return
	}
	g.collected = time.Now()
	g.sentry.Signal(collect)
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

// answered takes the end of a call of relieve, if there is one.
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

// keepAhead raises the hard limit before the place reaches it: a sandbox that
// the kernel holds back cannot end programs well, and system calls of its sentry
// fail. It reports false when the place is held back and there is nothing left
// to raise.
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

// lower sets the limits as they were.
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

// trend tells where the use of memory goes.
type trend struct {
	top, low   int64
	rose, sank time.Time // when it last was over top, and below low
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

// resting reports whether it has not grown for a while.
func (t *trend) resting() bool { return time.Since(t.rose) > restTime }

// stuck reports whether it has not become less for long.
func (t *trend) stuck() bool { return time.Since(t.sank) > easeTime }

// SaveFiles implements driver.Guarded. The sandbox may be at its limit: what
// stands still needs no more, and to write its files needs a little.
func (i *instance) SaveFiles(ctx context.Context, dir string) error {
	if i.group != nil && i.procs.Memory > 0 { // else the kernel enforces the limit of an earlier version
		if err := i.group.SetMemory(hardLimit(i.procs.Memory) + 2*reserve(i.procs.Memory)); err != nil {
			return err
		}
	}
	if err := i.control().call(ctx, "containerManager.Pause", nil, nil); err != nil {
		return err
	}
	if err := i.copyFiles(ctx, dir); err != nil {
		return err
	}
	return syncAll(dir)
}
