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

// pool compares creates that find a ready instance with those that do not: one after the other, many at once, and
// creates from a template.
func (l *lab) pool(ctx context.Context) (table, error) {
	t := newTable("", "p50", "p95", "p99", "× cold")
	for _, f := range l.runtimes {
		cold, err := l.measureCreates(ctx, f.runtime, 0)
		if err != nil {
			return t, err
		}
		ready, err := l.measureCreates(ctx, f.runtime, l.burst)
		if err != nil {
			return t, err
		}
		f.ready, f.together = ready.one, ready.many
		t.quantiles(f.runtime+": create, cold", cold.one, cold.one)
		t.quantiles(f.runtime+": create, from the pool", ready.one, cold.one)
		t.quantiles(fmt.Sprintf("%s: %d creates at once, cold", f.runtime, l.burst), cold.many, cold.many)
		t.quantiles(fmt.Sprintf("%s: %d creates at once, from the pool", f.runtime, l.burst), ready.many, cold.many)
		t.quantiles(f.runtime+": begin as a template, cold", cold.copied, cold.copied)
		t.quantiles(f.runtime+": begin as a template, from the pool", ready.copied, cold.copied)
	}
	t.note("While creates are measured one by one, the pool is filled again behind them. The template is a Python with 30 MB, of which native keeps the files.")
	return t, nil
}

// createTimes are the times of creates.
type createTimes struct{ one, many, copied series }

// measureCreates measures creates from a pool with a number of ready instances.
func (l *lab) measureCreates(ctx context.Context, runtime string, pool int) (b createTimes, err error) {
	err = l.withEngine(ctx, runtime, engine.Pool{Max: pool + 1, Min: pool}, func(e *engine.Engine) error {
		for range l.rounds {
			one, err := createMany(ctx, e, hutch.CreateRequest{}, l.creates, 1)
			if err != nil {
				return err
			}
			many, err := createMany(ctx, e, hutch.CreateRequest{}, l.burst, l.burst)
			if err != nil {
				return err
			}
			b.one, b.many = append(b.one, one), append(b.many, many)
		}
		return nil
	})
	if err != nil {
		return b, err
	}
	err = l.withEngine(ctx, runtime, engine.Pool{Max: 2 * min(pool, l.creates), Room: 4 << 30}, func(e *engine.Engine) error {
		template, err := template(ctx, e)
		if err == nil { // fills the pool with as many instances as the rounds need
			_, err = createMany(ctx, e, template, l.creates, 1)
		}
		for range l.rounds {
			if err != nil {
				return err
			}
			var copied []time.Duration
			copied, err = createMany(ctx, e, template, l.creates, 1)
			b.copied = append(b.copied, copied)
		}
		return err
	})
	return b, err
}

// withEngine runs do with an engine of its own, which has only this runtime and a pool.
func (l *lab) withEngine(ctx context.Context, runtime string, p engine.Pool, do func(*engine.Engine) error) (err error) {
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

// resumeModes are the ways in which a saved sandbox continues: in a new instance, and in a waiting one.
var resumeModes = []struct {
	name   string
	vacant int
}{{"in a new instance", 0}, {"in a waiting one", 1}}

// awaitVacant waits until there is a number of empty instances, and the machine is idle.
func awaitVacant(ctx context.Context, e *engine.Engine, n int) error {
	for e.PoolState().Vacant < n && ctx.Err() == nil {
		time.Sleep(20 * time.Millisecond)
	}
	time.Sleep(settle / 10)
	return ctx.Err()
}

// template returns a request for sandboxes that start from a Python process with 30 MB.
func template(ctx context.Context, e *engine.Engine) (hutch.CreateRequest, error) {
	sb, err := e.Create(ctx, hutch.CreateRequest{})
	if err != nil {
		return hutch.CreateRequest{}, err
	}
	defer e.Destroy(ctx, sb.ID, true)
	if err := runCode(ctx, e, sb.ID, held); err != nil {
		return hutch.CreateRequest{}, err
	}
	snap, err := e.Snapshot(ctx, sb.ID, hutch.SnapshotRequest{})
	return hutch.CreateRequest{Snapshot: snap.ID}, err
}

// createMany waits until the pool has all wanted instances ready. Then it creates n sandboxes, width at a time, and
// returns how long each create took.
func createMany(ctx context.Context, e *engine.Engine, req hutch.CreateRequest, n, width int) ([]time.Duration, error) {
	if err := filled(ctx, e, req.Snapshot); err != nil {
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
				sb, err := e.Create(ctx, req)
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
