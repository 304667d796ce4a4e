package hutch

import "context"

// Owners is the administration of the data of owners. An owner is a token, or a person who signs in through the
// server's issuer. Data is kept when the token ends. Owners needs the scope admin.
type Owners interface {
	// Owners lists the owners that have data or a token, by id. The server's own owner is not in the list.
	Owners(ctx context.Context) ([]Owned, error)
	// DeleteOwner deletes all data of an owner: sandboxes, even busy ones, then snapshots, images, volumes, backups and
	// secrets. It returns what is left, which is nothing unless there was an error. While a token of the owner is
	// valid, the error is Conflict. DeleteOwner is idempotent.
	DeleteOwner(ctx context.Context, owner string) (Owned, error)
}

// Owned says how much an owner has.
type Owned struct {
	Owner     string `json:"owner"`
	Name      string `json:"name,omitempty"` // name of its token
	Live      bool   `json:"live"`           // it has a valid token
	Sandboxes int    `json:"sandboxes"`
	Snapshots int    `json:"snapshots"` // and templates
	Images    int    `json:"images"`
	Volumes   int    `json:"volumes"`
	Backups   int    `json:"backups"`
	Secrets   int    `json:"secrets"`
	Size      int64  `json:"size"` // bytes of snapshots, images, volumes and backups
}
