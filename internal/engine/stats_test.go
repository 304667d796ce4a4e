package engine_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"hutch"
)

// collect returns the reports that come until enough returns true.
func collect(t *testing.T, ctx context.Context, svc hutch.Accounts, enough func([]hutch.StatsReport) bool) []hutch.StatsReport {
	t.Helper()
	return collectEvery(t, ctx, svc, 0.5, enough)
}

func collectEvery(t *testing.T, ctx context.Context, svc hutch.Accounts, interval hutch.Seconds, enough func([]hutch.StatsReport) bool) []hutch.StatsReport {
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	var all []hutch.StatsReport
	done := errors.New("enough")
	err := svc.Stats(ctx, hutch.StatsRequest{Follow: true, Interval: interval}, func(r hutch.StatsReport) error {
		if all = append(all, r); enough(all) {
			return done
		}
		return nil
	})
	if err != done {
		t.Fatalf("after %d reports: %v", len(all), err)
	}
	return all
}

// statsOf returns the last stats of a sandbox in reports.
func statsOf(reports []hutch.StatsReport, id string) (s hutch.Stats) {
	for _, r := range reports {
		for _, row := range r.Sandboxes {
			if row.SandboxID == id {
				s = row
			}
		}
	}
	return s
}

// The first report has all sandboxes, and later reports have the changed ones. A destroyed sandbox is reported once
// more.
func TestStats(t *testing.T) {
	b := start(t, nil)
	b.create(t, hutch.CreateRequest{ID: "stays"})
	b.create(t, hutch.CreateRequest{ID: "goes"})
	reports := collect(t, t.Context(), b, func(all []hutch.StatsReport) bool {
		if len(all) == 1 {
			go b.Destroy(context.Background(), "goes", true)
		}
		return statsOf(all, "goes").Status == hutch.Destroyed
	})
	first, last := reports[0], reports[len(reports)-1]
	if !first.Full || len(first.Sandboxes) != 2 || first.Sandboxes[0].SandboxID != "stays" {
		t.Errorf("the first report is %+v", first)
	}
	if last.Full || statsOf([]hutch.StatsReport{last}, "stays").SandboxID != "" {
		t.Errorf("the last report has what did not change: %+v", last)
	}
	if s := statsOf(reports, "stays"); s.Status != hutch.Running || s.PIDs != 1 || s.MemoryLimit == 0 || s.CreatedAt.IsZero() {
		t.Errorf("it is %+v", s)
	}
}

// A sandbox that begins, changes its status or ends is reported at once, however long the interval. Each end is
// reported once.
func TestStatsOfMoves(t *testing.T) {
	b := start(t, nil)
	b.create(t, hutch.CreateRequest{ID: "stays"})
	steps := []struct {
		do   func(ctx context.Context) error
		want hutch.Status
	}{
		{func(ctx context.Context) error { _, err := b.Create(ctx, hutch.CreateRequest{ID: "new"}); return err }, hutch.Running},
		{func(ctx context.Context) error {
			_, err := b.Hibernate(ctx, "new", hutch.HibernateRequest{FilesOnly: true})
			return err
		}, hutch.Stopped},
		{func(ctx context.Context) error {
			_, err := b.Exec(ctx, "new", hutch.ExecRequest{Command: "true"}, nil)
			return err
		}, hutch.Running},
		{func(ctx context.Context) error { _, err := b.Destroy(ctx, "new", true); return err }, hutch.Destroyed},
		{func(ctx context.Context) error { _, err := b.Create(ctx, hutch.CreateRequest{ID: "last"}); return err }, ""},
	}
	next := make(chan int, len(steps))
	var steppers sync.WaitGroup
	defer steppers.Wait()
	defer close(next)
	steppers.Go(func() {
		for i := range next {
			if err := steps[i].do(t.Context()); err != nil {
				t.Errorf("step %d: %v", i, err)
			}
		}
	})
	step := -1
	reports := collectEvery(t, t.Context(), b, 60, func(all []hutch.StatsReport) bool {
		if step >= 0 && statsOf(all, "new").Status != steps[step].want {
			return statsOf(all, "last").SandboxID != ""
		}
		if step++; step < len(steps) {
			next <- step
		}
		return false
	})
	ends := 0
	for i, r := range reports {
		if r.Full != (i == 0) || r.Partial != (i > 0) {
			t.Errorf("report %d: full is %v, and partial %v", i, r.Full, r.Partial)
		}
		for _, s := range r.Sandboxes {
			if s.SandboxID == "stays" && i > 0 {
				t.Errorf("report %d has a sandbox that did not change: %+v", i, s)
			}
			if s.Status == hutch.Destroyed {
				ends++
			}
		}
	}
	if ends != 1 {
		t.Errorf("%d ends are reported: %+v", ends, reports)
	}
}

// A reader of stats neither wakes a sandbox nor keeps it awake.
func TestStatsLeaveSleepersAlone(t *testing.T) {
	b := start(t, nil)
	b.create(t, hutch.CreateRequest{ID: "sleeper", SleepAfter: 1})
	var slept int
	reports := collect(t, t.Context(), b, func(all []hutch.StatsReport) bool {
		status := statsOf(all, "sleeper").Status
		if slept == 0 && (status == hutch.Stopped || status == hutch.Hibernated) {
			slept = len(all)
		}
		return slept > 0
	})
	if s := statsOf(reports, "sleeper"); s.Health != hutch.Asleep || s.CPU != 0 || s.Memory != 0 {
		t.Errorf("asleep it is %+v", s)
	}
	var once hutch.StatsReport
	if err := b.Stats(t.Context(), hutch.StatsRequest{}, func(r hutch.StatsReport) error { once = r; return nil }); err != nil || !once.Full || len(once.Sandboxes) != 1 || once.Sandboxes[0].Health != hutch.Asleep {
		t.Errorf("read once: %+v, %v", once, err)
	}
}

// A caller sees only its own sandboxes; the server sees all.
func TestStatsOfOwners(t *testing.T) {
	b := start(t, nil)
	for _, owner := range []string{"ada", "bob"} {
		if _, err := b.Create(as(t, owner), hutch.CreateRequest{ID: "same"}); err != nil {
			t.Fatal(err)
		}
	}
	one := func(all []hutch.StatsReport) bool { return true }
	for ctx, want := range map[context.Context]int{as(t, "ada"): 1, as(t, "nobody"): 0, t.Context(): 2} {
		if got := collect(t, ctx, b, one)[0].Sandboxes; len(got) != want {
			t.Errorf("%d sandboxes, not %d: %+v", len(got), want, got)
		}
	}
}

// The reports end when the server or the caller ends.
func TestStatsEnd(t *testing.T) {
	b := start(t, nil)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := b.Stats(ctx, hutch.StatsRequest{Follow: true}, func(hutch.StatsReport) error { return nil }); !errors.Is(err, context.Canceled) {
		t.Errorf("a caller that is gone: %v", err)
	}
	if err := b.Stats(t.Context(), hutch.StatsRequest{Interval: 0.1}, nil); !errors.Is(err, hutch.Invalid) {
		t.Errorf("a wrong interval: %v", err)
	}
	ended := make(chan error, 1)
	began := make(chan struct{}, 1)
	go func() {
		ended <- b.Stats(t.Context(), hutch.StatsRequest{Follow: true}, func(hutch.StatsReport) error { began <- struct{}{}; return nil })
	}()
	<-began
	if err := b.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; !errors.Is(err, hutch.Unavailable) {
		t.Errorf("the server ended: %v", err)
	}
}
