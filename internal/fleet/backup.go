package fleet

import (
	"context"

	"github.com/jackc/pgx/v5"

	"hutch/internal/store"
)

// BackupPart is the directory in a backup of the database, which the store makes.
func BackupPart() store.Part {
	return store.Part{Tables: []store.Table{
		{Name: "fleet_authority", Columns: []string{"one", "certificate", "sealed_key"}},
		{Name: "fleet_nodes", Columns: []string{
			"id", "address", "version", "state", "certificate", "labels", "joined", "lease_until", "epoch", "memory", "cpu", "most",
			"promised_memory", "promised_cpu", "promised", "machine",
		}},
		{Name: "fleet_holders", Columns: []string{"owner", "id", "node", "memory", "cpu", "awake", "placed", "about", "here", "image", "stays", "checkpoint"}},
		{Name: "fleet_renewals", Columns: []string{"node", "count"}},
		{Name: "fleet_starts", Columns: []string{"node", "epoch", "started"}},
		{Name: "fleet_tokens", Columns: []string{"hash", "expires"}},
	}, Create: createTables, Restored: fence}
}

// fence ends all leases in a database that was restored. No node of the backup is alive there, so no call goes to the address of a server
// that still uses the original database. A process that had a lease in this database before it was emptied is not the node any more: its
// epoch is over. The leases end now and not when the backup was made: nodes that start one after another have the usual time before
// others take over their sandboxes from the bucket.
func fence(ctx context.Context, tx pgx.Tx) error {
	_, err := tx.Exec(ctx, "UPDATE fleet_nodes SET lease_until = clock_timestamp(), epoch = epoch + 1 WHERE epoch > 0")
	return err
}

// createTables creates the tables of the directory where they are missing.
func createTables(ctx context.Context, tx pgx.Tx) error {
	if err := lockTables(ctx, tx); err != nil {
		return err
	}
	if _, err := tx.Exec(ctx, schema); err != nil {
		return err
	}
	_, err := tx.Exec(ctx, transitSchema)
	return err
}
