package daemon

import (
	"context"

	"hutch/internal/datadir"
	"hutch/internal/fleet"
	"hutch/internal/secret"
	"hutch/internal/store"
)

// SharedStore reports whether the state of a server's folder is in a shared database. If so, it returns the folder's
// membership in the installation there, and the URL of the database if the folder contains it.
func SharedStore(dir string) (member datadir.Membership, url string, shares bool, err error) {
	member, shares, err = datadir.ReadMembership(dir)
	if !shares || err != nil {
		return member, "", shares, err
	}
	path := datadir.NodeIdentity(dir)
	if !exists(path) {
		return member, "", true, nil
	}
	id, err := fleet.ReadIdentity(path)
	if err != nil {
		return member, "", true, err
	}
	return member, id.Store, true, nil
}

// OpenBackup connects to the database of an installation, for a backup. Servers can use the database meanwhile.
func OpenBackup(ctx context.Context, url, installation string, key *secret.Key) (*store.Backup, error) {
	return store.OpenBackup(ctx, store.Options{URL: url, Installation: installation, Key: key.Derive(storePurpose)}, fleet.BackupPart())
}

// BeginRestore begins to restore the backup with an id into an empty database.
func BeginRestore(ctx context.Context, url, id string, key *secret.Key) (*store.Restore, error) {
	return store.BeginRestore(ctx, store.Options{URL: url, Key: key.Derive(storePurpose)}, id, fleet.BackupPart())
}

// ChangeStore replaces the URL of the database in a server's folder, if the folder contains it.
func ChangeStore(dir, url string) error {
	path := datadir.NodeIdentity(dir)
	if !exists(path) {
		return nil
	}
	id, err := fleet.ReadIdentity(path)
	if err != nil {
		return err
	}
	id.Store = url
	return id.Replace(path)
}
