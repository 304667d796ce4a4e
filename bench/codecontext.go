package main

import (
	"context"
	"fmt"
	"os/exec"

	"hutch"
)

const barePython = "bare: /usr/bin/python3 -c 42, cold"

// contexts measures the first result of a warm Python context, that is from the
// call to the value, beside a bare interpreter started for it.
func (l *lab) contexts(ctx context.Context) (table, error) {
	t := newTable("", "p50", "p95", "p99", "× "+barePython)
	subjects := []subject{{barePython, func(ctx context.Context, _ int) error {
		return exec.CommandContext(ctx, "/usr/bin/python3", "-c", "42").Run()
	}}}
	for _, f := range l.runtimes {
		for _, way := range []struct {
			name string
			svc  hutch.Service
		}{{"in process", l.engine}, {"REST", l.server.rest}} {
			subjects = append(subjects,
				subject{f.runtime + ": Python, " + way.name, func(ctx context.Context, caller int) error {
					return firstResult(ctx, way.svc, f.box(caller))
				}},
				subject{f.runtime + ": a session, " + way.name, func(ctx context.Context, caller int) error {
					_, err := way.svc.Exec(ctx, f.box(caller), hutch.ExecRequest{SessionID: "s", Command: ":"}, nil)
					return err
				}})
		}
	}
	if _, err := interleave(ctx, 1, 1, subjects); err != nil { // makes them warm
		return t, err
	}
	all, err := interleave(ctx, l.rounds, l.calls, subjects)
	if err != nil {
		return t, err
	}
	for i, s := range subjects {
		t.quantiles(s.name, all[i], all[0])
	}
	t.note("The aim for the first result of a warm context is 15 ms on native.")
	return t, nil
}

// firstResult runs an expression and wants its value.
func firstResult(ctx context.Context, svc hutch.Service, id string) error {
	res, err := svc.RunCode(ctx, id, hutch.RunRequest{Code: "42"}, nil)
	if err == nil && (len(res.Results) != 1 || res.Results[0].Text() != "42") {
		err = fmt.Errorf("42 gave %+v", res)
	}
	return err
}
