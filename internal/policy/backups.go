package policy

import (
	"context"

	"hutch"
)

// Backup implements hutch.Backups.
func (p *Policy) Backup(ctx context.Context, sandbox string, req hutch.BackupRequest) (hutch.Backup, error) {
	return do(ctx, p, call{verb: "Backup", sandbox: sandbox, target: req.Dir}, func(ctx context.Context) (hutch.Backup, error) {
		return p.opt.Backups.Backup(ctx, sandbox, req)
	})
}

// Backups implements hutch.Backups.
func (p *Policy) Backups(ctx context.Context) ([]hutch.Backup, error) {
	return do(ctx, p, call{verb: "Backups"}, func(ctx context.Context) ([]hutch.Backup, error) {
		return p.opt.Backups.Backups(ctx)
	})
}

// RestoreBackup implements hutch.Backups.
func (p *Policy) RestoreBackup(ctx context.Context, backup string, req hutch.RestoreBackupRequest) error {
	return carry(ctx, p, call{verb: "RestoreBackup", sandbox: req.SandboxID, target: backup}, func(ctx context.Context) error {
		return p.opt.Backups.RestoreBackup(ctx, backup, req)
	})
}

// DeleteBackup implements hutch.Backups.
func (p *Policy) DeleteBackup(ctx context.Context, backup string) error {
	return carry(ctx, p, call{verb: "DeleteBackup", target: backup}, func(ctx context.Context) error {
		return p.opt.Backups.DeleteBackup(ctx, backup)
	})
}
