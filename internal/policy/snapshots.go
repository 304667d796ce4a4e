package policy

import (
	"context"

	"hutch"
	"hutch/internal/auth"
)

// Snapshot implements hutch.Snapshots. What is shared with all has all that was
// in memory: that is for an administrator to decide.
func (p *Policy) Snapshot(ctx context.Context, sandbox string, req hutch.SnapshotRequest) (hutch.Snapshot, error) {
	return do(ctx, p, call{verb: "Snapshot", sandbox: sandbox, target: req.Name}, func(ctx context.Context) (hutch.Snapshot, error) {
		if req.Shared && !auth.From(ctx).Has(hutch.ScopeAdmin) {
			return hutch.Snapshot{}, hutch.Errorf(hutch.Denied, "to share a snapshot with all needs the scope admin: leave shared out, or ask an administrator")
		}
		return p.next.Snapshot(ctx, sandbox, req)
	})
}

// Snapshots implements hutch.Snapshots.
func (p *Policy) Snapshots(ctx context.Context) ([]hutch.Snapshot, error) {
	return do(ctx, p, call{verb: "Snapshots"}, func(ctx context.Context) ([]hutch.Snapshot, error) {
		return p.next.Snapshots(ctx)
	})
}

// DeleteSnapshot implements hutch.Snapshots.
func (p *Policy) DeleteSnapshot(ctx context.Context, snapshot string) error {
	return carry(ctx, p, call{verb: "DeleteSnapshot", target: snapshot}, func(ctx context.Context) error {
		return p.next.DeleteSnapshot(ctx, snapshot)
	})
}

// Fork implements hutch.Snapshots.
func (p *Policy) Fork(ctx context.Context, sandbox string, req hutch.ForkRequest) ([]hutch.Sandbox, error) {
	return do(ctx, p, call{verb: "Fork", sandbox: sandbox}, func(ctx context.Context) ([]hutch.Sandbox, error) {
		return p.next.Fork(ctx, sandbox, req)
	})
}

// Pause implements hutch.Snapshots.
func (p *Policy) Pause(ctx context.Context, sandbox string) (hutch.Sandbox, error) {
	return do(ctx, p, call{verb: "Pause", sandbox: sandbox}, func(ctx context.Context) (hutch.Sandbox, error) {
		return p.next.Pause(ctx, sandbox)
	})
}

// Resume implements hutch.Snapshots.
func (p *Policy) Resume(ctx context.Context, sandbox string) (hutch.Sandbox, error) {
	return do(ctx, p, call{verb: "Resume", sandbox: sandbox}, func(ctx context.Context) (hutch.Sandbox, error) {
		return p.next.Resume(ctx, sandbox)
	})
}
