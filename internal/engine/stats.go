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

// One task reads the stats for all callers that follow them, and only while there are callers. It reads the counters
// that drivers have, and asks no agent. It keeps the values as rows of a table, each with the round in which it last
// changed. A report has the rows that changed since the last report. After an expensive round, the task waits longer,
// so that the rounds take no more than statsShare of a core, whatever the number of sandboxes and the runtime.
//
// Sandboxes that are new, gone, or have a new status or health do not wait for the next round. A short round reads only
// these sandboxes, does not ask a driver again about an instance that was read before, and reports at once. So it reads
// counters once for each start of an instance, which is a small part of the work of that start.

const (
	statsShare = 1.0 / 50
	// mostRead is the most work that the reading of one sandbox counts as. A slower reading only waits for the sandbox,
	// and uses no CPU.
	mostRead = 5 * time.Millisecond
	// leastUptime is the shortest time over which the first reading of an instance is averaged, because the start of
	// the instance used CPU before the sandbox began to run.
	leastUptime = time.Second
	// keepGone is for how long the row of a destroyed sandbox is kept. A caller that was away for longer gets a full
	// report.
	keepGone = time.Minute
	// betweenMoves is the shortest time between two short rounds.
	betweenMoves = 50 * time.Millisecond
)

// statsTable has the values of the last round.
type statsTable struct {
	ctx        context.Context // done when the engine closes
	background func(func())
	sandboxes  *table
	prices     hutch.Prices

	mu       sync.Mutex
	rows     map[box.Name]statsRow
	rounds   rounds
	next     chan struct{} // closed after the next round
	sooner   chan struct{} // signalled by a new caller, which can want an earlier round, and by the last caller that leaves
	watchers map[int64]time.Duration
	joined   int64
	running  bool
}

// rounds records how far the table has been read. Short rounds and rounds of all sandboxes are counted together.
type rounds struct {
	last, moved, whole int64 // the last round, the last in which a row moved, and the last of all sandboxes
	lastAt, wholeAt    time.Time
}

type statsRow struct {
	hutch.Stats
	inst    driver.Instance // the instance that seconds belongs to
	seconds float64         // CPU of the instance
	read    time.Time       // when seconds was read
	changed int64           // round of the last change
	moved   int64           // round in which the sandbox last appeared, ended, or changed its status or health
	gone    time.Time
}

func newStatsTable(e *lifecycle) *statsTable {
	return &statsTable{
		ctx: e.ctx, background: e.background, sandboxes: e.table, prices: e.opt.Prices, rows: map[box.Name]statsRow{},
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
	var seen rounds // the rounds that the caller knows
	for {
		now, next := a.stats.wait()
		// A new caller gets the values of the last round at once: what has moved since is among them.
		partial := now.wholeAt.IsZero() || now.wholeAt.Sub(seen.wholeAt) < req.Every()*9/10
		if !partial || seen.whole > 0 && now.moved > seen.moved {
			var report hutch.StatsReport
			report, seen = a.stats.since(seen, partial, of)
			if report.Full || len(report.Sandboxes) > 0 {
				if err := out(report); err != nil {
					return err
				}
			}
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

// statsOnce reads the sandboxes of the caller. CPU is the average since the previous reading for any caller, or since
// the sandbox began to run.
func (a accounts) statsOnce(ctx context.Context) hutch.StatsReport {
	all := a.life.visible(ctx, "")
	rows := make([]hutch.Stats, len(all))
	visit(all, func(i int, s *sandbox) {
		row := a.stats.read(ctx, s, statsRow{}, true)
		row.CPU = 0
		if row.inst != nil {
			row.CPU = tenths(s.Resources(driver.Usage{CPUSeconds: row.seconds}).CPU)
		}
		rows[i] = row.Stats
	})
	return report(time.Now(), true, rows)
}

// watch begins to read for a caller, and returns a function that ends that.
func (t *statsTable) watch(every time.Duration) (end func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.joined++
	me := t.joined
	t.watchers[me] = every
	if t.running {
		t.signal()
	} else {
		t.running = true
		t.sandboxes.moved.listen()
		t.background(t.readRounds)
	}
	return func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		if delete(t.watchers, me); len(t.watchers) == 0 {
			t.signal()
		}
	}
}

// signal ends a wait for the next round as soon as the wait can end.
func (t *statsTable) signal() {
	select {
	case t.sooner <- struct{}{}:
	default:
	}
}

// readRounds reads rounds until no caller is left.
func (t *statsTable) readRounds() {
	for {
		every, ok := t.shortest()
		if !ok {
			return
		}
		cost := t.readAll()
		rest := time.Duration(float64(cost) / statsShare)
		if t.awaitRound(max(every, rest), rest) != nil {
			return
		}
	}
}

// awaitRound waits for wait. If a caller comes, it waits only for least, because the interval of the caller can be
// shorter. Meanwhile it reads the sandboxes that have moved.
func (t *statsTable) awaitRound(wait, least time.Duration) error {
	due, earliest := time.NewTimer(wait), time.Now().Add(least)
	defer due.Stop()
	moved := t.sandboxes.moved.some // nil during the pause after a short round
	var rested <-chan time.Time
	for {
		select {
		case <-due.C:
			return nil
		case <-t.sooner:
			due.Reset(max(0, time.Until(earliest)))
		case <-moved:
			t.readMoved()
			moved, rested = nil, time.After(betweenMoves)
		case <-rested:
			moved = t.sandboxes.moved.some
		case <-t.ctx.Done():
			return t.ctx.Err()
		}
	}
}

// readAll reads all sandboxes once, and returns how much work that was.
func (t *statsTable) readAll() (cost time.Duration) {
	rows, cost := t.readEach(t.sandboxes.oldestFirst(), true)
	began := time.Now()
	t.enterAll(rows, began)
	return cost + time.Since(began)
}

// readMoved reads the sandboxes that have moved.
func (t *statsTable) readMoved() {
	var there []*sandbox
	var gone []box.Name
	for _, name := range t.sandboxes.moved.take() {
		if s := t.sandboxes.named(name); s != nil {
			there = append(there, s)
		} else {
			gone = append(gone, name)
		}
	}
	rows, _ := t.readEach(there, false)
	t.enterMoved(rows, gone, time.Now())
}

// readEach reads sandboxes, and returns how much work that was. With again, it also reads instances whose counters were
// read before.
func (t *statsTable) readEach(all []*sandbox, again bool) (rows []statsRow, cost time.Duration) {
	t.mu.Lock()
	before := make([]statsRow, len(all))
	for i, s := range all {
		before[i] = t.rows[s.Name()]
	}
	t.mu.Unlock()
	rows = make([]statsRow, len(all))
	costs := make([]time.Duration, len(all))
	visit(all, func(i int, s *sandbox) {
		began := time.Now()
		rows[i] = t.read(t.ctx, s, before[i], again)
		costs[i] = min(time.Since(began), mostRead)
	})
	for _, c := range costs {
		cost += c
	}
	return rows, cost
}

// read reads one sandbox. It keeps the earlier reading while the engine measures whether the sandbox is at work (see
// seen). Without again, it also keeps an earlier reading of the same instance.
func (t *statsTable) read(ctx context.Context, s *sandbox, before statsRow, again bool) statsRow {
	v := s.Sandbox()
	row := statsRow{inst: s.Instance(), Stats: hutch.Stats{
		SandboxID: v.ID, Owner: v.Owner, Status: v.Status, Health: v.Health, Runtime: v.Runtime, CreatedAt: v.CreatedAt,
		CPULimit: v.Limits.CPU, MemoryLimit: v.Limits.Memory, DiskLimit: v.Limits.Disk,
	}}
	if row.inst != nil {
		var u *driver.Usage
		if again || row.inst != before.inst {
			u = s.reading(ctx, row.inst)
		}
		row.readFrom(u, before, v.Uptime.Duration())
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
		r.CPU, r.Memory, r.Disk, r.PIDs = before.CPU, before.Memory, before.Disk, before.PIDs
		if before.inst == r.inst {
			r.seconds, r.read = before.seconds, before.read
		}
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

// enterAll ends a round that read all sandboxes: sandboxes without a row in it are gone.
func (t *statsTable) enterAll(rows []statsRow, at time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	there := make(map[box.Name]bool, len(rows))
	for _, r := range rows {
		there[r.name()] = true
	}
	var gone []box.Name
	for name, r := range t.rows {
		if !r.gone.IsZero() && at.Sub(r.gone) > keepGone {
			delete(t.rows, name)
		} else if !there[name] {
			gone = append(gone, name)
		}
	}
	t.rounds.whole, t.rounds.wholeAt = t.rounds.last+1, at
	t.enterLocked(rows, gone, at)
}

// enterMoved ends a short round.
func (t *statsTable) enterMoved(rows []statsRow, gone []box.Name, at time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.enterLocked(rows, gone, at)
}

// enterLocked ends a round: it records which rows have changed, and which sandboxes are gone.
func (t *statsTable) enterLocked(rows []statsRow, gone []box.Name, at time.Time) {
	t.rounds.last++
	t.rounds.lastAt = at
	for _, r := range rows {
		if r.Status == hutch.Destroyed { // during the reading
			gone = append(gone, r.name())
		} else {
			t.changeLocked(r)
		}
	}
	for _, name := range gone {
		if r, ok := t.rows[name]; ok && r.gone.IsZero() {
			t.changeLocked(statsRow{Stats: r.Ended(hutch.Destroyed), gone: at})
		}
	}
	close(t.next)
	t.next = make(chan struct{})
}

// changeLocked replaces a row by the row of the last round.
func (t *statsTable) changeLocked(r statsRow) {
	old, ok := t.rows[r.name()]
	r.changed, r.moved = old.changed, old.moved
	if !ok || r.Stats != old.Stats {
		r.changed = t.rounds.last
	}
	if !ok || r.Status != old.Status || r.Health != old.Health || !r.CreatedAt.Equal(old.CreatedAt) {
		r.moved, t.rounds.moved = t.rounds.last, t.rounds.last
	}
	t.rows[r.name()] = r
}

func (r *statsRow) name() box.Name { return box.Name{Owner: r.Owner, ID: r.SandboxID} }

// wait returns the present rounds, and a channel that is closed after the next round.
func (t *statsTable) wait() (now rounds, next <-chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.rounds, t.next
}

// since returns the rows that have changed after the rounds that a caller knows, and the rounds that the caller knows
// then. With partial, it returns only the rows that have moved. A caller that knows no round, or whose last round was
// long ago, gets all rows.
func (t *statsTable) since(seen rounds, partial bool, of func(hutch.Stats) bool) (hutch.StatsReport, rounds) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.rounds
	full := seen.whole == 0 || now.wholeAt.Sub(seen.wholeAt) > keepGone/2
	if partial {
		full, now.whole, now.wholeAt = false, seen.whole, seen.wholeAt
	}
	var rows []hutch.Stats
	for _, row := range t.rows {
		if row.isNew(seen, full, partial) && of(row.Stats) {
			rows = append(rows, row.Stats)
		}
	}
	r := report(now.lastAt, full, rows)
	r.Partial = partial
	return r, now
}

// isNew reports whether a row belongs in a report for a caller that knows the rounds seen.
func (r *statsRow) isNew(seen rounds, full, partial bool) bool {
	switch {
	case full:
		return r.gone.IsZero()
	case partial:
		return r.moved > seen.moved
	}
	known := r.changed == r.moved && r.moved <= seen.moved // the caller has the row from a partial report
	return r.changed > seen.whole && !known
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

// shortest returns the shortest interval of the followers. Without followers, it empties the table, and ok is false.
func (t *statsTable) shortest() (every time.Duration, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, d := range t.watchers {
		if !ok || d < every {
			every, ok = d, true
		}
	}
	if !ok {
		t.running, t.rows, t.rounds.wholeAt = false, map[box.Name]statsRow{}, time.Time{}
		t.sandboxes.moved.stop()
	}
	return every, ok
}
