package main

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"

	"hutch"
)

const barePython = "bare: /usr/bin/python3 -c 42, cold"

// python is an interpreter of Python contexts.
type python struct {
	name string
	env  map[string]string
}

var pythons = []python{
	{"Python", map[string]string{"PATH": "/usr/bin:/bin", "HUTCH_IPYTHON": "0"}},
	{"IPython", map[string]string{"PATH": "/usr/bin:/bin"}},
}

// contexts measures the time from a call to the value of a warm Python context, and of a cold one. The baseline is a
// bare interpreter that is started for each call.
func (l *lab) contexts(ctx context.Context) (table, error) {
	t := newTable("", "p50", "p95", "p99", "× "+barePython)
	subjects := []subject{{barePython, func(ctx context.Context, _ int) error {
		return exec.CommandContext(ctx, "/usr/bin/python3", "-c", "42").Run()
	}}}
	var cold []subject
	for _, f := range l.runtimes {
		for _, p := range pythons {
			cold = append(cold, coldContext(f.runtime, l.engine, p))
		}
		for _, way := range []struct {
			name string
			svc  hutch.Service
		}{{"in process", l.engine}, {"REST", l.server.rest}} {
			warm, err := warmContexts(ctx, f.runtime, way.name, way.svc)
			if err != nil {
				return t, err
			}
			subjects = append(subjects, warm...)
		}
	}
	all, err := interleave(ctx, l.rounds, l.calls, subjects)
	if err != nil {
		return t, err
	}
	starts, err := interleave(ctx, l.rounds, l.creates, cold)
	if err != nil {
		return t, err
	}
	for i, s := range slices.Concat(subjects, cold) {
		t.quantiles(s.name, slices.Concat(all, starts)[i], all[0])
	}
	t.note("The aim for the first result of a warm context is 15 ms on native.")
	return t, nil
}

// warmContexts makes contexts of one runtime, and runs code in each.
func warmContexts(ctx context.Context, runtime, way string, svc hutch.Service) ([]subject, error) {
	session := subject{runtime + ": a session, " + way, func(ctx context.Context, caller int) error {
		_, err := svc.Exec(ctx, box(runtime, caller), hutch.ExecRequest{SessionID: "s", Command: ":"}, nil)
		return err
	}}
	subjects := []subject{session}
	errs := []error{session.call(ctx, 0)}
	for _, p := range pythons {
		id := "warm-" + strings.ToLower(p.name)
		_, err := svc.CreateContext(ctx, box(runtime, 0), hutch.ContextRequest{ID: id, Env: p.env})
		errs = append(errs, err)
		warm := subject{runtime + ": " + p.name + ", " + way, func(ctx context.Context, _ int) error {
			return firstResult(ctx, svc, box(runtime, 0), id)
		}}
		errs = append(errs, warm.call(ctx, 0))
		subjects = append(subjects, warm)
	}
	return subjects, errors.Join(errs...)
}

// coldContext makes a context for one run.
func coldContext(runtime string, svc hutch.Service, p python) subject {
	return subject{runtime + ": " + p.name + ", cold, in process", func(ctx context.Context, caller int) error {
		c, err := svc.CreateContext(ctx, box(runtime, caller), hutch.ContextRequest{Env: p.env})
		if err != nil {
			return err
		}
		return errors.Join(firstResult(ctx, svc, box(runtime, caller), c.ID), svc.DeleteContext(ctx, box(runtime, caller), c.ID))
	}}
}

// firstResult runs an expression and checks its value.
func firstResult(ctx context.Context, svc hutch.Service, sandbox, id string) error {
	res, err := svc.RunCode(ctx, sandbox, hutch.RunRequest{ContextID: id, Code: "42"}, nil)
	if err == nil && (len(res.Results) != 1 || res.Results[0].Text() != "42") {
		err = fmt.Errorf("42 gave %+v", res)
	}
	return err
}
