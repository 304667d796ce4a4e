package policy_test

import (
	"context"
	"errors"
	"testing"

	"hutch"
	"hutch/internal/audit"
	"hutch/internal/caller"
	"hutch/internal/policy"
)

// readings records for which owner it is called.
type readings struct {
	owner caller.Owner
	named bool
}

func (b *readings) Usage(ctx context.Context) (hutch.UsageReport, error) {
	b.owner, b.named = caller.OwnerOf(ctx)
	return hutch.UsageReport{}, nil
}

func (b *readings) UsageHistory(ctx context.Context, _ hutch.UsageQuery) ([]hutch.Usage, error) {
	b.owner, b.named = caller.OwnerOf(ctx)
	return nil, nil
}

func (b *readings) Stats(ctx context.Context, _ hutch.StatsRequest, _ func(hutch.StatsReport) error) error {
	b.owner, b.named = caller.OwnerOf(ctx)
	return nil
}

func (b *readings) Pool(context.Context) (hutch.PoolState, error) { return hutch.PoolState{}, nil }

func (b *readings) Examine(context.Context) (hutch.Examination, error) {
	return hutch.Examination{}, nil
}
func (b *readings) VerifyAudit(context.Context, string) (hutch.AuditVerification, error) {
	return hutch.AuditVerification{}, nil
}

func (b *readings) Query(context.Context, audit.Query, func(audit.Record) error) error  { return nil }
func (b *readings) Follow(context.Context, audit.Query, func(audit.Record) error) error { return nil }

// Only admins read the audit log; every owner reads its own usage.
func TestMonitoring(t *testing.T) {
	t.Parallel()
	var b readings
	p, err := policy.New(t.Context(), nowhere{}, policy.Options{Accounts: &b, Audit: &b, Pools: &b, Examiner: &b})
	if err != nil {
		t.Fatal(err)
	}
	for _, admin := range []bool{false, true} {
		who := &caller.Principal{ID: "tk-1", Name: "ada", Owner: "tk-1", Scopes: []hutch.Scope{hutch.ScopeRead}, Limits: caller.Unlimited}
		if admin {
			who.Scopes = append(who.Scopes, hutch.ScopeAdmin)
		}
		ctx := caller.As(t.Context(), who)
		_, pool := p.Pool(ctx)
		_, examine := p.Examine(ctx)
		_, verify := p.VerifyAudit(ctx, "")
		for name, err := range map[string]error{
			"query": p.Query(ctx, audit.Query{}, nil), "follow": p.Follow(ctx, audit.Query{}, nil), "metrics": p.Metrics(ctx), "pool": pool, "examine": examine, "verify": verify,
		} {
			if errors.Is(err, hutch.Denied) == admin {
				t.Errorf("%s, admin %v: %v", name, admin, err)
			}
		}
		if _, err := p.UsageHistory(ctx, hutch.UsageQuery{}); err != nil || b.named == admin || b.named && b.owner.ID != "tk-1" {
			t.Errorf("admin %v: the history of %+v (named: %v): %v", admin, b.owner, b.named, err)
		}
		b = readings{}
		if _, err := p.Usage(ctx); err != nil || b.named == admin || b.named && b.owner.ID != "tk-1" {
			t.Errorf("admin %v: as %+v %v, %v", admin, b.owner, b.named, err)
		}
		b = readings{}
		if err := p.Stats(ctx, hutch.StatsRequest{}, nil); err != nil || b.named == admin || b.named && b.owner.ID != "tk-1" {
			t.Errorf("stats, admin %v: as %+v %v, %v", admin, b.owner, b.named, err)
		}
	}
	if _, err := p.Usage(t.Context()); !errors.Is(err, hutch.Denied) {
		t.Errorf("of nobody: %v", err)
	}
	if err := p.Stats(t.Context(), hutch.StatsRequest{}, nil); !errors.Is(err, hutch.Denied) {
		t.Errorf("stats of nobody: %v", err)
	}
}
