package fleet

import (
	"context"
	"encoding/json"
	"errors"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"hutch"
	"hutch/internal/travel"
)

// How the directory records snapshots that move between nodes. In a fleet with a bucket, fleet_snapshots has a row for
// each snapshot. The row's node has the files; it is empty while only the bucket has them. The row has an image once
// the bucket has the snapshot. Because the files of a snapshot never change, two nodes can have them; the row says
// which node's files are valid.
//
//	on a node ── written ──► on a node, image ── drained ──► no node, image ─┐
//	                            ▲       │                        ▲           │ claim
//	                            │       └── the node is away ────┼───────────┤
//	                            └─────────── fetched ────────────┴───────────┘
//
// A claim writes into the row the node that is to fetch the snapshot. Its condition is that the row still names the
// previous node, so only one of several claims succeeds. A previous node that is away or full can still have files that
// are no longer valid: fleet_snapshot_copies names them until that node has removed them.
const snapshotSchema = `
CREATE TABLE IF NOT EXISTS fleet_snapshots (
	id text PRIMARY KEY,
	owner text NOT NULL,
	node text NOT NULL,
	record jsonb NOT NULL,
	image jsonb,
	stays text NOT NULL DEFAULT ''
);
CREATE INDEX IF NOT EXISTS fleet_snapshots_owner ON fleet_snapshots (owner);
CREATE INDEX IF NOT EXISTS fleet_snapshots_node ON fleet_snapshots (node);
CREATE INDEX IF NOT EXISTS fleet_snapshots_shared ON fleet_snapshots (id) WHERE (record->>'shared')::boolean;
CREATE TABLE IF NOT EXISTS fleet_snapshot_copies (
	node text NOT NULL REFERENCES fleet_nodes (id) ON DELETE CASCADE,
	id text NOT NULL,
	PRIMARY KEY (node, id)
);
DO $$ BEGIN
	IF NOT EXISTS (SELECT FROM pg_attribute WHERE attrelid = 'fleet_nodes'::regclass AND attname = 'snapshots') THEN
		ALTER TABLE fleet_nodes ADD COLUMN snapshots bigint NOT NULL DEFAULT 0;
	END IF;
END $$
`

// countSnapshots records how many snapshots a node without a bucket has, because without a bucket they have no rows.
func (d *Directory) countSnapshots(ctx context.Context, node string, n int) error {
	_, err := d.db.Exec(ctx, "UPDATE fleet_nodes SET snapshots = $2 WHERE id = $1", node, n)
	return databaseError(err)
}

// nodeServes is a condition on the node of fleet_snapshots s: it is alive, and so has the snapshot or is about to fetch
// it.
const nodeServes = `EXISTS (SELECT FROM fleet_nodes n WHERE n.id = s.node AND n.lease_until > now())`

// snapshotRow is a snapshot in the directory.
type snapshotRow struct {
	Record hutch.Snapshot
	Node   string // "" while only the bucket has it
	Alive  bool   // the node is alive
	Image  *travel.Image
	Stays  string // why the snapshot is not in the bucket, or cannot leave its node
}

func (s snapshotRow) record() hutch.Snapshot { return s.Record }

// KeptSnapshot is a snapshot that a node has.
type KeptSnapshot struct {
	ID    string   `json:"snapshotId"`
	Names []string `json:"names,omitempty"`
	Owner string   `json:"owner,omitempty"`
	// InBucket says that the snapshot outlives its node.
	InBucket bool `json:"inBucket"`
	// Stays is why the snapshot is not in the bucket, or cannot leave a node that is drained.
	Stays string `json:"stays,omitempty"`
}

func (d *Directory) snapshotRows(ctx context.Context, condition string, args ...any) ([]snapshotRow, error) {
	rows, err := d.db.Query(ctx, "SELECT s.record, s.node, "+nodeServes+", s.image, s.stays FROM fleet_snapshots s WHERE "+condition+" ORDER BY s.id", args...)
	if err != nil {
		return nil, databaseError(err)
	}
	list, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (s snapshotRow, err error) {
		var record, image []byte
		if err = row.Scan(&record, &s.Node, &s.Alive, &image, &s.Stays); err == nil {
			err = json.Unmarshal(record, &s.Record)
		}
		if err == nil && image != nil {
			err = json.Unmarshal(image, &s.Image)
		}
		return s, err
	})
	return list, databaseError(err)
}

const notExpired = `(s.record->>'expiresAt' IS NULL OR (s.record->>'expiresAt')::timestamptz > now())`

// isVisible is a condition on fleet_snapshots s: the owner $1 can use it; NULL stands for the server.
const isVisible = `($1::text IS NULL OR s.owner = $1 OR (s.record->>'shared')::boolean)`

// snapshotsInBucket lists the snapshots in the bucket that an owner can use; nil is the server, which can use all.
func (d *Directory) snapshotsInBucket(ctx context.Context, owner *string) ([]snapshotRow, error) {
	return d.snapshotRows(ctx, "s.image IS NOT NULL AND "+notExpired+" AND "+isVisible, owner)
}

// snapshotsOf lists the snapshots that a node has or is to fetch.
func (d *Directory) snapshotsOf(ctx context.Context, node string) ([]snapshotRow, error) {
	return d.snapshotRows(ctx, "s.node = $1", node)
}

// snapshotsElsewhere lists the snapshots of an owner in the bucket that no live node has.
func (d *Directory) snapshotsElsewhere(ctx context.Context, owner string) ([]snapshotRow, error) {
	return d.snapshotRows(ctx, "s.owner = $1 AND s.image IS NOT NULL AND "+notExpired+" AND NOT "+nodeServes, owner)
}

// snapshotsLost lists those snapshots that an owner can use whose nodes are away and that are not in the bucket.
func (d *Directory) snapshotsLost(ctx context.Context, owner *string) ([]snapshotRow, error) {
	return d.snapshotRows(ctx, "s.image IS NULL AND "+notExpired+" AND "+isVisible+" AND NOT "+nodeServes, owner)
}

// KeptSnapshots lists the snapshots that a node has.
func (d *Directory) KeptSnapshots(ctx context.Context, node string) ([]KeptSnapshot, error) {
	rows, err := d.snapshotsOf(ctx, node)
	list := make([]KeptSnapshot, len(rows))
	for i, s := range rows {
		list[i] = KeptSnapshot{ID: s.Record.ID, Names: s.Record.Names, Owner: s.Record.Owner, InBucket: s.Image != nil, Stays: s.Stays}
	}
	return list, err
}

// recordSnapshot records a snapshot of a node, or its new names. img is its image in the bucket, nil for none. The
// error is errMoved if another node has it, or if this node has only an old copy. If the snapshot is not in the bucket
// and its node is away, it is assigned to this node, because the files here may be the only ones.
func (d *Directory) recordSnapshot(ctx context.Context, node string, v hutch.Snapshot) (img *travel.Image, err error) {
	text, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	var image []byte
	err = d.db.QueryRow(ctx, `INSERT INTO fleet_snapshots AS s (id, owner, node, record) SELECT $1::text, $3::text, $2::text, $4::jsonb
			WHERE NOT EXISTS (SELECT FROM fleet_snapshot_copies c WHERE c.node = $2::text AND c.id = $1::text)
		ON CONFLICT (id) DO UPDATE SET node = $2::text, record = $4::jsonb WHERE s.node = $2::text OR s.image IS NULL AND NOT `+nodeServes+`
		RETURNING s.image`, v.ID, node, v.Owner, text).Scan(&image)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return nil, errMoved
	case err == nil && image != nil:
		err = json.Unmarshal(image, &img)
	}
	return img, databaseError(err)
}

// keepSnapshot records that the bucket has a snapshot of a node.
func (d *Directory) keepSnapshot(ctx context.Context, node, id string, img travel.Image) error {
	text, err := json.Marshal(img)
	if err != nil {
		return err
	}
	return d.changeSnapshot(ctx, "UPDATE fleet_snapshots SET image = $3, stays = '' WHERE id = $1 AND node = $2", id, node, text)
}

// recordSnapshotStay records why a snapshot is not in the bucket, or cannot leave its node.
func (d *Directory) recordSnapshotStay(ctx context.Context, node, id, why string) error {
	return d.changeSnapshot(ctx, "UPDATE fleet_snapshots SET stays = $3 WHERE id = $1 AND node = $2", id, node, why)
}

// hasSnapshot records that a node has fetched a snapshot from the image with the given key. If another node has claimed
// it meanwhile, mine is false, and the files are recorded as an old copy. The error is errMoved if the snapshot was
// deleted.
func (d *Directory) hasSnapshot(ctx context.Context, node, id, key string) (mine bool, err error) {
	err = pgx.BeginFunc(ctx, d.db, func(tx pgx.Tx) error {
		var at string
		err := tx.QueryRow(ctx, "SELECT node FROM fleet_snapshots WHERE id = $1 AND image->>'key' = $2 FOR UPDATE", id, key).Scan(&at)
		mine = at == node
		switch {
		case errors.Is(err, pgx.ErrNoRows):
			return errMoved
		case err != nil:
			return err
		case !mine:
			return leaveCopy(ctx, tx, node, id)
		}
		_, err = tx.Exec(ctx, "UPDATE fleet_snapshots SET stays = '' WHERE id = $1", id)
		return err
	})
	return mine, databaseError(err)
}

// releaseSnapshot records that a node no longer has a snapshot, so that only the bucket has it.
func (d *Directory) releaseSnapshot(ctx context.Context, node, id, key string) error {
	return d.changeSnapshot(ctx, releaseRow, id, node, key)
}

const releaseRow = "UPDATE fleet_snapshots SET node = '', stays = '' WHERE id = $1 AND node = $2 AND image->>'key' = $3"

// leaveSnapshot is releaseSnapshot for a node that still has the files and is about to remove them.
func (d *Directory) leaveSnapshot(ctx context.Context, node, id, key string) error {
	return d.changeAndLeave(ctx, node, id, releaseRow, id, node, key)
}

// changeSnapshot runs a statement that changes one row. If there is no such row, the error is errMoved.
func (d *Directory) changeSnapshot(ctx context.Context, statement string, args ...any) error {
	return databaseError(changeRow(ctx, d.db, statement, args...))
}

// changeAndLeave does the same as changeSnapshot, and records in the same transaction that a node is to remove the files
// of the snapshot.
func (d *Directory) changeAndLeave(ctx context.Context, node, id, statement string, args ...any) error {
	return databaseError(pgx.BeginFunc(ctx, d.db, func(tx pgx.Tx) error {
		if err := changeRow(ctx, tx, statement, args...); err != nil {
			return err
		}
		return leaveCopy(ctx, tx, node, id)
	}))
}

func changeRow(ctx context.Context, db interface {
	Exec(context.Context, string, ...any) (pgconn.CommandTag, error)
}, statement string, args ...any) error {
	tag, err := db.Exec(ctx, statement, args...)
	if err == nil && tag.RowsAffected() == 0 {
		err = errMoved
	}
	return err
}

// claimSnapshot assigns a snapshot to a node, which is to fetch it. Its condition is that no live node has the
// snapshot. If full is true, that condition is dropped, because the snapshot's node is full. If several nodes try at
// once, the others get errMoved.
func (d *Directory) claimSnapshot(ctx context.Context, s snapshotRow, to string, full bool) error {
	return databaseError(pgx.BeginFunc(ctx, d.db, func(tx pgx.Tx) error {
		err := changeRow(ctx, tx, "UPDATE fleet_snapshots s SET node = $4, stays = '' WHERE id = $1 AND node = $2 AND image->>'key' = $3 AND ($5 OR NOT "+nodeServes+")",
			s.Record.ID, s.Node, s.Image.Key, to, full)
		if err == nil {
			err = leaveCopy(ctx, tx, s.Node, s.Record.ID)
		}
		if err == nil { // the node was to remove old files of the snapshot, and now keeps them
			_, err = tx.Exec(ctx, "DELETE FROM fleet_snapshot_copies WHERE node = $1 AND id = $2", to, s.Record.ID)
		}
		return err
	}))
}

// leaveCopy records that a node is to remove the files of a snapshot, if it still has them. For a removed node, or if
// node is "", it records nothing.
func leaveCopy(ctx context.Context, tx pgx.Tx, node, id string) error {
	_, err := tx.Exec(ctx, "INSERT INTO fleet_snapshot_copies (node, id) SELECT n.id, $2 FROM fleet_nodes n WHERE n.id = $1 ON CONFLICT DO NOTHING", node, id)
	return err
}

// forgetSnapshot removes the row of a snapshot whose node has deleted it, and returns the key of its image, or "".
func (d *Directory) forgetSnapshot(ctx context.Context, node, id string) (key string, err error) {
	err = d.db.QueryRow(ctx, "DELETE FROM fleet_snapshots WHERE id = $1 AND node = $2 RETURNING coalesce(image->>'key', '')", id, node).Scan(&key)
	if errors.Is(err, pgx.ErrNoRows) {
		return "", nil
	}
	return key, databaseError(err)
}

// deleteSnapshot deletes a snapshot whose node does not have its files: the node is away, or has not fetched them. The
// node later removes the snapshot's files if it has any.
func (d *Directory) deleteSnapshot(ctx context.Context, s snapshotRow) error {
	return d.changeAndLeave(ctx, s.Node, s.Record.ID, "DELETE FROM fleet_snapshots WHERE id = $1 AND node = $2", s.Record.ID, s.Node)
}

// renameSnapshot replaces the record of a snapshot in the bucket whose node is away or has not fetched its files. If
// the node has files of the snapshot, these are an old copy from then on, because they have the old names.
func (d *Directory) renameSnapshot(ctx context.Context, s snapshotRow, v hutch.Snapshot) error {
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	before, err := json.Marshal(s.Record.Names)
	if err != nil {
		return err
	}
	return d.changeAndLeave(ctx, s.Node, s.Record.ID, "UPDATE fleet_snapshots SET record = $3, node = '', stays = '' WHERE id = $1 AND node = $2 AND image IS NOT NULL AND record->'names' = $4::jsonb",
		s.Record.ID, s.Node, text, before)
}

// copies lists the snapshots whose old copies a node may have: deleted has the ids of deleted ones, old the other ones.
func (d *Directory) copies(ctx context.Context, node string) (deleted []string, old []snapshotRow, err error) {
	rows, err := d.db.Query(ctx, "SELECT id FROM fleet_snapshot_copies WHERE node = $1", node)
	if err != nil {
		return nil, nil, databaseError(err)
	}
	ids, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil || len(ids) == 0 {
		return nil, nil, databaseError(err)
	}
	list, err := d.snapshotRows(ctx, "s.id = ANY ($1)", ids)
	if err != nil {
		return nil, nil, err
	}
	for _, s := range list {
		ids = slices.DeleteFunc(ids, func(id string) bool { return id == s.Record.ID })
		if s.Node != node { // else the node has claimed the snapshot between the two queries
			old = append(old, s)
		}
	}
	return ids, old, nil
}

// isCopy returns nil if a node's files of a snapshot are an old copy, and errMoved otherwise.
func (d *Directory) isCopy(ctx context.Context, node, id string) error {
	return d.changeSnapshot(ctx, "SELECT FROM fleet_snapshot_copies WHERE node = $1 AND id = $2", node, id)
}

// markCopy records that a node has an old copy of a snapshot. The snapshot must be in the bucket and, by its row, not
// on this node.
func (d *Directory) markCopy(ctx context.Context, node, id string) error {
	_, err := d.db.Exec(ctx, `INSERT INTO fleet_snapshot_copies (node, id) SELECT $1::text, s.id FROM fleet_snapshots s
		WHERE s.id = $2 AND s.node <> $1::text AND s.image IS NOT NULL ON CONFLICT DO NOTHING`, node, id)
	return databaseError(err)
}

// allCopies returns all pairs of a node and a snapshot whose old copy that node may have.
func (d *Directory) allCopies(ctx context.Context) (map[[2]string]bool, error) {
	rows, err := d.db.Query(ctx, "SELECT node, id FROM fleet_snapshot_copies")
	if err != nil {
		return nil, databaseError(err)
	}
	all := map[[2]string]bool{}
	var node, id string
	_, err = pgx.ForEachRow(rows, []any{&node, &id}, func() error { all[[2]string{node, id}] = true; return nil })
	return all, databaseError(err)
}

// copyRemoved records that a node has removed a copy.
func (d *Directory) copyRemoved(ctx context.Context, node, id string) error {
	_, err := d.db.Exec(ctx, "DELETE FROM fleet_snapshot_copies WHERE node = $1 AND id = $2", node, id)
	return databaseError(err)
}

// expiredSnapshots removes the rows of expired snapshots that no live node has, and returns the keys of their images.
func (d *Directory) expiredSnapshots(ctx context.Context) ([]string, error) {
	rows, err := d.db.Query(ctx, "DELETE FROM fleet_snapshots s WHERE NOT "+notExpired+" AND NOT "+nodeServes+" RETURNING coalesce(s.image->>'key', '')")
	if err != nil {
		return nil, databaseError(err)
	}
	keys, err := pgx.CollectRows(rows, pgx.RowTo[string])
	return keys, databaseError(err)
}

// removeSnapshotsOf removes the rows of snapshots that only a removed node has, and releases those in the bucket.
func removeSnapshotsOf(ctx context.Context, tx pgx.Tx, node string) (lost int64, err error) {
	tag, err := tx.Exec(ctx, "DELETE FROM fleet_snapshots WHERE node = $1 AND image IS NULL", node)
	if err == nil {
		_, err = tx.Exec(ctx, "UPDATE fleet_snapshots SET node = '', stays = '' WHERE node = $1", node)
	}
	return tag.RowsAffected(), err
}
