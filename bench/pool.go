package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"time"

	"hutch"
	"hutch/internal/driver"
	"hutch/internal/engine"
)

// pool measures creates that find a place ready beside those that do not: one
// after the other, and many at once.
func (l *lab) pool(ctx context.Context) (table, error) {
	t := newTable("", "p50", "p95", "p99", "× cold")
	for _, f := range l.runtimes {
		cold, err := l.births(ctx, f.runtime, 0)
		if err != nil {
			return t, err
		}
		ready, err := l.births(ctx, f.runtime, l.burst)
		if err != nil {
			return t, err
		}
		f.ready, f.together = ready.one, ready.many
		t.quantiles(f.runtime+": create, cold", cold.one, cold.one)
		t.quantiles(f.runtime+": create, from the pool", ready.one, cold.one)
		t.quantiles(fmt.Sprintf("%s: %d creates at once, cold", f.runtime, l.burst), cold.many, cold.many)
		t.quantiles(fmt.Sprintf("%s: %d creates at once, from the pool", f.runtime, l.burst), ready.many, cold.many)
	}
	t.note("While creates are measured one by one, the pool is filled again behind them.")
	return t, nil
}

// births are the times of creates.
type births struct{ one, many series }

// births measures an engine of its own with so many places ready.
func (l *lab) births(ctx context.Context, runtime string, pool int) (b births, err error) {
	err = l.alone(ctx, runtime, engine.Pool{Max: pool, Min: pool}, func(e *engine.Engine) error {
		for range l.rounds {
			one, err := bear(ctx, e, pool, l.creates, 1)
			if err != nil {
				return err
			}
			many, err := bear(ctx, e, pool, l.burst, l.burst)
			if err != nil {
				return err
			}
			b.one, b.many = append(b.one, one), append(b.many, many)
		}
		return nil
	})
	return b, err
}

// alone has an engine that runs nothing else, with a pool.
func (l *lab) alone(ctx context.Context, runtime string, p engine.Pool, do func(*engine.Engine) error) (err error) {
	dir := filepath.Join(l.dir, "pool")
	d, err := l.driver(dir, runtime)
	if err != nil {
		return err
	}
	e := l.newEngine(dir, []driver.Driver{d}, p, nil)
	if err := e.Start(ctx); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, e.Close(context.WithoutCancel(ctx))) }()
	return do(e)
}

// goings are the ways in which a sandbox that was saved goes on: in a place that is
// made for it, and in one that waits.
var goings = []struct {
	name   string
	vacant int
}{{"in a place made for it", 0}, {"in one that waits", 1}}

// vacated waits until there are so many places for what was saved, and the
// machine is at rest.
func vacated(ctx context.Context, e *engine.Engine, n int) error {
	for e.PoolState().Vacant < n && ctx.Err() == nil {
		time.Sleep(20 * time.Millisecond)
	}
	time.Sleep(settle / 10)
	return ctx.Err()
}

// bear creates n sandboxes, so many at once, when the pool is full.
func bear(ctx context.Context, e *engine.Engine, pool, n, width int) ([]time.Duration, error) {
	if err := filled(ctx, e, pool); err != nil {
		return nil, err
	}
	time.Sleep(settle)
	took, errs := make([]time.Duration, n), make([]error, n)
	ids := make([]string, n)
	for first := 0; first < n; first += width {
		var wg sync.WaitGroup
		for i := first; i < min(first+width, n); i++ {
			wg.Go(func() {
				began := time.Now()
				sb, err := e.Create(ctx, hutch.CreateRequest{})
				took[i], ids[i], errs[i] = time.Since(began), sb.ID, err
			})
		}
		wg.Wait()
	}
	for _, id := range ids {
		if id != "" {
			_, err := e.Destroy(ctx, id, true)
			errs = append(errs, err)
		}
	}
	return took, errors.Join(errs...)
}
