package main

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"hutch"
	"hutch/internal/driver"
	"hutch/internal/engine"
)

// starter is the first code in a sandbox, and its imports.
type starter struct {
	name string
	bare []string // the program that runs it
	warm engine.Warm
	code string
}

var starters = []starter{
	{"Python", barePythonArgs, engine.Warm{Language: "python"}, "42"},
	{"Python with pandas", barePythonArgs, engine.Warm{Language: "python", Modules: []string{"pandas"}}, "import pandas; int(pandas.Series([42])[0])"},
	{"JavaScript", []string{"/usr/bin/node", "-e"}, engine.Warm{Language: "javascript"}, "42"},
}

var barePythonArgs = []string{"/usr/bin/python3", "-c"}

// run runs the code without Hutch.
func (s starter) run(ctx context.Context, _ int) error {
	return exec.CommandContext(ctx, s.bare[0], append(s.bare[1:len(s.bare):len(s.bare)], s.code)...).Run()
}

// systemPython is the system's own Python, without IPython.
var systemPython = map[string]string{"PATH": "/usr/bin:/bin", "HUTCH_IPYTHON": "0"}

// warm measures the first code in a sandbox of the pool, with and without a waiting interpreter. The baseline is a bare
// interpreter that runs the same code.
func (l *lab) warm(ctx context.Context) (table, error) {
	t := newTable("", "p50", "p95", "p99", "× bare", "MiB before")
	for _, s := range starters {
		if s.run(ctx, 0) != nil {
			t.note("This host has no " + s.name + ": apt-get install python3-pandas nodejs")
			continue
		}
		bare, err := interleave(ctx, l.rounds, l.creates, []subject{{s.name, s.run}})
		if err != nil {
			return t, err
		}
		t.firsts("bare: "+strings.Join(s.bare, " ")+", "+s.name, bare[0], bare[0], "")
		for _, f := range l.runtimes {
			for _, w := range [][]engine.Warm{nil, {s.warm}} {
				took, size, err := l.firstRuns(ctx, f.runtime, s, w)
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

// firstRuns measures code in new sandboxes, and the memory that the sandboxes use before they run it.
func (l *lab) firstRuns(ctx context.Context, runtime string, s starter, w []engine.Warm) (took series, size float64, err error) {
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
			if err := filled(ctx, e, ""); err != nil {
				return nil, 0, err
			}
			if round[i], size, err = firstRun(ctx, e, s); err != nil {
				return nil, 0, err
			}
		}
		took = append(took, round)
	}
	return took, size, nil
}

func firstRun(ctx context.Context, e *engine.Engine, s starter) (took time.Duration, size float64, err error) {
	sb, err := e.Create(ctx, hutch.CreateRequest{})
	if err != nil {
		return 0, 0, err
	}
	defer func() { _, derr := e.Destroy(ctx, sb.ID, true); err = errors.Join(err, derr) }()
	if sb, err = e.Sandbox(ctx, sb.ID); err != nil {
		return 0, 0, err
	}
	began := time.Now()
	res, err := e.RunCode(ctx, sb.ID, hutch.RunRequest{Language: s.warm.Language, Code: s.code}, nil)
	took = time.Since(began)
	if err == nil && (len(res.Results) != 1 || res.Results[0].Text() != "42") {
		err = fmt.Errorf("%s gave %+v", s.code, res)
	}
	return took, sb.Resources.Memory, err
}

// filled waits until the pool has all wanted instances that start from a snapshot, or empty ones. If memory is short,
// it waits only until the pool is full.
func filled(ctx context.Context, e *engine.Engine, snapshot string) error {
	for ; ctx.Err() == nil; time.Sleep(5 * time.Millisecond) {
		s := e.PoolState()
		if s.Ready+s.Vacant >= s.Max || !slices.ContainsFunc(s.Kinds, func(k hutch.PoolKind) bool { return k.Snapshot == snapshot && k.Ready < k.Wanted }) {
			return nil
		}
	}
	return ctx.Err()
}
