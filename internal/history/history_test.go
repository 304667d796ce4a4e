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
	"hutch/internal/caller"
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
		h := open(m, "", slog.New(slog.DiscardHandler))
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan bool)
		go func() { h.Run(ctx); close(ended) }()
		test(t, h, m)
		cancel()
		<-ended
	})
}

// open opens a history of the sandboxes that m reports. Their creation time is the one that the function stats uses.
func open(m meter, file string, log *slog.Logger) *History {
	return New(Options{Accounts: m, File: file, Log: log, Sandbox: func(ctx context.Context, id string) (hutch.Sandbox, error) {
		owner, _ := caller.OwnerOf(ctx)
		return hutch.Sandbox{ID: id, Owner: owner.ID, CreatedAt: time.Unix(1, 0)}, nil
	}})
}

func of(h *History, owner, id string, q hutch.StatsQuery) []hutch.StatsSample {
	past, err := h.StatsHistory(caller.WithOwner(context.Background(), caller.Owner{ID: owner}), id, q)
	if err != nil {
		panic(err)
	}
	return past.Samples
}

func all(h *History, owner, id string) []hutch.StatsSample {
	return of(h, owner, id, hutch.StatsQuery{})
}

// pass lets time pass, and a little more, so that a reading at its end is done.
func pass(d time.Duration) { time.Sleep(d + time.Millisecond); synctest.Wait() }

// Each running sandbox has readings, even if no report mentions it because nothing changed.
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
		if got := of(h, "ada", "a", hutch.StatsQuery{Since: began.Add(2 * Step), Until: began.Add(2 * Step)}); len(got) != 1 || !got[0].Time.Equal(began.Add(2*Step)) {
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

// The history of a removed sandbox is freed, and is not that of the next sandbox with its id.
func TestGone(t *testing.T) {
	t.Parallel()
	run(t, func(t *testing.T, h *History, m meter) {
		m.reports <- hutch.StatsReport{Full: true, Sandboxes: []hutch.Stats{stats("ada", "a", 1, hutch.Running), stats("ada", "b", 1, hutch.Running), stats("ada", "c", 1, hutch.Running)}}
		pass(Step)
		next := stats("ada", "c", 7, hutch.Running)
		next.CreatedAt = time.Unix(2, 0)
		m.reports <- hutch.StatsReport{Sandboxes: []hutch.Stats{stats("ada", "a", 0, hutch.Destroyed), next}}
		pass(Step)
		if got := h.rows[name{"ada", "c"}].samples; len(all(h, "ada", "a")) > 0 || len(got) != 1 || got[0].CPU != 7 {
			t.Errorf("%+v, and %+v of a later sandbox of the id", all(h, "ada", "a"), got)
		}
		if got := all(h, "ada", "c"); len(got) > 0 { // the sandbox that open knows is the earlier one
			t.Errorf("%+v of another sandbox of the id", got)
		}
		m.fails <- errors.New("the engine is busy")
		m.reports <- hutch.StatsReport{Full: true, Sandboxes: []hutch.Stats{next}}
		synctest.Wait()
		if len(h.rows) != 1 || len(h.rows[name{"ada", "c"}].samples) != 1 {
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

// A sample has no readings from before and after a sleep: neither while it is filled, nor when the step doubles.
func TestSleepBetweenReadings(t *testing.T) {
	t.Parallel()
	const step, sleep = int64(Step / time.Second), 1e6
	r := row{each: 1}
	at, n := int64(0), 0
	run := func(readings int, cpu float32) {
		for range readings {
			r.add(reading{Unix: at, CPU: cpu, Of: 1})
			at, n = at+step, n+1
		}
	}
	run(maxSamples+1, 10) // the step doubles, and the last sample is half full
	at += sleep
	run(1, 90)
	if last := r.samples[len(r.samples)-1]; r.each != 2 || last.CPU != 90 || last.Unix != at-step {
		t.Errorf("the first reading after a sleep is in %+v, with %d readings in a sample", last, r.each)
	}
	for range 3 {
		at += sleep
		run(maxSamples-1, 10)
		at += sleep
		run(3, 90)
	}
	readings := 0
	for _, x := range r.samples {
		if readings += int(x.Of); x.CPU != 10 && x.CPU != 90 {
			t.Errorf("%+v has readings from before and after a sleep", x)
		}
	}
	if readings != n || len(r.samples) > maxSamples {
		t.Errorf("%d samples of %d readings, not %d", len(r.samples), readings, n)
	}
}

// Steps merge samples, and each call has the same steps. Network traffic is shown as its rate.
func TestSteps(t *testing.T) {
	t.Parallel()
	run(t, func(t *testing.T, h *History, m meter) {
		x := stats("ada", "a", 10, hutch.Running)
		x.NetworkSent, x.NetworkReceived = 1000, 1<<40 // before it was followed
		m.reports <- hutch.StatsReport{Full: true, Sandboxes: []hutch.Stats{x}}
		pass(Step)
		x.CPU, x.NetworkSent = 30, 1000+100*int64(Step.Seconds())
		m.reports <- hutch.StatsReport{Sandboxes: []hutch.Stats{x}}
		pass(11 * Step)
		ctx := caller.WithOwner(t.Context(), caller.Owner{ID: "ada"})
		fine, err := h.StatsHistory(ctx, "a", hutch.StatsQuery{})
		if err != nil || fine.Step.Duration() != Step || len(fine.Samples) != 12 || fine.Samples[0].SendRate != 0 || fine.Samples[1].SendRate != 100 || fine.Samples[2].SendRate != 0 || fine.Samples[1].ReceiveRate != 0 {
			t.Fatalf("%+v, %v", fine, err)
		}
		coarse, err := h.StatsHistory(ctx, "a", hutch.StatsQuery{Step: 30})
		if err != nil || coarse.Step != 30 || len(coarse.Samples) > 3 || len(coarse.Samples) < 2 {
			t.Fatalf("%+v, %v", coarse, err)
		}
		last := coarse.Samples[len(coarse.Samples)-1]
		if last.CPU != 30 || last.Time.Unix()%30 >= 5 {
			t.Errorf("the last step is %+v", last)
		}
		if again, _ := h.StatsHistory(ctx, "a", hutch.StatsQuery{Step: 30, Since: last.Time}); len(again.Samples) != 1 || again.Samples[0] != last {
			t.Errorf("asked again: %+v, not %+v", again.Samples, last)
		}
		for _, q := range []hutch.StatsQuery{{Step: -1}, {Step: hutch.Seconds(math.NaN())}, {Step: 1e9}, {Since: time.Unix(5, 0), Until: time.Unix(4, 0)}} {
			if _, err := h.StatsHistory(ctx, "a", q); !errors.Is(err, hutch.Invalid) {
				t.Errorf("%+v: %v", q, err)
			}
		}
	})
}

// For a sandbox that the caller does not have, StatsHistory returns the error of looking up the sandbox.
func TestUnknown(t *testing.T) {
	t.Parallel()
	missing := hutch.Errorf(hutch.NotFound, "there is no sandbox")
	h := New(Options{Accounts: meter{}, Log: slog.New(slog.DiscardHandler), Sandbox: func(context.Context, string) (hutch.Sandbox, error) { return hutch.Sandbox{}, missing }})
	if _, err := h.StatsHistory(t.Context(), "a", hutch.StatsQuery{}); err != missing {
		t.Error(err)
	}
}
