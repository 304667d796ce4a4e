// Package history keeps what each sandbox used over time, in memory and in a file.
//
// A sandbox has at most maxSamples samples, whatever its age. At that number the step doubles, and neighbours that are in the
// same step are merged. So the samples always cover the whole time since the sandbox was created: first in steps of [Step],
// after half an hour of running in steps of twice that, and so on. The time that a sandbox sleeps is in no sample, except where
// it is shorter than a step.
package history

import (
	"context"
	"log/slog"
	"math"
	"sync"
	"time"

	"hutch"
	"hutch/internal/caller"
)

const (
	// Step is the time between two readings.
	Step       = 5 * time.Second
	maxSamples = 360
	// retry is the pause before figures are followed again after an error.
	retry = time.Second
)

// Options configure a history. Accounts and Sandbox are required.
type Options struct {
	// Accounts reports what all sandboxes use.
	Accounts hutch.Accounts
	// Sandbox finds a sandbox of the caller without waking it.
	Sandbox func(ctx context.Context, id string) (hutch.Sandbox, error)
	// File is where the history is stored, and continued from; empty stores nothing.
	File string
	Log  *slog.Logger
}

// History has the samples of all sandboxes that exist.
type History struct {
	opt Options

	mu   sync.Mutex
	rows map[name]*row
}

type name struct{ owner, sandbox string }

// row is one sandbox: its current use, and its past use.
type row struct {
	now     hutch.Stats
	before  hutch.Stats // at the last reading: network traffic is the difference
	samples []reading
	each    int // readings in a full sample, which covers each * Step
}

// reading is a sample in a few bytes. The file has the same form.
type reading struct {
	Unix              int64
	CPU, Memory, Disk float32 // averages
	Sent, Received    float32 // averages, in bytes per second
	Of                int32   // number of readings
}

var _ hutch.Histories = (*History)(nil)

// New returns a history. It continues the history in the file, if the file exists.
func New(opt Options) *History {
	h := &History{opt: opt, rows: map[name]*row{}}
	h.load()
	return h
}

// Run keeps the history until ctx is done.
func (h *History) Run(ctx context.Context) {
	var following sync.WaitGroup
	following.Go(func() { h.follow(caller.WithoutOwner(ctx)) })
	defer h.save()
	defer following.Wait()
	tick, keep := time.NewTicker(Step), time.NewTicker(saveEvery)
	defer tick.Stop()
	defer keep.Stop()
	for {
		select {
		case at := <-tick.C:
			h.read(at)
		case <-keep.C:
			h.save()
		case <-ctx.Done():
			return
		}
	}
}

// follow keeps the current use of sandboxes up to date.
func (h *History) follow(ctx context.Context) {
	for ctx.Err() == nil {
		err := h.opt.Accounts.Stats(ctx, hutch.StatsRequest{Follow: true, Interval: hutch.InSeconds(Step)}, h.take)
		if ctx.Err() != nil {
			return
		}
		h.opt.Log.Warn("follow what sandboxes use", "err", err)
		select {
		case <-time.After(retry):
		case <-ctx.Done():
		}
	}
}

// take adds a report. A full report has every sandbox that exists.
func (h *History) take(report hutch.StatsReport) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	there := map[name]bool{}
	for _, s := range report.Sandboxes {
		key := name{s.Owner, s.SandboxID}
		r := h.rows[key]
		switch {
		case s.Status == hutch.Destroyed:
			delete(h.rows, key)
			continue
		case r == nil || r.now.CreatedAt.UnixMilli() != s.CreatedAt.UnixMilli(): // an id can be used again
			r = &row{each: 1, before: s}
			h.rows[key] = r
		case r.before.SandboxID == "": // from the file
			r.before = s
		}
		r.now = s
		there[key] = true
	}
	for key := range h.rows {
		if report.Full && !there[key] {
			delete(h.rows, key)
		}
	}
	return nil
}

// read adds a reading of each sandbox that runs.
func (h *History) read(at time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, r := range h.rows {
		if r.now.Status == hutch.Running {
			r.add(r.reading(at))
		}
	}
}

func (r *row) reading(at time.Time) reading {
	rate := func(now, before int64) float32 { return float32(max(0, now-before)) / float32(Step.Seconds()) }
	x := reading{
		Unix: at.Unix(), CPU: float32(r.now.CPU), Memory: float32(r.now.Memory), Disk: float32(r.now.Disk),
		Sent: rate(r.now.NetworkSent, r.before.NetworkSent), Received: rate(r.now.NetworkReceived, r.before.NetworkReceived), Of: 1,
	}
	r.before = r.now
	return x
}

// add adds a reading to the last sample or, when that is full or its step has passed, as a sample of its own.
func (r *row) add(x reading) {
	r.samples = r.join(r.samples, x)
	for len(r.samples) > maxSamples {
		r.coarsen()
	}
}

// coarsen doubles the step.
func (r *row) coarsen() {
	r.each *= 2
	merged := r.samples[:0]
	for _, x := range r.samples {
		merged = r.join(merged, x)
	}
	r.samples = merged
}

// join appends x to a list, or merges it into the last sample if both fit into one step.
func (r *row) join(list []reading, x reading) []reading {
	last := len(list) - 1
	if last < 0 || int(list[last].Of+x.Of) > r.each || x.Unix-list[last].Unix >= int64(r.each)*int64(Step/time.Second) {
		return append(list, x)
	}
	list[last] = list[last].with(x)
	return list
}

// with returns the average of two readings, with the time of the first.
func (x reading) with(y reading) reading {
	n := float32(x.Of + y.Of)
	mean := func(a, b float32) float32 { return (a*float32(x.Of) + b*float32(y.Of)) / n }
	return reading{x.Unix, mean(x.CPU, y.CPU), mean(x.Memory, y.Memory), mean(x.Disk, y.Disk), mean(x.Sent, y.Sent), mean(x.Received, y.Received), x.Of + y.Of}
}

// StatsHistory implements hutch.Histories. While a sandbox sleeps, it has no samples.
func (h *History) StatsHistory(ctx context.Context, sandbox string, q hutch.StatsQuery) (hutch.StatsHistory, error) {
	if err := q.Check(); err != nil {
		return hutch.StatsHistory{}, err
	}
	sb, err := h.opt.Sandbox(ctx, sandbox)
	if err != nil {
		return hutch.StatsHistory{}, err
	}
	readings, step := h.between(sb, q.Since, q.Until)
	if q.Step.Duration() > step {
		step = q.Step.Duration()
		readings = merged(readings, step)
	}
	past := hutch.StatsHistory{Step: hutch.InSeconds(step), Samples: []hutch.StatsSample{}}
	for _, x := range readings {
		past.Samples = append(past.Samples, hutch.StatsSample{
			Time: time.Unix(x.Unix, 0).UTC(), CPU: tenths(x.CPU), Memory: tenths(x.Memory), Disk: tenths(x.Disk), SendRate: tenths(x.Sent), ReceiveRate: tenths(x.Received),
		})
	}
	return past, nil
}

func tenths(x float32) float64 { return math.Round(float64(x)*10) / 10 }

// between returns the readings of a sandbox between two times, and the step from one reading to the next.
func (h *History) between(sb hutch.Sandbox, since, until time.Time) (found []reading, step time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	r := h.rows[name{sb.Owner, sb.ID}]
	if r == nil || r.now.CreatedAt.UnixMilli() != sb.CreatedAt.UnixMilli() {
		return nil, Step
	}
	for _, x := range r.samples {
		at := time.Unix(x.Unix, 0)
		if !at.Before(since.Truncate(time.Second)) && (until.IsZero() || !at.After(until)) {
			found = append(found, x)
		}
	}
	return found, time.Duration(r.each) * Step
}

// merged merges the readings of each step. Steps begin at multiples of their length in Unix time, so that each call
// gets the same steps.
func merged(list []reading, step time.Duration) (all []reading) {
	number := func(x reading) int64 { return x.Unix * int64(time.Second) / int64(step) }
	for _, x := range list {
		if last := len(all) - 1; last >= 0 && number(all[last]) == number(x) {
			all[last] = all[last].with(x)
			continue
		}
		all = append(all, x)
	}
	return all
}
