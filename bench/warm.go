package main

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"time"

	"hutch"
	"hutch/internal/driver"
	"hutch/internal/engine"
)

// starter is code that is the first in its sandbox, and what it imports.
type starter struct {
	name    string
	modules []string
	code    string
}

var starters = []starter{
	{"Python", nil, "42"},
	{"Python with pandas", []string{"pandas"}, "import pandas; int(pandas.Series([42])[0])"},
}

// systemPython is the system's own, and no IPython around it.
var systemPython = map[string]string{"PATH": "/usr/bin:/bin", "HUTCH_IPYTHON": "0"}

// warm measures the first code in a sandbox of the pool, with an interpreter that
// waits there and without, beside a bare interpreter that runs it.
func (l *lab) warm(ctx context.Context) (table, error) {
	t := newTable("", "p50", "p95", "p99", "× bare", "MiB before")
	for _, s := range starters {
		if exec.Command("/usr/bin/python3", "-c", s.code).Run() != nil {
			t.note("This host has no " + s.name + ": apt-get install python3-pandas")
			continue
		}
		bare, err := interleave(ctx, l.rounds, l.creates, []subject{{"bare: python3 -c", func(ctx context.Context, _ int) error {
			return exec.CommandContext(ctx, "/usr/bin/python3", "-c", s.code).Run()
		}}})
		if err != nil {
			return t, err
		}
		t.firsts("bare: /usr/bin/python3 -c, "+s.name, bare[0], bare[0], "")
		for _, f := range l.runtimes {
			for _, w := range [][]engine.Warm{nil, {{Language: "python", Modules: s.modules}}} {
				took, size, err := l.firstRuns(ctx, f.runtime, s.code, w)
				if err != nil {
					return t, err
				}
				name := f.runtime + ": " + s.name + ", cold"
				if w != nil {
					name = f.runtime + ": " + s.name + ", warm"
					f.first = append(f.first, took)
				}
				t.firsts(name, took, bare[0], number(size))
			}
		}
	}
	return t, nil
}

func (t *table) firsts(name string, took, bare series, size string) {
	t.quantiles(name, took, bare)
	last := len(t.rows) - 1
	t.rows[last] = append(t.rows[last], size)
}

// firstRuns measures code in new sandboxes, and what memory they take before.
func (l *lab) firstRuns(ctx context.Context, runtime, code string, w []engine.Warm) (took series, size float64, err error) {
	dir := filepath.Join(l.dir, "warm")
	d, err := l.driver(dir, runtime)
	if err != nil {
		return nil, 0, err
	}
	e := l.newEngine(dir, []driver.Driver{d}, engine.Pool{Max: l.creates, Min: l.creates, Warm: w}, systemPython)
	if err := e.Start(ctx); err != nil {
		return nil, 0, err
	}
	defer func() { err = errors.Join(err, e.Close(context.WithoutCancel(ctx))) }()
	for range l.rounds {
		round := make([]time.Duration, l.creates)
		for i := range round {
			if err := filled(ctx, e, l.creates); err != nil {
				return nil, 0, err
			}
			if round[i], size, err = firstRun(ctx, e, code); err != nil {
				return nil, 0, err
			}
		}
		took = append(took, round)
	}
	return took, size, nil
}

func firstRun(ctx context.Context, e *engine.Engine, code string) (took time.Duration, size float64, err error) {
	sb, err := e.Create(ctx, hutch.CreateRequest{})
	if err != nil {
		return 0, 0, err
	}
	defer func() { _, derr := e.Destroy(ctx, sb.ID, true); err = errors.Join(err, derr) }()
	if sb, err = e.Sandbox(ctx, sb.ID); err != nil {
		return 0, 0, err
	}
	began := time.Now()
	res, err := e.RunCode(ctx, sb.ID, hutch.RunRequest{Code: code}, nil)
	took = time.Since(began)
	if err == nil && (len(res.Results) != 1 || res.Results[0].Text() != "42") {
		err = fmt.Errorf("%s gave %+v", code, res)
	}
	return took, sb.Resources.Memory, err
}

// filled waits until so many places are ready.
func filled(ctx context.Context, e *engine.Engine, n int) error {
	for e.PoolState().Ready < n && ctx.Err() == nil {
		time.Sleep(5 * time.Millisecond)
	}
	return ctx.Err()
}
