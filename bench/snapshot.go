package main

import (
	"context"
	"fmt"
	"os/exec"
	"time"

	"hutch"
)

// forks is how many copies one fork is measured with.
const forks = 10

// warmed is what the template of the figures has imported.
const warmed = "import pandas"

// hasPandas reports whether this host's Python can be warmed so.
func hasPandas() bool { return exec.Command("/usr/bin/python3", "-c", warmed).Run() == nil }

// snapshots measures what a snapshot of a live Python that holds 30 MB costs it,
// and how long sandboxes take that begin as one, to their first result, beside a
// create.
func (l *lab) snapshots(ctx context.Context) (table, error) {
	t := newTable("", "p50", "p95", "p99", "× create")
	for _, f := range l.runtimes {
		if f.runtime != "gvisor" {
			continue // keeps no memory
		}
		var cold, stood, took, forked, all, warm series
		for range l.rounds {
			time.Sleep(settle)
			var one copies
			if err := l.copied(ctx, f.runtime, &one); err != nil {
				return t, err
			}
			cold, stood, took = append(cold, one.cold), append(stood, one.stood), append(took, one.took)
			forked, all, warm = append(forked, one.forked), append(all, one.all), append(warm, one.warm)
		}
		f.forked = forked
		t.quantiles(f.runtime+": create", cold, cold)
		t.quantiles(f.runtime+": snapshot of a Python with 30 MB", took, cold)
		t.quantiles(f.runtime+": for which it stood still", stood, cold)
		t.quantiles(f.runtime+": fork of it, and the first result", forked, cold)
		t.quantiles(fmt.Sprintf("%s: %d forks at once", f.runtime, forks), all, cold)
		if hasPandas() {
			f.template = warm
			t.quantiles(f.runtime+": begin as a template with pandas, and use it", warm, cold)
		} else {
			t.note("This host has no pandas for the template: apt-get install python3-pandas")
		}
	}
	t.note("A fork is a snapshot and a restore. The aims are 100 ms for one and its first result, and 150 ms for the template.")
	return t, nil
}

// copies are the times of one round.
type copies struct{ cold, stood, took, forked, all, warm []time.Duration }

func (l *lab) copied(ctx context.Context, runtime string, c *copies) error {
	parent, err := l.engine.Create(ctx, hutch.CreateRequest{Runtime: runtime})
	if err != nil {
		return err
	}
	defer l.engine.Destroy(ctx, parent.ID, true)
	if err := l.code(ctx, parent.ID, held); err != nil {
		return err
	}
	for range l.creates {
		if err := l.copyOnce(ctx, runtime, parent.ID, c); err != nil {
			return err
		}
	}
	began := time.Now()
	list, err := l.engine.Fork(ctx, parent.ID, hutch.ForkRequest{Count: forks})
	c.all = append(c.all, time.Since(began))
	for _, sb := range list {
		l.engine.Destroy(ctx, sb.ID, true)
	}
	if err != nil {
		return err
	}
	if !hasPandas() {
		return nil
	}
	return l.templated(ctx, runtime, c)
}

func (l *lab) copyOnce(ctx context.Context, runtime, parent string, c *copies) error {
	began := time.Now()
	sb, err := l.engine.Create(ctx, hutch.CreateRequest{Runtime: runtime})
	if err != nil {
		return err
	}
	c.cold = append(c.cold, time.Since(began))
	l.engine.Destroy(ctx, sb.ID, true)
	began = time.Now()
	snap, err := l.engine.Snapshot(ctx, parent, hutch.SnapshotRequest{})
	if err != nil {
		return err
	}
	c.took, c.stood = append(c.took, time.Since(began)), append(c.stood, snap.Stood.Duration())
	if err := l.engine.DeleteSnapshot(ctx, snap.ID); err != nil {
		return err
	}
	began = time.Now()
	list, err := l.engine.Fork(ctx, parent, hutch.ForkRequest{})
	if err != nil {
		return err
	}
	err = l.code(ctx, list[0].ID, "x[77]")
	c.forked = append(c.forked, time.Since(began))
	l.engine.Destroy(ctx, list[0].ID, true)
	return err
}

// templated measures sandboxes that begin with a library imported.
func (l *lab) templated(ctx context.Context, runtime string, c *copies) error {
	parent, err := l.engine.Create(ctx, hutch.CreateRequest{Runtime: runtime, Env: systemPython})
	if err != nil {
		return err
	}
	defer l.engine.Destroy(ctx, parent.ID, true)
	if err := l.code(ctx, parent.ID, warmed); err != nil {
		return err
	}
	snap, err := l.engine.Snapshot(ctx, parent.ID, hutch.SnapshotRequest{})
	if err != nil {
		return err
	}
	defer l.engine.DeleteSnapshot(ctx, snap.ID)
	for range l.creates {
		began := time.Now()
		sb, err := l.engine.Create(ctx, hutch.CreateRequest{Snapshot: snap.ID})
		if err != nil {
			return err
		}
		err = l.code(ctx, sb.ID, "pandas.DataFrame({'a': [1, 2]}).sum()")
		c.warm = append(c.warm, time.Since(began))
		l.engine.Destroy(ctx, sb.ID, true)
		if err != nil {
			return err
		}
	}
	return nil
}

// code runs Python in the default context.
func (l *lab) code(ctx context.Context, id, code string) error {
	res, err := l.engine.RunCode(ctx, id, hutch.RunRequest{Language: "python", Code: code}, nil)
	if err == nil && res.Error != nil {
		err = fmt.Errorf("%s: %s", code, res.Error.Message)
	}
	return err
}
