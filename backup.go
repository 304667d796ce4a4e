package hutch

import (
	"context"
	"time"
)

// Backups are copies of folders. The server keeps them apart from their sandboxes, and they outlive the sandboxes. Each
// owner has separate backups. A backup holds files only; a snapshot also holds memory and processes.
//
// Errors: NotFound for a backup that does not exist or has expired; Exhausted when the owner's backups fill the space
// that the server gives them; Unsupported when the server keeps no backups; and those of [Files].
type Backups interface {
	// Backup copies a folder with everything in it except pipes, sockets and devices, while the sandbox runs. If it
	// fails, it leaves nothing behind.
	Backup(ctx context.Context, sandbox string, req BackupRequest) (Backup, error)

	// Backups lists the caller's backups, oldest first.
	Backups(ctx context.Context) ([]Backup, error)

	// RestoreBackup replaces the content of a folder with the backup. The backup is first unpacked into a separate
	// folder; the old content is removed when the backup is complete. On an earlier error the folder does not change.
	RestoreBackup(ctx context.Context, backup string, req RestoreBackupRequest) error

	// DeleteBackup removes a backup. A backup that does not exist is NotFound.
	DeleteBackup(ctx context.Context, backup string) error
}

// BackupRequest asks for a backup.
type BackupRequest struct {
	Dir  string  `json:"dir,omitempty"`  // default /workspace
	Name string  `json:"name,omitempty"` // for people; at most 256 bytes
	TTL  Seconds `json:"ttl,omitempty"`  // how long it is kept; default: until it is deleted
}

// MaxBackupName is the longest name of a backup, in bytes.
const MaxBackupName = 256

// maxBackupTTL limits the lifetime so that JSON can write the year in which a backup expires.
const maxBackupTTL = Seconds(100 * 365 * 24 * 3600)

// Check refuses a request that no server can answer.
func (r BackupRequest) Check() error {
	switch {
	case len(r.Name) > MaxBackupName:
		return Errorf(Invalid, "the name has %d bytes: use at most %d", len(r.Name), MaxBackupName).Naming(AboutField, "name")
	case !(0 <= r.TTL && r.TTL <= maxBackupTTL):
		return Errorf(Invalid, "ttl is %v s: give 0, to keep it until it is deleted, to %.0f", r.TTL, float64(maxBackupTTL)).Naming(AboutField, "ttl")
	}
	return nil
}

// RestoreBackupRequest says which folder a backup is restored to.
type RestoreBackupRequest struct {
	SandboxID string `json:"sandboxId"`
	Dir       string `json:"dir,omitempty"` // default: the folder that was backed up
}

// Backup is a copy of a folder.
type Backup struct {
	ID        string     `json:"id"`
	Name      string     `json:"name,omitempty"`
	SandboxID string     `json:"sandboxId"` // the sandbox that was backed up
	Dir       string     `json:"dir"`
	Size      int64      `json:"size"` // compressed size in bytes
	CreatedAt time.Time  `json:"createdAt"`
	ExpiresAt *time.Time `json:"expiresAt,omitempty"`
}
