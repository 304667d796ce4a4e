package history

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"hutch"
)

// meter is a hutch.Accounts that reports the figures of a test.
type meter struct {
	hutch.Accounts
	reports chan hutch.StatsReport
	fails   chan error
}

func (m meter) Stats(ctx context.Context, _ hutch.StatsRequest, out func(hutch.StatsReport) error) error {
	for {
		select {
		case r := <-m.reports:
			if err := out(r); err != nil {
				return err
			}
		case err := <-m.fails:
			return err
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func stats(owner, id string, cpu float64, status hutch.Status) hutch.Stats {
	return hutch.Stats{SandboxID: id, Owner: owner, Status: status, CPU: cpu, Memory: 2 * cpu, Disk: 3, CreatedAt: time.Unix(1, 0)}
}

// run runs a history in a bubble, and test in it.
func run(t *testing.T, test func(t *testing.T, h *History, m meter)) {
	synctest.Test(t, func(t *testing.T) {
		m := meter{reports: make(chan hutch.StatsReport), fails: make(chan error)}
		h := New(m, "", slog.New(slog.DiscardHandler))
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan bool)
		go func() { h.Run(ctx); close(ended) }()
		test(t, h, m)
		cancel()
		<-ended
	})
}

func all(h *History, owner, id string) []Sample {
	return h.Of(owner, id, time.Time{}, time.Now().Add(time.Hour))
}

// pass lets time pass, and a little more, so that a reading at its end is done.
func pass(d time.Duration) { time.Sleep(d + time.Millisecond); synctest.Wait() }

// Readings are of sandboxes that run, also of those that no report mentions because nothing changed.
func TestReadings(t *testing.T) {
	t.Parallel()
	run(t, func(t *testing.T, h *History, m meter) {
		began := time.Now()
		m.reports <- hutch.StatsReport{Full: true, Sandboxes: []hutch.Stats{stats("ada", "a", 10, hutch.Running), stats("ada", "b", 20, hutch.Hibernated), stats("eve", "a", 30, hutch.Running)}}
		pass(2 * Step)
		m.reports <- hutch.StatsReport{Sandboxes: []hutch.Stats{stats("ada", "a", 50, hutch.Running), stats("eve", "a", 0, hutch.Hibernated)}}
		pass(Step)
		got := all(h, "ada", "a")
		if len(got) != 3 || got[0].CPU != 10 || got[2].CPU != 50 || got[2].Memory != 100 || got[2].Disk != 3 || got[1].Time.Sub(got[0].Time) != Step {
			t.Errorf("%+v", got)
		}
		if got := h.Of("ada", "a", began.Add(2*Step), began.Add(2*Step)); len(got) != 1 || !got[0].Time.Equal(began.Add(2*Step)) {
			t.Errorf("of one moment: %+v", got)
		}
		if got := len(all(h, "eve", "a")); got != 2 {
			t.Errorf("a sandbox that fell asleep has %d samples", got)
		}
		if len(all(h, "ada", "b")) > 0 || len(all(h, "eve", "b")) > 0 {
			t.Error("there are samples of a sandbox that sleeps, or is another's")
		}
	})
}

// Nothing stays of a sandbox that is gone: neither for the next of its id, nor in memory.
func TestGone(t *testing.T) {
	t.Parallel()
	run(t, func(t *testing.T, h *History, m meter) {
		m.reports <- hutch.StatsReport{Full: true, Sandboxes: []hutch.Stats{stats("ada", "a", 1, hutch.Running), stats("ada", "b", 1, hutch.Running), stats("ada", "c", 1, hutch.Running)}}
		pass(Step)
		next := stats("ada", "c", 7, hutch.Running)
		next.CreatedAt = time.Unix(2, 0)
		m.reports <- hutch.StatsReport{Sandboxes: []hutch.Stats{stats("ada", "a", 0, hutch.Destroyed), next}}
		pass(Step)
		if got := all(h, "ada", "c"); len(all(h, "ada", "a")) > 0 || len(got) != 1 || got[0].CPU != 7 {
			t.Errorf("%+v, and %+v of a later sandbox of the id", all(h, "ada", "a"), got)
		}
		m.fails <- errors.New("the engine is busy")
		m.reports <- hutch.StatsReport{Full: true, Sandboxes: []hutch.Stats{next}}
		synctest.Wait()
		if len(h.rows) != 1 || len(all(h, "ada", "c")) != 1 {
			t.Errorf("%d sandboxes have samples after a full report of one", len(h.rows))
		}
	})
}

// The samples are few, cover the whole time, and keep the average.
func TestBounded(t *testing.T) {
	t.Parallel()
	r := row{each: 1}
	const readings = 10*maxSamples + 7
	sum := 0.0
	for i := range readings {
		r.add(reading{Unix: int64(i), CPU: float32(i % 10), Of: 1})
		sum += float64(i % 10)
		if len(r.samples) > maxSamples {
			t.Fatalf("%d samples after %d readings", len(r.samples), i)
		}
	}
	n, total := 0, 0.0
	for i, x := range r.samples {
		n, total = n+int(x.Of), total+float64(x.CPU)*float64(x.Of)
		if i > 0 && x.Unix <= r.samples[i-1].Unix {
			t.Errorf("the sample at %d comes after that at %d", x.Unix, r.samples[i-1].Unix)
		}
	}
	if n != readings || r.samples[0].Unix != 0 || len(r.samples) < maxSamples/2 || math.Abs(total-sum) > sum/1000 {
		t.Errorf("%d samples of %d readings, average %v, not %v", len(r.samples), n, total/readings, sum/readings)
	}
}
