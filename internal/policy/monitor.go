package policy

import (
	"context"

	"hutch"
	"hutch/internal/audit"
	"hutch/internal/auth"
)

// Usage implements hutch.Accounts: an administrator sees what all have used,
// another what is its own.
func (p *Policy) Usage(ctx context.Context) (hutch.UsageReport, error) {
	return do(ctx, p, call{verb: "Usage"}, func(ctx context.Context) (hutch.UsageReport, error) {
		if auth.From(ctx).Has(hutch.ScopeAdmin) {
			ctx = hutch.WithoutOwner(ctx)
		}
		return p.opt.Accounts.Usage(ctx)
	})
}

// Pool implements hutch.Pools.
func (p *Policy) Pool(ctx context.Context) (hutch.PoolState, error) {
	return do(ctx, p, call{verb: "Pool"}, p.opt.Pools.Pool)
}

// Query implements audit.Reader.
func (p *Policy) Query(ctx context.Context, q audit.Query, out func(audit.Record) error) error {
	return carry(ctx, p, call{verb: "Audit"}, func(ctx context.Context) error { return p.opt.Audit.Query(ctx, q, out) })
}

// Follow implements audit.Reader.
func (p *Policy) Follow(ctx context.Context, q audit.Query, out func(audit.Record) error) error {
	return carry(ctx, p, call{verb: "Audit", target: "follow"}, func(ctx context.Context) error { return p.opt.Audit.Follow(ctx, q, out) })
}

// Metrics is asked by whoever reads the server's metrics.
func (p *Policy) Metrics(ctx context.Context) error {
	_, err := p.admit(ctx, auth.From(ctx), call{verb: "Metrics"})
	return err
}
