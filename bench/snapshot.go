package main

import (
	"context"
	"fmt"
	"os/exec"
	"time"

	"hutch"
	"hutch/internal/engine"
)

// forks is how many copies one fork is measured with.
const forks = 10

// warmed is the code that runs in the template before the measurement.
const warmed = "import pandas"

// hasPandas reports whether this host's Python has pandas.
func hasPandas() bool { return exec.Command("/usr/bin/python3", "-c", warmed).Run() == nil }

// snapshots measures the cost of a snapshot for a live Python with 30 MB, and how long sandboxes that start from it
// take to their first result, compared with a create.
func (l *lab) snapshots(ctx context.Context) (table, error) {
	t := newTable("", "p50", "p95", "p99", "× create")
	for _, f := range l.runtimes {
		if f.runtime != "gvisor" {
			continue // this runtime keeps no memory
		}
		var first copies
		for _, w := range resumeModes {
			var c copies
			err := l.withEngine(ctx, f.runtime, engine.Pool{Max: w.vacant * 2 * forks, Min: w.vacant}, func(e *engine.Engine) error {
				return l.copied(ctx, e, w.vacant, &c)
			})
			if err != nil {
				return t, err
			}
			if w.vacant == 0 {
				first = c
				t.quantiles(f.runtime+": create", c.cold, c.cold)
				t.quantiles(f.runtime+": snapshot of a Python with 30 MB", c.took, c.cold)
				t.quantiles(f.runtime+": time that it was paused", c.stood, c.cold)
			}
			t.quantiles(f.runtime+": fork of it, and the first result, "+w.name, c.forked, first.cold)
			t.quantiles(fmt.Sprintf("%s: %d forks at once, %s", f.runtime, forks, w.name), c.all, first.cold)
			if len(c.warm) > 0 {
				t.quantiles(f.runtime+": begin as a template with pandas, and use it, "+w.name, c.warm, first.cold)
			}
			f.forked, f.template = c.forked, c.warm
		}
	}
	if !hasPandas() {
		t.note("This host has no pandas for the template: apt-get install python3-pandas")
	}
	t.note("A fork is a snapshot and a restore. The aims are 100 ms for one and its first result, and 150 ms for the template.")
	return t, nil
}

// copies are the times of all rounds.
type copies struct{ cold, stood, took, forked, all, warm series }

func (l *lab) copied(ctx context.Context, e *engine.Engine, vacant int, c *copies) error {
	for range l.rounds {
		time.Sleep(settle)
		var one round
		if err := l.copyRound(ctx, e, vacant, &one); err != nil {
			return err
		}
		c.cold, c.stood, c.took = append(c.cold, one.cold), append(c.stood, one.stood), append(c.took, one.took)
		c.forked, c.all = append(c.forked, one.forked), append(c.all, one.all)
		if len(one.warm) > 0 { // this host has pandas
			c.warm = append(c.warm, one.warm)
		}
	}
	return nil
}

// round has the times of one round.
type round struct{ cold, stood, took, forked, all, warm []time.Duration }

func (l *lab) copyRound(ctx context.Context, e *engine.Engine, vacant int, c *round) error {
	parent, err := e.Create(ctx, hutch.CreateRequest{})
	if err != nil {
		return err
	}
	defer e.Destroy(ctx, parent.ID, true)
	if err := runCode(ctx, e, parent.ID, held); err != nil {
		return err
	}
	for range l.creates {
		if err := l.copyOnce(ctx, e, vacant, parent.ID, c); err != nil {
			return err
		}
	}
	if err := awaitVacant(ctx, e, vacant); err != nil {
		return err
	}
	began := time.Now()
	list, err := e.Fork(ctx, parent.ID, hutch.ForkRequest{Count: forks})
	c.all = append(c.all, time.Since(began))
	for _, sb := range list {
		e.Destroy(ctx, sb.ID, true)
	}
	if err != nil {
		return err
	}
	if !hasPandas() {
		return nil
	}
	return l.templated(ctx, e, vacant, c)
}

func (l *lab) copyOnce(ctx context.Context, e *engine.Engine, vacant int, parent string, c *round) error {
	began := time.Now()
	sb, err := e.Create(ctx, hutch.CreateRequest{})
	if err != nil {
		return err
	}
	c.cold = append(c.cold, time.Since(began))
	e.Destroy(ctx, sb.ID, true)
	began = time.Now()
	snap, err := e.Snapshot(ctx, parent, hutch.SnapshotRequest{})
	if err != nil {
		return err
	}
	c.took, c.stood = append(c.took, time.Since(began)), append(c.stood, snap.Stood.Duration())
	if err := e.DeleteSnapshot(ctx, snap.ID); err != nil {
		return err
	}
	if err := awaitVacant(ctx, e, vacant); err != nil {
		return err
	}
	began = time.Now()
	list, err := e.Fork(ctx, parent, hutch.ForkRequest{})
	if err != nil {
		return err
	}
	err = runCode(ctx, e, list[0].ID, "x[77]")
	c.forked = append(c.forked, time.Since(began))
	e.Destroy(ctx, list[0].ID, true)
	return err
}

// templated measures sandboxes that begin with a library imported.
func (l *lab) templated(ctx context.Context, e *engine.Engine, vacant int, c *round) error {
	parent, err := e.Create(ctx, hutch.CreateRequest{Env: systemPython})
	if err != nil {
		return err
	}
	defer e.Destroy(ctx, parent.ID, true)
	if err := runCode(ctx, e, parent.ID, warmed); err != nil {
		return err
	}
	snap, err := e.Snapshot(ctx, parent.ID, hutch.SnapshotRequest{})
	if err != nil {
		return err
	}
	defer e.DeleteSnapshot(ctx, snap.ID)
	for range l.creates {
		if err := awaitVacant(ctx, e, vacant); err != nil {
			return err
		}
		began := time.Now()
		sb, err := e.Create(ctx, hutch.CreateRequest{Snapshot: snap.ID})
		if err != nil {
			return err
		}
		err = runCode(ctx, e, sb.ID, "pandas.DataFrame({'a': [1, 2]}).sum()")
		c.warm = append(c.warm, time.Since(began))
		e.Destroy(ctx, sb.ID, true)
		if err != nil {
			return err
		}
	}
	return nil
}

// runCode runs Python in the default context.
func runCode(ctx context.Context, e *engine.Engine, id, code string) error {
	res, err := e.RunCode(ctx, id, hutch.RunRequest{Language: "python", Code: code}, nil)
	if err == nil && res.Error != nil {
		err = fmt.Errorf("%s: %s", code, res.Error.Message)
	}
	return err
}
