package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// subject is an operation whose calls are measured. caller counts from 0; each caller makes one call at a time.
type subject struct {
	name string
	call func(ctx context.Context, caller int) error
}

// series holds the measurements of one subject, round by round.
type series [][]time.Duration

// at returns the median of the rounds' quantiles, in milliseconds; NaN when nothing was measured.
func (s series) at(q float64) float64 {
	var each []float64
	for _, round := range s {
		if len(round) > 0 {
			each = append(each, ms(quantile(round, q)))
		}
	}
	return median(each)
}

func quantile(d []time.Duration, q float64) time.Duration {
	d = slices.Sorted(slices.Values(d))
	return d[min(int(q*float64(len(d))), len(d)-1)]
}

// median returns the median of v; NaN without values.
func median(v []float64) float64 {
	if len(v) == 0 {
		return math.NaN()
	}
	v = slices.Sorted(slices.Values(v))
	n := len(v)
	return (v[(n-1)/2] + v[n/2]) / 2
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// interleave calls every subject n times in each round and returns how long
// the calls took.
func interleave(ctx context.Context, rounds, n int, subjects []subject) ([]series, error) {
	all := make([]series, len(subjects))
	for range rounds {
		for i, s := range subjects {
			round := make([]time.Duration, n)
			for k := range round {
				began := time.Now()
				if err := s.call(ctx, 0); err != nil {
					return nil, fmt.Errorf("%s: %w", s.name, err)
				}
				round[k] = time.Since(began)
			}
			all[i] = append(all[i], round)
		}
	}
	return all, nil
}

// atOnce makes n simultaneous calls of a subject in each round, and returns how long the calls took.
func atOnce(ctx context.Context, rounds, n int, s subject) (series, error) {
	var all series
	for range rounds {
		round, errs := make([]time.Duration, n), make([]error, n)
		var wg sync.WaitGroup
		for i := range n {
			wg.Go(func() {
				began := time.Now()
				errs[i] = s.call(ctx, i)
				round[i] = time.Since(began)
			})
		}
		wg.Wait()
		if err := errors.Join(errs...); err != nil {
			return nil, fmt.Errorf("%s: %w", s.name, err)
		}
		all = append(all, round)
	}
	return all, nil
}

// tally has the results of a subject under load.
type tally struct {
	rates         []float64 // calls a second, by round
	calls, failed int64
	failure       error // the error of one of the failed calls
}

// press makes a number of callers call a subject for a time.
func (t *tally) press(ctx context.Context, s subject, callers int, d time.Duration) {
	var calls, failed atomic.Int64
	var once sync.Once
	var wg sync.WaitGroup
	began := time.Now()
	for caller := range callers {
		wg.Go(func() {
			for time.Since(began) < d && ctx.Err() == nil {
				if err := s.call(ctx, caller); err != nil {
					failed.Add(1)
					once.Do(func() { t.failure = err })
				}
				calls.Add(1)
			}
		})
	}
	wg.Wait()
	t.rates = append(t.rates, float64(calls.Load()-failed.Load())/time.Since(began).Seconds())
	t.calls, t.failed = t.calls+calls.Load(), t.failed+failed.Load()
}

func (t *tally) rate() float64 { return median(t.rates) }
