package engine

import (
	"cmp"
	"context"
	"math"
	"slices"
	"sync"
	"time"

	"hutch"
	"hutch/internal/box"
	"hutch/internal/caller"
	"hutch/internal/driver"
)

// Stats are read by one task for all callers that follow them, and only while there are callers. It reads the counters
// that drivers have, asks no agent, and keeps the values as rows of a table with the round in which each last changed:
// a report has the rows that changed since the last report. A round that was expensive is followed by a longer wait, so
// that reading takes no more than statsShare of a core, whatever the number of sandboxes and the runtime.

const (
	statsShare = 1.0 / 50
	// A sandbox whose counters cannot be read at once counts as this much work at most: it waits, and uses no CPU.
	mostRead = 5 * time.Millisecond
	// leastUptime is the shortest time to which the first reading of an instance relates: its start has used CPU before the
	// sandbox began to run.
	leastUptime = time.Second
	// keepGone is for how long the row of a destroyed sandbox is kept. A caller that was away for longer gets a full
	// report.
	keepGone = time.Minute
)

// statsTable has the values of the last round.
type statsTable struct {
	ctx        context.Context // done when the engine closes
	background func(func())
	all        func() []*sandbox
	prices     hutch.Prices

	mu       sync.Mutex
	rows     map[box.Name]statsRow
	round    int64
	at       time.Time     // time of the round
	next     chan struct{} // closed after the next round
	sooner   chan struct{} // signalled by a new caller, which may want a round before the next is due
	watchers map[int64]time.Duration
	joined   int64
	running  bool
}

type statsRow struct {
	hutch.Stats
	inst    driver.Instance // the instance that the counter belongs to
	seconds float64         // CPU of the instance
	read    time.Time       // when seconds was read
	changed int64           // round of the last change
	gone    time.Time
}

func newStatsTable(e *lifecycle) *statsTable {
	return &statsTable{
		ctx: e.ctx, background: e.background, all: e.oldestFirst, prices: e.opt.Prices, rows: map[box.Name]statsRow{},
		next: make(chan struct{}), sooner: make(chan struct{}, 1), watchers: map[int64]time.Duration{},
	}
}

// Stats implements hutch.Accounts.
func (a accounts) Stats(ctx context.Context, req hutch.StatsRequest, out func(hutch.StatsReport) error) error {
	if err := req.Check(); err != nil {
		return err
	}
	if !req.Follow {
		return out(a.statsOnce(ctx))
	}
	defer a.stats.watch(req.Every())()
	of := func(hutch.Stats) bool { return true }
	if owner, ok := caller.OwnerOf(ctx); ok {
		of = func(s hutch.Stats) bool { return s.Owner == owner.ID }
	}
	began := time.Now().Add(-req.Every())
	var seen int64
	var before time.Time
	for {
		next, at := a.stats.wait()
		if at.After(began) && at.Sub(before) >= req.Every()*9/10 {
			report, round := a.stats.since(seen, before, of)
			if report.Full || len(report.Sandboxes) > 0 {
				if err := out(report); err != nil {
					return err
				}
			}
			seen, before = round, at
		}
		select {
		case <-next:
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-a.life.ctx.Done():
			return hutch.Errorf(hutch.Unavailable, "the server is shutting down: try again in a moment")
		}
	}
}

// statsOnce reads the sandboxes of the caller. CPU is the average since another caller read it, or since the sandbox began to run.
func (a accounts) statsOnce(ctx context.Context) hutch.StatsReport {
	all := a.life.visible(ctx, "")
	rows := make([]hutch.Stats, len(all))
	visit(all, func(i int, s *sandbox) {
		row := a.stats.read(ctx, s, statsRow{})
		row.CPU = 0
		if row.inst != nil {
			row.CPU = tenths(s.Resources(driver.Usage{CPUSeconds: row.seconds}).CPU)
		}
		rows[i] = row.Stats
	})
	return report(time.Now(), true, rows)
}

// watch begins to read for a caller, and returns how to end that.
func (t *statsTable) watch(every time.Duration) (end func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.joined++
	me := t.joined
	t.watchers[me] = every
	select {
	case t.sooner <- struct{}{}:
	default:
	}
	if !t.running {
		t.running = true
		t.background(t.keep)
	}
	return func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		delete(t.watchers, me)
	}
}

// keep reads until no caller follows.
func (t *statsTable) keep() {
	for {
		cost := t.readAll()
		every, ok := t.shortest()
		if !ok {
			return
		}
		rest := time.Duration(float64(cost) / statsShare)
		if t.awaitRound(max(every, rest), rest) != nil {
			return
		}
	}
}

// awaitRound waits for wait or, when a caller comes, at least for least: another caller's interval can be shorter.
func (t *statsTable) awaitRound(wait, least time.Duration) error {
	due, least0 := time.NewTimer(wait), time.Now().Add(least)
	defer due.Stop()
	for {
		select {
		case <-due.C:
			return nil
		case <-t.sooner:
			due.Reset(min(wait, max(0, time.Until(least0))))
		case <-t.ctx.Done():
			return t.ctx.Err()
		}
	}
}

// readAll reads all sandboxes once, and returns how much work that was.
func (t *statsTable) readAll() (cost time.Duration) {
	all := t.all()
	t.mu.Lock()
	before := make([]statsRow, len(all))
	for i, s := range all {
		before[i] = t.rows[s.Name()]
	}
	t.mu.Unlock()
	now, costs := make([]statsRow, len(all)), make([]time.Duration, len(all))
	visit(all, func(i int, s *sandbox) {
		began := time.Now()
		now[i] = t.read(t.ctx, s, before[i])
		costs[i] = min(time.Since(began), mostRead)
	})
	began := time.Now()
	t.enter(all, now, began)
	for _, c := range costs {
		cost += c
	}
	return cost + time.Since(began)
}

// read reads one sandbox. The earlier reading is kept while the sandbox decides whether it is idle: see seen.
func (t *statsTable) read(ctx context.Context, s *sandbox, before statsRow) statsRow {
	v := s.Sandbox()
	row := statsRow{inst: s.Instance(), Stats: hutch.Stats{
		SandboxID: v.ID, Owner: v.Owner, Status: v.Status, Health: v.Health, Runtime: v.Runtime, CreatedAt: v.CreatedAt,
		CPULimit: v.Limits.CPU, MemoryLimit: v.Limits.Memory, DiskLimit: v.Limits.Disk,
	}}
	if row.inst != nil {
		row.readFrom(s.reading(ctx, row.inst), before, v.Uptime.Duration())
	}
	used := s.Used()
	row.CPUSeconds, row.NetworkSent, row.NetworkReceived = tenths(used.CPUSeconds), used.NetworkSent, used.NetworkReceived
	row.Cost = math.Round(t.prices.Of(used)*1e6) / 1e6
	if row.inst == nil {
		row.Disk = tenths(used.Disk)
	}
	return row
}

// reading returns the counters of an instance, or nil when they cannot be read now.
func (s *sandbox) reading(ctx context.Context, inst driver.Instance) *driver.Usage {
	if s.measured.Load() != nil {
		return nil
	}
	u, err := s.account(ctx, inst)
	if err != nil {
		return nil
	}
	return &u
}

// readFrom fills in the counters of an instance. uptime is 0 for a sandbox that does not run.
func (r *statsRow) readFrom(u *driver.Usage, before statsRow, uptime time.Duration) {
	if u == nil {
		r.CPU, r.Memory, r.Disk, r.PIDs, r.seconds, r.read = before.CPU, before.Memory, before.Disk, before.PIDs, before.seconds, before.read
		return
	}
	const mib = 1 << 20
	r.seconds, r.read = u.CPUSeconds, time.Now()
	r.Memory, r.Disk, r.PIDs = tenths(float64(u.Memory)/mib), tenths(float64(u.Disk)/mib), u.PIDs
	switch {
	case before.inst == r.inst && !before.read.IsZero():
		r.CPU = percent(r.seconds-before.seconds, r.read.Sub(before.read))
	case uptime > 0:
		r.CPU = percent(r.seconds, max(uptime, leastUptime))
	}
}

// percent returns the share of one core that was used.
func percent(seconds float64, over time.Duration) float64 {
	return tenths(max(0, 100*seconds/max(over.Seconds(), 0.001)))
}

// tenths rounds, so that small changes do not count as changes.
func tenths(v float64) float64 { return math.Round(v*10) / 10 }

// enter ends a round: it records which rows have changed, and which sandboxes are gone.
func (t *statsTable) enter(all []*sandbox, rows []statsRow, at time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.round++
	t.at = at
	there := make(map[box.Name]bool, len(all))
	for i, s := range all {
		there[s.Name()] = true
		old, ok := t.rows[s.Name()]
		if rows[i].changed = old.changed; !ok || old.Stats != rows[i].Stats {
			rows[i].changed = t.round
		}
		t.rows[s.Name()] = rows[i]
	}
	for name, row := range t.rows {
		switch {
		case there[name]:
		case row.gone.IsZero():
			t.rows[name] = statsRow{Stats: row.destroyedStats(), changed: t.round, gone: at}
		case at.Sub(row.gone) > keepGone:
			delete(t.rows, name)
		}
	}
	close(t.next)
	t.next = make(chan struct{})
}

// destroyedStats returns the last row of a destroyed sandbox.
func (r statsRow) destroyedStats() hutch.Stats {
	s := r.Stats
	s.Status, s.CPU, s.Memory, s.Disk, s.PIDs = hutch.Destroyed, 0, 0, 0, 0
	return s
}

// wait returns a channel that is closed after the next round, and the time of the last one.
func (t *statsTable) wait() (next <-chan struct{}, at time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.next, t.at
}

// since returns the rows that have changed after the round seen. A caller that has seen no round, or saw its last round
// long ago, gets all rows.
func (t *statsTable) since(seen int64, before time.Time, of func(hutch.Stats) bool) (hutch.StatsReport, int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	full := seen == 0 || t.at.Sub(before) > keepGone/2
	var rows []hutch.Stats
	for _, row := range t.rows {
		if of(row.Stats) && (full && row.gone.IsZero() || !full && row.changed > seen) {
			rows = append(rows, row.Stats)
		}
	}
	return report(t.at, full, rows), t.round
}

func report(at time.Time, full bool, rows []hutch.Stats) hutch.StatsReport {
	slices.SortFunc(rows, func(a, b hutch.Stats) int {
		return cmp.Or(a.CreatedAt.Compare(b.CreatedAt), cmp.Compare(a.SandboxID, b.SandboxID), cmp.Compare(a.Owner, b.Owner))
	})
	if rows == nil {
		rows = []hutch.Stats{}
	}
	return hutch.StatsReport{Time: at.UTC(), Full: full, Sandboxes: rows}
}

// shortest returns the shortest interval of the followers. Without followers, the table is emptied, and ok is false.
func (t *statsTable) shortest() (every time.Duration, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, d := range t.watchers {
		if !ok || d < every {
			every, ok = d, true
		}
	}
	if !ok {
		t.running, t.rows, t.at = false, map[box.Name]statsRow{}, time.Time{}
	}
	return every, ok
}
