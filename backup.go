package hutch

import (
	"context"
	"time"
)

// Backups are copies of folders, kept by the server apart from the sandboxes
// they came from, which they outlive. Each owner has its own. They hold files:
// of memory and processes a snapshot is the copy.
//
// Errors: NotFound for a backup that is not there, or has expired; Exhausted
// when the owner's backups take all the room that the server gives them;
// Unsupported when the server keeps none; and those of [Files].
type Backups interface {
	// Backup copies a folder and all that is in it, but for pipes, sockets
	// and devices, while the sandbox runs. A failed one leaves nothing.
	Backup(ctx context.Context, sandbox string, req BackupRequest) (Backup, error)

	// Backups lists the caller's backups, oldest first.
	Backups(ctx context.Context) ([]Backup, error)

	// RestoreBackup makes a folder what it was: what is in it now goes, once
	// all of the backup has arrived whole beside it. On any error before that
	// the folder is as it was.
	RestoreBackup(ctx context.Context, backup string, req RestoreBackupRequest) error

	// DeleteBackup removes a backup. One that is gone is NotFound.
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

// maxBackupTTL keeps the end of a backup among the years that JSON can write.
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

// RestoreBackupRequest says where a backup is to go.
type RestoreBackupRequest struct {
	SandboxID string `json:"sandboxId"`
	Dir       string `json:"dir,omitempty"` // default: where it came from
}

// Backup is a copy of a folder.
type Backup struct {
	ID        string     `json:"id"`
	Name      string     `json:"name,omitempty"`
	SandboxID string     `json:"sandboxId"` // that it is of
	Dir       string     `json:"dir"`
	Size      int64      `json:"size"` // bytes that it takes, compressed
	CreatedAt time.Time  `json:"createdAt"`
	ExpiresAt *time.Time `json:"expiresAt,omitempty"`
}
