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
	"hutch/internal/caller"
	"hutch/internal/fakeservice"
	"hutch/internal/metrics"
	"hutch/internal/policy"
	"hutch/internal/quota"
	"hutch/internal/store"
)

// mostGoverned is how much all layers in front of a call can add to it.
const mostGoverned = 0.15 // ms

// governance measures the layers in front of every call, with a service that does nothing: the difference is their
// cost.
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

// layers has the layers in front of a server's calls.
type layers struct {
	db                   *store.Store
	tokens               *auth.Registry
	requests, operations *quota.Meter
	record               *audit.Log
}

func openLayers(ctx context.Context, dir string) (h *layers, err error) {
	h = &layers{}
	if h.db, err = store.Open(ctx, filepath.Join(dir, "hutch.db")); err != nil {
		return nil, err
	}
	meter := func(window time.Duration, name string) *quota.Meter {
		m, failed := quota.Open(ctx, quota.Options{Collection: h.db.Collection(name), Window: window, What: name, Limit: name})
		err = errors.Join(err, failed)
		return m
	}
	h.requests, h.operations = meter(time.Minute, "requests"), meter(time.Hour, "operations")
	var err1, err2 error
	h.tokens, err1 = auth.Open(ctx, auth.Options{Collection: h.db.Collection("tokens"), Local: token, LocalLimits: plenty})
	h.record, err2 = audit.Open(ctx, audit.Options{Dir: filepath.Join(dir, "audit")})
	return h, errors.Join(err, err1, err2)
}

// plenty has limits that are counted but never reached.
var plenty = hutch.TokenLimits{Operations: 1 << 30, Requests: 1 << 30, Sandboxes: 1 << 30}

// observers returns the same observers as `hutch serve`, on disk.
func (h *layers) observers() audit.Observers {
	return audit.Observers{metrics.New(metrics.Options{}), h.record}
}

func (h *layers) close(ctx context.Context) error {
	return errors.Join(h.operations.Close(ctx), h.requests.Close(ctx), h.record.Close(), h.db.Close())
}

// governed returns calls of one verb with more and more layers, the first with none.
func governed(ctx context.Context, dir string) (subjects []subject, done func() error, err error) {
	h, err := openLayers(ctx, dir)
	if err != nil {
		return nil, nil, err
	}
	svc := &fakeservice.Service{OnExec: func(context.Context, string, hutch.ExecRequest, func(hutch.Output) error) (hutch.ExecResult, error) {
		return hutch.ExecResult{}, nil
	}}
	_, err1 := svc.Create(ctx, hutch.CreateRequest{ID: "box"})
	plain, err2 := policy.New(ctx, svc, policy.Options{Tokens: h.tokens})
	counted, err3 := policy.New(ctx, svc, policy.Options{Tokens: h.tokens, Operations: h.operations})
	whole, err4 := policy.New(ctx, svc, policy.Options{Tokens: h.tokens, Operations: h.operations, Observer: h.observers()})
	if err := errors.Join(err1, err2, err3, err4); err != nil {
		return nil, nil, err
	}
	// through returns a call as a request makes it: with a token to look up.
	through := func(name string, svc hutch.Service, requests *quota.Meter) subject {
		return subject{name, func(ctx context.Context, _ int) error {
			who, err := h.tokens.Check(ctx, token)
			if err != nil {
				return err
			}
			if requests != nil {
				if _, err := requests.Take(ctx, who.ID, who.Limits.Requests); err != nil {
					return err
				}
			}
			return runIn(caller.As(ctx, who), svc, "box", program)
		}}
	}
	return []subject{
		{"nothing", func(ctx context.Context, _ int) error { return runIn(ctx, svc, "box", program) }},
		through("token and policy", plain, nil),
		through("and quotas", counted, h.requests),
		through("and metrics and audit, on disk", whole, h.requests),
	}, func() error { return h.close(ctx) }, nil
}
