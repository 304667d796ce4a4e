// Package history keeps what each sandbox used over time, in memory and in a file.
//
// A sandbox has at most maxSamples samples, whatever its age. At that number each two neighbours are merged, and later samples
// are as far apart as the merged ones. So they always cover the whole time since the sandbox was created: first in steps of
// [Step], after half an hour in steps of twice that, and so on.
package history

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"hutch"
	"hutch/internal/caller"
)

const (
	// Step is the time between two readings.
	Step = 5 * time.Second
	// maxSamples is even, as neighbours are put together.
	maxSamples = 360
	// retry is the pause before figures are followed again after an error.
	retry = time.Second
)

// Sample is what a sandbox used at a moment, or on average from then until the next sample.
type Sample struct {
	Time   time.Time
	CPU    float64 // percent of one core
	Memory float64 // MiB
	Disk   float64 // MiB
}

// History has the samples of all sandboxes that exist.
type History struct {
	accounts hutch.Accounts
	file     string
	log      *slog.Logger

	mu   sync.Mutex
	rows map[name]*row
}

type name struct{ owner, sandbox string }

// row is one sandbox: its current use, and its past use.
type row struct {
	now     hutch.Stats
	samples []reading
	each    int // readings in a full sample
}

// reading is a sample in a few bytes. The file has the same form.
type reading struct {
	Unix              int64
	CPU, Memory, Disk float32 // averages of as many readings
	Of                int32
}

// New returns a history of the use that accounts reports. It continues the history in the file, if the file exists;
// with an empty name nothing is stored.
func New(accounts hutch.Accounts, file string, log *slog.Logger) *History {
	h := &History{accounts: accounts, file: file, log: log, rows: map[name]*row{}}
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
		err := h.accounts.Stats(ctx, hutch.StatsRequest{Follow: true, Interval: hutch.InSeconds(Step)}, h.take)
		if ctx.Err() != nil {
			return
		}
		h.log.Warn("follow what sandboxes use", "err", err)
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
			r = &row{each: 1}
			h.rows[key] = r
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
			r.add(reading{at.Unix(), float32(r.now.CPU), float32(r.now.Memory), float32(r.now.Disk), 1})
		}
	}
}

func (r *row) add(x reading) {
	last := len(r.samples) - 1
	if last >= 0 && int(r.samples[last].Of) < r.each {
		r.samples[last] = r.samples[last].with(x)
		return
	}
	if len(r.samples) == maxSamples {
		r.halve()
	}
	r.samples = append(r.samples, x)
}

// halve merges each two neighbours.
func (r *row) halve() {
	for i := range maxSamples / 2 {
		r.samples[i] = r.samples[2*i].with(r.samples[2*i+1])
	}
	r.samples = r.samples[:maxSamples/2]
	r.each *= 2
}

// with is the average of two readings, from the time of the first on.
func (x reading) with(y reading) reading {
	n := float32(x.Of + y.Of)
	mean := func(a, b float32) float32 { return (a*float32(x.Of) + b*float32(y.Of)) / n }
	return reading{x.Unix, mean(x.CPU, y.CPU), mean(x.Memory, y.Memory), mean(x.Disk, y.Disk), x.Of + y.Of}
}

// Of returns the samples of a sandbox from one moment to another, both included, oldest first. While a sandbox sleeps,
// it has no samples.
func (h *History) Of(owner, sandbox string, from, to time.Time) []Sample {
	h.mu.Lock()
	defer h.mu.Unlock()
	r := h.rows[name{owner, sandbox}]
	if r == nil {
		return nil
	}
	var found []Sample
	for _, x := range r.samples {
		if x.Unix >= from.Unix() && x.Unix <= to.Unix() {
			found = append(found, Sample{time.Unix(x.Unix, 0).UTC(), float64(x.CPU), float64(x.Memory), float64(x.Disk)})
		}
	}
	return found
}
