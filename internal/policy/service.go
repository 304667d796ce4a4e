package policy

import (
	"context"

	"hutch"
	"hutch/internal/audit"
	"hutch/internal/caller"
	"hutch/internal/verb"
	"hutch/internal/wrap"
)

// Sandboxes implements hutch.Service. The list includes sandboxes that others have shared with the caller.
func (p *Policy) Sandboxes(ctx context.Context, f hutch.Filter) ([]hutch.Sandbox, error) {
	return wrap.Around(ctx, p.around, verb.Call{Verb: "Sandboxes", Request: f}, func(ctx context.Context) ([]hutch.Sandbox, error) {
		return p.list(ctx, caller.From(ctx).Principal, f)
	})
}

// Usage implements hutch.Accounts: an administrator sees the usage of all owners, another caller its own.
func (p *Policy) Usage(ctx context.Context) (hutch.UsageReport, error) {
	return wrap.Around(ctx, p.around, verb.Call{Verb: "Usage"}, func(ctx context.Context) (hutch.UsageReport, error) {
		if caller.From(ctx).Principal.Has(hutch.ScopeAdmin) {
			ctx = caller.WithoutOwner(ctx)
		}
		return p.opt.Accounts.Usage(ctx)
	})
}

// UsageHistory implements hutch.Accounts, for the same owners as Usage.
func (p *Policy) UsageHistory(ctx context.Context, q hutch.UsageQuery) ([]hutch.Usage, error) {
	return wrap.Around(ctx, p.around, verb.Call{Verb: "UsageHistory", Request: q}, func(ctx context.Context) ([]hutch.Usage, error) {
		if caller.From(ctx).Principal.Has(hutch.ScopeAdmin) {
			ctx = caller.WithoutOwner(ctx)
		}
		return p.opt.Accounts.UsageHistory(ctx, q)
	})
}

// Stats implements hutch.Accounts, for the same sandboxes as Usage.
func (p *Policy) Stats(ctx context.Context, req hutch.StatsRequest, out func(hutch.StatsReport) error) error {
	return wrap.AroundError(ctx, p.around, verb.Call{Verb: "Stats", Request: req}, func(ctx context.Context) error {
		if caller.From(ctx).Principal.Has(hutch.ScopeAdmin) {
			ctx = caller.WithoutOwner(ctx)
		}
		return p.opt.Accounts.Stats(ctx, req, out)
	})
}

// Timeline implements hutch.Timelines.
func (p *Policy) Timeline(ctx context.Context, sandbox string, q hutch.TimelineQuery, out func(hutch.TimelineEntry) error) error {
	return wrap.AroundError(ctx, p.around, verb.Call{Verb: "Timeline", Sandbox: sandbox, Request: q}, func(ctx context.Context) error {
		return p.opt.Timelines.Timeline(ctx, sandbox, q, out)
	})
}

// StatsHistory implements hutch.Histories.
func (p *Policy) StatsHistory(ctx context.Context, sandbox string, q hutch.StatsQuery) (hutch.StatsHistory, error) {
	return wrap.Around(ctx, p.around, verb.Call{Verb: "StatsHistory", Sandbox: sandbox, Request: q}, func(ctx context.Context) (hutch.StatsHistory, error) {
		return p.opt.Histories.StatsHistory(ctx, sandbox, q)
	})
}

// Pool implements hutch.Pools.
func (p *Policy) Pool(ctx context.Context) (hutch.PoolState, error) {
	return wrap.Around(ctx, p.around, verb.Call{Verb: "Pool"}, p.opt.Pools.Pool)
}

// CheckpointAll implements hutch.Checkpoints.
func (p *Policy) CheckpointAll(ctx context.Context, out func(hutch.Checkpoint) error) error {
	return wrap.AroundError(ctx, p.around, verb.Call{Verb: "CheckpointAll"}, func(ctx context.Context) error {
		return p.opt.Checkpoints.CheckpointAll(ctx, out)
	})
}

// Examine implements hutch.Examiner.
func (p *Policy) Examine(ctx context.Context) (hutch.Examination, error) {
	return wrap.Around(ctx, p.around, verb.Call{Verb: "Examine"}, p.opt.Examiner.Examine)
}

// VerifyAudit implements hutch.Examiner.
func (p *Policy) VerifyAudit(ctx context.Context, head string) (hutch.AuditVerification, error) {
	return wrap.Around(ctx, p.around, verb.Call{Verb: "VerifyAudit", Target: head}, func(ctx context.Context) (hutch.AuditVerification, error) {
		return p.opt.Examiner.VerifyAudit(ctx, head)
	})
}

// Owners implements hutch.Owners.
func (p *Policy) Owners(ctx context.Context) ([]hutch.Owned, error) {
	return wrap.Around(ctx, p.around, verb.Call{Verb: "Owners"}, p.opt.Owners.Owners)
}

// DeleteOwner implements hutch.Owners.
func (p *Policy) DeleteOwner(ctx context.Context, owner string) (hutch.Owned, error) {
	return wrap.Around(ctx, p.around, verb.Call{Verb: "DeleteOwner", Target: owner}, func(ctx context.Context) (hutch.Owned, error) {
		return p.opt.Owners.DeleteOwner(ctx, owner)
	})
}

// Ask implements hutch.Questions. Its calls in a sandbox are part of this call, so a question is recorded and counted
// once.
func (p *Policy) Ask(ctx context.Context, q hutch.Question, out func(hutch.AnswerEvent) error) (hutch.Answer, error) {
	return wrap.Around(ctx, p.around, verb.Call{Verb: "Ask", Sandbox: q.SandboxID(), Target: q.Question, Request: q}, func(ctx context.Context) (hutch.Answer, error) {
		return p.opt.Questions.Ask(ctx, q, out)
	})
}

// Query implements audit.Reader.
func (p *Policy) Query(ctx context.Context, q audit.Query, out func(audit.Record) error) error {
	return wrap.AroundError(ctx, p.around, verb.Call{Verb: "Audit"}, func(ctx context.Context) error { return p.opt.Audit.Query(ctx, q, out) })
}

// Follow implements audit.Reader.
func (p *Policy) Follow(ctx context.Context, q audit.Query, out func(audit.Record) error) error {
	return wrap.AroundError(ctx, p.around, verb.Call{Verb: "Audit", Target: "follow"}, func(ctx context.Context) error { return p.opt.Audit.Follow(ctx, q, out) })
}

// Metrics returns an error unless the caller can read the server's metrics.
func (p *Policy) Metrics(ctx context.Context) error {
	_, _, err := p.admit(ctx, caller.From(ctx).Principal, verb.Call{Verb: "Metrics"})
	return err
}
