package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"time"

	"hutch"
	"hutch/internal/audit"
	"hutch/internal/auth"
	"hutch/internal/metrics"
	"hutch/internal/policy"
	"hutch/internal/quota"
	"hutch/internal/scripted"
	"hutch/internal/store"
)

// mostGoverned is what all that stands before a call may add to it.
const mostGoverned = 0.15 // ms

// governance measures what stands before every call, in front of a service
// that does nothing: the difference is all theirs.
func (l *lab) governance(ctx context.Context) (table, error) {
	t := newTable("", "p50", "p95", "p99", "of 0.15 ms")
	dir := filepath.Join(l.dir, "governance")
	if err := os.Mkdir(dir, 0o700); err != nil {
		return t, err
	}
	subjects, done, err := governed(ctx, dir)
	if err != nil {
		return t, err
	}
	all, err := interleave(ctx, l.rounds, l.calls, subjects)
	if err = errors.Join(err, done()); err != nil {
		return t, err
	}
	base := all[0].at(0.5)
	for i, s := range subjects {
		t.row(s.name, number(1000*all[i].at(0.5)), number(1000*all[i].at(0.95)), number(1000*all[i].at(0.99)), number((all[i].at(0.5)-base)/mostGoverned*100)+" %")
	}
	return t, nil
}

// governed are calls of one verb with more and more before it, nothing first.
func governed(ctx context.Context, dir string) (subjects []subject, done func() error, err error) {
	db, err := store.Open(ctx, filepath.Join(dir, "hutch.db"))
	if err != nil {
		return nil, nil, err
	}
	tokens, err := auth.Open(ctx, auth.Options{Shelf: db.Shelf("tokens")})
	if err != nil {
		return nil, nil, err
	}
	minted, err := tokens.CreateToken(ctx, hutch.TokenRequest{Name: "bench", Limits: hutch.TokenLimits{Operations: 1 << 30, Requests: 1 << 30}})
	if err != nil {
		return nil, nil, err
	}
	open := func(window time.Duration, name string) (*quota.Meter, error) {
		return quota.Open(ctx, quota.Options{Shelf: db.Shelf(name), Window: window, What: name, Limit: name})
	}
	requests, err1 := open(time.Minute, "requests")
	operations, err2 := open(time.Hour, "operations")
	record, err3 := audit.Open(ctx, audit.Options{Dir: filepath.Join(dir, "audit")})
	svc := &scripted.Service{OnExec: func(context.Context, string, hutch.ExecRequest, func(hutch.Output) error) (hutch.ExecResult, error) {
		return hutch.ExecResult{}, nil
	}}
	_, err4 := svc.Create(ctx, hutch.CreateRequest{ID: "box"})
	plain, err5 := policy.New(ctx, svc, policy.Options{Tokens: tokens})
	counted, err6 := policy.New(ctx, svc, policy.Options{Tokens: tokens, Operations: operations})
	whole, err7 := policy.New(ctx, svc, policy.Options{Tokens: tokens, Operations: operations, Observer: audit.Observers{metrics.New(metrics.Options{}), record}})
	if err := errors.Join(err1, err2, err3, err4, err5, err6, err7); err != nil {
		return nil, nil, err
	}
	// through is a call as a request makes it: with a token to look up.
	through := func(name string, svc hutch.Service, requests *quota.Meter) subject {
		return subject{name, func(ctx context.Context, _ int) error {
			who, err := tokens.Check(ctx, minted.Secret)
			if err != nil {
				return err
			}
			if requests != nil {
				if _, err := requests.Take(ctx, who.ID, who.Limits.Requests); err != nil {
					return err
				}
			}
			return runIn(auth.With(ctx, who), svc, "box", program)
		}}
	}
	return []subject{
			{"nothing", func(ctx context.Context, _ int) error { return runIn(ctx, svc, "box", program) }},
			through("token and policy", plain, nil),
			through("and quotas", counted, requests),
			through("and metrics and audit, on disk", whole, requests),
		}, func() error {
			return errors.Join(operations.Close(ctx), requests.Close(ctx), record.Close(), db.Close())
		}, nil
}
