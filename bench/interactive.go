package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"hutch"
)

// modes are the ways of creating sandboxes: one after the other, one every 200 ms, and all at once.
var modes = []struct {
	name  string
	every time.Duration
}{{"one after another", -1}, {"one every 200 ms", 200 * time.Millisecond}, {"at once", 0}}

// interactive measures the time to interactive, by the method of public comparisons of hosted services: from the
// request to create a sandbox until its first command has ended, over REST, as a client sees it.
func (l *lab) interactive(ctx context.Context) (table, error) {
	t := newTable("", "median", "p95", "p99", "success", "score")
	for _, f := range l.runtimes {
		ready, err := serve(ctx, l.dir, "ready-"+f.runtime, "--runtime", f.runtime)
		if err != nil {
			return t, err
		}
		for _, s := range []struct {
			name string
			svc  hutch.Service
		}{{"cold", l.server.rest}, {"from the pool", ready.rest}} {
			for _, m := range modes {
				times := l.lives(ctx, s.svc, f.runtime, m.every)
				ok := float64(len(times)) / float64(l.burst)
				if len(times) == 0 {
					return t, fmt.Errorf("%s, %s: none succeeded", f.runtime, m.name)
				}
				times = trimmed(times)
				at := func(q float64) float64 { return ms(quantile(times, q)) }
				t.row(fmt.Sprintf("%s, %s: %d %s", f.runtime, s.name, l.burst, m.name), number(at(0.5)), number(at(0.95)), number(at(0.99)),
					fmt.Sprintf("%.0f %%", 100*ok), fmt.Sprintf("%.1f", score(at(0.5), at(0.95), at(0.99), ok)))
			}
		}
		if err := ready.close(ctx); err != nil {
			return t, err
		}
	}
	t.note("5 % of the times are left out at each end. The score is 100 × (1 − t / 10 s) of median, p95 and p99, weighed by 60, 25 and 15, times the rate of success.")
	return t, ctx.Err()
}

// lives runs sandboxes for one command each, as the plan says, and returns the times of the successful ones.
func (l *lab) lives(ctx context.Context, svc hutch.Service, runtime string, every time.Duration) (took []time.Duration) {
	var mu sync.Mutex
	var wg sync.WaitGroup
	live := func() {
		d, err := life(ctx, svc, runtime)
		mu.Lock()
		defer mu.Unlock()
		if err == nil {
			took = append(took, d)
		}
	}
	began := time.Now()
	for i := range l.burst {
		if every < 0 {
			live()
			continue
		}
		time.Sleep(time.Until(began.Add(time.Duration(i) * every)))
		wg.Go(live)
	}
	wg.Wait()
	return took
}

// life creates and destroys one sandbox. It returns the time from the creation to the end of the first command.
func life(ctx context.Context, svc hutch.Service, runtime string) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	began := time.Now()
	sb, err := svc.Create(ctx, hutch.CreateRequest{Runtime: runtime})
	if err != nil {
		return 0, err
	}
	err = runIn(ctx, svc, sb.ID, "echo benchmark")
	took := time.Since(began)
	_, end := svc.Destroy(context.WithoutCancel(ctx), sb.ID, true)
	return took, errors.Join(err, end)
}

// trimmed returns times without the best and the worst of them.
func trimmed(d []time.Duration) []time.Duration {
	slices.SortFunc(d, cmp.Compare)
	cut := len(d) / 20
	return d[cut : len(d)-cut]
}

// score returns the score of the public method. The times are in milliseconds.
func score(median, p95, p99, success float64) float64 {
	of := func(t float64) float64 { return max(0, 100*(1-t/10_000)) }
	return (0.60*of(median) + 0.25*of(p95) + 0.15*of(p99)) * success
}
