package main

import (
	"context"
	"time"

	"hutch"
	"hutch/internal/engine"
)

// held is the memory of the sleeping program.
const held = "x = bytearray(b'0123456789abcdef' * (30 << 16))"

// sleep measures how long a hibernated sandbox with a Python process that holds 30 MiB takes to answer, compared with one
// that is awake.
func (l *lab) sleep(ctx context.Context) (table, error) {
	t := newTable("", "p50", "p95", "p99", "× awake")
	for _, f := range l.runtimes {
		if f.runtime != "gvisor" {
			continue // this runtime keeps no memory
		}
		var awake, wake series
		for _, w := range resumeModes {
			err := l.withEngine(ctx, f.runtime, engine.Pool{Max: 2 * w.vacant, Min: w.vacant}, func(e *engine.Engine) (err error) {
				awake, wake, err = l.measureWakes(ctx, e, w.vacant)
				return err
			})
			if err != nil {
				return t, err
			}
			if w.vacant == 0 {
				t.quantiles(f.runtime+": code in a context, awake", awake, awake)
			}
			t.quantiles(f.runtime+": the same, hibernated, "+w.name, wake, awake)
		}
		f.wake = wake
	}
	t.note("The aim for a wake is 100 ms.")
	return t, nil
}

func (l *lab) measureWakes(ctx context.Context, e *engine.Engine, vacant int) (awake, wake series, err error) {
	for range l.rounds {
		time.Sleep(settle)
		a, w, err := l.measureWake(ctx, e, vacant)
		if err != nil {
			return nil, nil, err
		}
		awake, wake = append(awake, a), append(wake, w)
	}
	return awake, wake, nil
}

func (l *lab) measureWake(ctx context.Context, e *engine.Engine, vacant int) (awake, wake []time.Duration, err error) {
	sb, err := e.Create(ctx, hutch.CreateRequest{SleepAfter: 0.1})
	if err != nil {
		return nil, nil, err
	}
	defer e.Destroy(ctx, sb.ID, true)
	ask := func(code string) (time.Duration, error) {
		began := time.Now()
		err := runCode(ctx, e, sb.ID, code)
		return time.Since(began), err
	}
	if _, err := ask(held); err != nil {
		return nil, nil, err
	}
	for range l.creates {
		for sb.Status != hutch.Hibernated {
			time.Sleep(20 * time.Millisecond)
			if sb, err = e.Sandbox(ctx, sb.ID); err != nil {
				return nil, nil, err
			}
		}
		if err := awaitVacant(ctx, e, vacant); err != nil {
			return nil, nil, err
		}
		w, err := ask("x[77]")
		if err != nil {
			return nil, nil, err
		}
		a, err := ask("x[78]")
		if err != nil {
			return nil, nil, err
		}
		awake, wake = append(awake, a), append(wake, w)
		sb.Status = hutch.Running
	}
	return awake, wake, nil
}
