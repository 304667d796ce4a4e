package secret

import (
	"context"

	"hutch"
)

// Snapshot implements hutch.Snapshots.
func (v *Veil) Snapshot(ctx context.Context, sandbox string, req hutch.SnapshotRequest) (hutch.Snapshot, error) {
	return clean[hutch.Snapshot](ctx, v)(v.svc.Snapshot(ctx, sandbox, req))
}

// Snapshots implements hutch.Snapshots.
func (v *Veil) Snapshots(ctx context.Context) ([]hutch.Snapshot, error) {
	return clean[[]hutch.Snapshot](ctx, v)(v.svc.Snapshots(ctx))
}

// DeleteSnapshot implements hutch.Snapshots.
func (v *Veil) DeleteSnapshot(ctx context.Context, snapshot string) error {
	return v.error(ctx, v.svc.DeleteSnapshot(ctx, snapshot))
}

// Fork implements hutch.Snapshots.
func (v *Veil) Fork(ctx context.Context, sandbox string, req hutch.ForkRequest) ([]hutch.Sandbox, error) {
	return clean[[]hutch.Sandbox](ctx, v)(v.svc.Fork(ctx, sandbox, req))
}

// Pause implements hutch.Snapshots.
func (v *Veil) Pause(ctx context.Context, sandbox string) (hutch.Sandbox, error) {
	return clean[hutch.Sandbox](ctx, v)(v.svc.Pause(ctx, sandbox))
}

// Resume implements hutch.Snapshots.
func (v *Veil) Resume(ctx context.Context, sandbox string) (hutch.Sandbox, error) {
	return clean[hutch.Sandbox](ctx, v)(v.svc.Resume(ctx, sandbox))
}
