package fleet

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"

	"github.com/jackc/pgx/v5"

	"hutch/internal/store"
)

// BackupPart describes the tables of the directory, for the store, which makes backups of the database.
func BackupPart() store.Part {
	return store.Part{Find: findSchema, Tables: []store.Table{
		{Name: "fleet_authority", Columns: []string{"one", "certificate", "sealed_key"}},
		{Name: "fleet_nodes", Columns: []string{
			"id", "address", "version", "state", "certificate", "labels", "joined", "lease_until", "epoch", "memory", "cpu", "most",
			"promised_memory", "promised_cpu", "promised", "machine", "snapshots", "taints", "understands",
		}},
		{Name: "fleet_holders", Columns: []string{"owner", "id", "node", "memory", "cpu", "awake", "placed", "about", "here", "image", "stays", "checkpoint", "fetcher"}},
		{Name: "fleet_renewals", Columns: []string{"node", "count"}},
		{Name: "fleet_starts", Columns: []string{"node", "epoch", "started"}},
		{Name: "fleet_tokens", Columns: []string{"hash", "expires"}},
		{Name: "fleet_restores", Columns: []string{"number", "id"}},
		{Name: "fleet_snapshots", Columns: []string{"id", "owner", "node", "record", "image", "stays"}},
		{Name: "fleet_snapshot_copies", Columns: []string{"node", "id"}},
	}, Create: createTables, Restored: fence}
}

// fence ends all leases in a restored database. No node of the backup is alive there, so calls never go to the address
// of a server that still uses the original database. A process that had a lease in this database before the restore
// emptied it has an outdated epoch, so it is no longer a node. The leases end at the time of the restore, not of the
// backup: nodes that start one after another have the usual time to do so before other nodes take over their sandboxes
// from the bucket. The restore is recorded: the bucket can then distinguish the original fleet from the restored one.
func fence(ctx context.Context, tx pgx.Tx) error {
	if _, err := tx.Exec(ctx, "UPDATE fleet_nodes SET lease_until = clock_timestamp(), epoch = epoch + 1 WHERE epoch > 0"); err != nil {
		return err
	}
	_, err := tx.Exec(ctx, "INSERT INTO fleet_restores (number, id) SELECT coalesce(max(number), 0) + 1, $1 FROM fleet_restores", rand.Text())
	return err
}

// lineage returns the identity of the fleet in this database.
func (d *Directory) lineage(ctx context.Context) (lineage, error) {
	var authority string
	err := d.db.QueryRow(ctx, "SELECT certificate FROM fleet_authority").Scan(&authority)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, errNoFleet
	}
	if err != nil {
		return nil, databaseError(err)
	}
	print, err := fingerprint(authority)
	if err != nil {
		return nil, err
	}
	rows, err := d.db.Query(ctx, "SELECT id FROM fleet_restores ORDER BY number")
	if err != nil {
		return nil, databaseError(err)
	}
	restores, err := pgx.CollectRows(rows, pgx.RowTo[string])
	return append(lineage{hex.EncodeToString(print)}, restores...), databaseError(err)
}

// identifyDatabase returns a text that differs between this database and a copy of its rows in another one, or "". It
// is the same after a failover to a physical replica.
func (d *Directory) identifyDatabase(ctx context.Context) (id string) {
	d.db.QueryRow(ctx, "SELECT s.system_identifier || '/' || d.oid FROM pg_control_system() s, pg_database d WHERE d.datname = current_database()").Scan(&id)
	return id
}

// createTables creates the tables of the directory where they are missing.
func createTables(ctx context.Context, tx pgx.Tx) error {
	if err := lockTables(ctx, tx); err != nil {
		return err
	}
	for _, s := range []string{schema, transitSchema, snapshotSchema, taintSchema, abilitySchema} {
		if _, err := tx.Exec(ctx, s); err != nil {
			return err
		}
	}
	return nil
}
