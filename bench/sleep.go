package main

import (
	"context"
	"fmt"
	"time"

	"hutch"
)

// held is what the program holds in memory that sleeps.
const held = "x = bytearray(b'0123456789abcdef' * (30 << 16))"

// sleep measures how long a sandbox with a Python that holds 30 MB takes to
// answer when it hibernates, beside one that is awake.
func (l *lab) sleep(ctx context.Context) (table, error) {
	t := newTable("", "p50", "p95", "p99", "× awake")
	for _, f := range l.runtimes {
		if f.runtime != "gvisor" {
			continue // keeps no memory
		}
		var awake series
		for range l.rounds {
			time.Sleep(settle)
			a, w, err := l.naps(ctx, f.runtime)
			if err != nil {
				return t, err
			}
			awake, f.wake = append(awake, a), append(f.wake, w)
		}
		t.quantiles(f.runtime+": code in a context, awake", awake, awake)
		t.quantiles(f.runtime+": the same, hibernated", f.wake, awake)
	}
	t.note("The aim for the second is 100 ms.")
	return t, nil
}

func (l *lab) naps(ctx context.Context, runtime string) (awake, wake []time.Duration, err error) {
	sb, err := l.engine.Create(ctx, hutch.CreateRequest{Runtime: runtime, SleepAfter: 0.1})
	if err != nil {
		return nil, nil, err
	}
	defer l.engine.Destroy(ctx, sb.ID, true)
	ask := func(code string) (time.Duration, error) {
		began := time.Now()
		res, err := l.engine.RunCode(ctx, sb.ID, hutch.RunRequest{Language: "python", Code: code}, nil)
		if err == nil && res.Error != nil {
			err = fmt.Errorf("%s: %s", code, res.Error.Message)
		}
		return time.Since(began), err
	}
	if _, err := ask(held); err != nil {
		return nil, nil, err
	}
	for range l.creates {
		for sb.Status != hutch.Hibernated {
			time.Sleep(20 * time.Millisecond)
			if sb, err = l.engine.Sandbox(ctx, sb.ID); err != nil {
				return nil, nil, err
			}
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
