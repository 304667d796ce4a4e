package fleet

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"

	"github.com/jackc/pgx/v5"

	"hutch/internal/store"
)

// BackupPart is the directory in a backup of the database, which the store makes.
func BackupPart() store.Part {
	return store.Part{Find: findSchema, Tables: []store.Table{
		{Name: "fleet_authority", Columns: []string{"one", "certificate", "sealed_key"}},
		{Name: "fleet_nodes", Columns: []string{
			"id", "address", "version", "state", "certificate", "labels", "joined", "lease_until", "epoch", "memory", "cpu", "most",
			"promised_memory", "promised_cpu", "promised", "machine",
		}},
		{Name: "fleet_holders", Columns: []string{"owner", "id", "node", "memory", "cpu", "awake", "placed", "about", "here", "image", "stays", "checkpoint"}},
		{Name: "fleet_renewals", Columns: []string{"node", "count"}},
		{Name: "fleet_starts", Columns: []string{"node", "epoch", "started"}},
		{Name: "fleet_tokens", Columns: []string{"hash", "expires"}},
		{Name: "fleet_restores", Columns: []string{"number", "id"}},
	}, Create: createTables, Restored: fence}
}

// fence ends all leases in a database that was restored. No node of the backup is alive there, so no call goes to the address of a server
// that still uses the original database. A process that had a lease in this database before it was emptied is not the node any more: its
// epoch is over. The leases end now and not when the backup was made: nodes that start one after another have the usual time before
// others take over their sandboxes from the bucket. The restore is recorded: the bucket can then tell the original fleet and the restored one apart.
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
	if _, err := tx.Exec(ctx, schema); err != nil {
		return err
	}
	_, err := tx.Exec(ctx, transitSchema)
	return err
}
