package client

import (
	"context"

	"hutch"
)

var _ hutch.Backups = (*Client)(nil)

// Backup implements hutch.Backups.
func (c *Client) Backup(ctx context.Context, sandbox string, req hutch.BackupRequest) (hutch.Backup, error) {
	if err := checkText(req.Name, req.Dir, nil); err != nil {
		return hutch.Backup{}, err
	}
	return call[hutch.Backup](ctx, c, at("Backup", sandbox).check(req.Check()), req)
}

// Backups implements hutch.Backups.
func (c *Client) Backups(ctx context.Context) ([]hutch.Backup, error) {
	return call[[]hutch.Backup](ctx, c, at("Backups"), nil)
}

// RestoreBackup implements hutch.Backups.
func (c *Client) RestoreBackup(ctx context.Context, backup string, req hutch.RestoreBackupRequest) error {
	err := hutch.CheckID(backup)
	if err == nil {
		err = checkText("", req.Dir, nil)
	}
	if err == nil {
		_, err = call[struct{}](ctx, c, at("RestoreBackup", backup), req)
	}
	return err
}

// DeleteBackup implements hutch.Backups.
func (c *Client) DeleteBackup(ctx context.Context, backup string) error {
	err := hutch.CheckID(backup)
	if err == nil {
		_, err = call[struct{}](ctx, c, at("DeleteBackup", backup), nil)
	}
	return err
}

// Backup copies a folder of the sandbox into the server's backups.
func (s *Sandbox) Backup(ctx context.Context, req hutch.BackupRequest) (hutch.Backup, error) {
	return s.client.Backup(ctx, s.ID, req)
}

// RestoreBackup replaces the content of dir with a backup. An empty dir means the folder that the backup was made from.
func (s *Sandbox) RestoreBackup(ctx context.Context, backup, dir string) error {
	return s.client.RestoreBackup(ctx, backup, hutch.RestoreBackupRequest{SandboxID: s.ID, Dir: dir})
}
