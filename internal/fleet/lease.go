package fleet

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"hutch"
)

// Lease is how long a node may serve after its last renewal, by the database's clock.
const Lease = 15 * time.Second

const nodeColumns = `n.id, n.certificate, n.address, n.version, n.state, n.lease_until > now(), n.labels, n.taints, n.joined,
	CASE WHEN n.lease_until = '-infinity' THEN NULL ELSE n.lease_until END, n.epoch,
	n.memory, n.cpu, n.most, n.promised_memory, n.promised_cpu, n.promised, ` + abilitiesOf

// scanNode reads nodeColumns, and the columns after them into more.
func scanNode(row pgx.CollectableRow, more ...any) (n NodeInfo, err error) {
	var labels, taints, abilities []byte
	fields := []any{&n.ID, &n.print, &n.Address, &n.Version, &n.State, &n.Alive, &labels, &taints, &n.Joined, &n.SeenUntil, &n.Epoch,
		&n.Room.Memory, &n.Room.CPU, &n.Room.Sandboxes, &n.Promised.Memory, &n.Promised.CPU, &n.Promised.Sandboxes, &abilities}
	if err = row.Scan(append(fields, more...)...); err == nil {
		err = cmp.Or(json.Unmarshal(labels, &n.Labels), json.Unmarshal(taints, &n.Taints), json.Unmarshal(abilities, &n.abilities))
	}
	return n, err
}

// List lists the nodes by id.
func (d *Directory) List(ctx context.Context) ([]NodeInfo, error) {
	rows, err := d.db.Query(ctx, "SELECT "+nodeColumns+`, s.started, coalesce(h.held, 0), coalesce(h.stuck, 0),
		CASE WHEN (n.machine->>'snapshots')::boolean THEN (SELECT count(*) FROM fleet_snapshots k WHERE k.node = n.id) ELSE n.snapshots END FROM fleet_nodes n
		LEFT JOIN fleet_starts s ON s.node = n.id AND s.epoch = n.epoch
		LEFT JOIN (SELECT node, count(*) AS held, count(*) FILTER (WHERE stays <> '') AS stuck FROM fleet_holders GROUP BY node) h ON h.node = n.id
		ORDER BY n.id`)
	if err != nil {
		return nil, databaseError(err)
	}
	list, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (NodeInfo, error) {
		var more hutch.Node
		n, err := scanNode(row, &more.Started, &more.Held, &more.Stuck, &more.Snapshots)
		n.Started, n.Held, n.Stuck, n.Snapshots = more.Started, more.Held, more.Stuck, more.Snapshots
		return n, err
	})
	return list, databaseError(err)
}

// begin starts a node's lease. Its epoch distinguishes this process from an earlier one, and from a copy of the machine.
func (d *Directory) begin(ctx context.Context, n NodeInfo) (epoch int64, err error) {
	labels, err := nodeLabels(n.Labels)
	if err != nil {
		return 0, err
	}
	taints, err := nodeLabels(n.Taints)
	if err != nil {
		return 0, err
	}
	err = d.lease.QueryRow(ctx, `
		WITH mine AS (
			UPDATE fleet_nodes SET epoch = epoch + 1, lease_until = now() + $2::interval, address = $3, version = $4, labels = $5, taints = $10, memory = $6, cpu = $7, most = $8,
				understands = jsonb_build_object('epoch', epoch + 1, 'abilities', $11::jsonb)
			WHERE id = $1 AND certificate = $9 RETURNING id, epoch
		), started AS (
			INSERT INTO fleet_starts (node, epoch, started) SELECT id, epoch, now() FROM mine
			ON CONFLICT (node) DO UPDATE SET epoch = excluded.epoch, started = excluded.started
		)
		SELECT epoch FROM mine`,
		n.ID, Lease, n.Address, n.Version, labels, n.Room.Memory, n.Room.CPU, n.Room.Sandboxes, n.print, taints, abilitiesJSON(abilities)).Scan(&epoch)
	if errors.Is(err, pgx.ErrNoRows) {
		return 0, errRemoved
	}
	d.notifyNodes(ctx)
	return epoch, databaseError(err)
}

var (
	errRemoved = hutch.Errorf(hutch.Denied, "this node was removed from the fleet: to join again, make a token with `hutch node token` on another node, and run `hutch node join`")
	errOlder   = hutch.Errorf(hutch.Conflict, "the fleet's database is older than what this node has read of it, as after a restore from a backup: this node does nothing until its server is started again; a backup is restored while all servers are down")
	errCopy    = hutch.Errorf(hutch.Conflict, "another process runs as this node: it began later, and has taken over; end one of the two, or join with a data folder of its own")
)

// renew renews the lease of a node and lists all nodes in one query. It also counts the renewals. renewed is the count
// that the node read last. If the database has a lower count, it was restored from a backup, and the lease is not
// renewed.
func (d *Directory) renew(ctx context.Context, me NodeInfo, renewed int64) ([]NodeInfo, int64, error) {
	rows, err := d.lease.Query(ctx, `
		WITH mine AS (
			UPDATE fleet_nodes SET lease_until = now() + $3::interval
			WHERE id = $1 AND epoch = $2 AND certificate = $4 AND $5 <= coalesce((SELECT count FROM fleet_renewals WHERE node = $1), 0)
			RETURNING id
		), counted AS (
			INSERT INTO fleet_renewals AS r (node, count) SELECT id, 1 FROM mine
			ON CONFLICT (node) DO UPDATE SET count = r.count + 1 RETURNING count
		)
		SELECT `+nodeColumns+`, coalesce((SELECT count FROM counted), -1) FROM fleet_nodes n ORDER BY n.id`, me.ID, me.Epoch, Lease, me.print, renewed)
	if err != nil {
		return nil, 0, databaseError(err)
	}
	var count int64
	list, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (NodeInfo, error) { return scanNode(row, &count) })
	if err != nil {
		return nil, 0, databaseError(err)
	}
	for _, n := range list {
		switch {
		case n.ID != me.ID || n.print != me.print:
		case n.Epoch < me.Epoch || n.Epoch == me.Epoch && count < 0:
			return nil, 0, errOlder
		case n.Epoch == me.Epoch:
			return list, count, nil
		default:
			return nil, 0, errCopy
		}
	}
	return nil, 0, errRemoved
}

// leave ends the lease of a node that ends.
func (d *Directory) leave(ctx context.Context, me NodeInfo) error {
	_, err := d.lease.Exec(ctx, "UPDATE fleet_nodes SET lease_until = now() WHERE id = $1 AND epoch = $2 AND certificate = $3", me.ID, me.Epoch, me.print)
	d.notifyNodes(ctx)
	return databaseError(err)
}

// notifyNodes makes all nodes read the table of nodes now instead of at their next renewal.
func (d *Directory) notifyNodes(ctx context.Context) { d.lease.Exec(ctx, "NOTIFY "+notices) }

// follow calls changed for each change of the table of nodes, until ctx is done.
func (d *Directory) follow(ctx context.Context, changed func()) error {
	conn, err := d.db.Acquire(ctx)
	if err != nil {
		return err
	}
	c := conn.Hijack()
	defer c.Close(context.WithoutCancel(ctx))
	if _, err := c.Exec(ctx, "LISTEN "+notices); err != nil {
		return err
	}
	for {
		changed()
		if _, err := c.WaitForNotification(ctx); err != nil {
			return err
		}
	}
}

func noNode(id string) error {
	return hutch.Errorf(hutch.NotFound, "the fleet has no node %.80q: see `hutch node ls`", id)
}

// RemoveNode implements hutch.Nodes.
func (d *Directory) RemoveNode(ctx context.Context, id string, force bool) (hutch.RemovedNode, error) {
	var freed int64
	err := pgx.BeginFunc(ctx, d.db, func(tx pgx.Tx) error {
		if err := lockTables(ctx, tx); err != nil { // so that of two callers that remove the last two nodes, one fails
			return err
		}
		var alive, others bool
		err := tx.QueryRow(ctx, "SELECT lease_until > now(), EXISTS (SELECT FROM fleet_nodes WHERE id <> $1) FROM fleet_nodes WHERE id = $1 FOR UPDATE", id).Scan(&alive, &others)
		if errors.Is(err, pgx.ErrNoRows) {
			return noNode(id)
		}
		if err == nil && !others && !force {
			err = hutch.Errorf(hutch.Conflict, "the node %s is the only one of its fleet: let another machine join first, or force it", id)
		}
		if err != nil {
			return err
		}
		if err := rescue(ctx, tx, id, false, force || !alive); err != nil {
			return err
		}
		tag, err := tx.Exec(ctx, "DELETE FROM fleet_holders WHERE node = $1", id)
		if err != nil {
			return err
		}
		if freed = tag.RowsAffected(); alive && freed > 0 && !force {
			return hutch.Errorf(hutch.Conflict, "the node %s is alive and holds %d sandboxes, which would be lost to their owners: drain it or destroy them first, or force it", id, freed)
		}
		lost, err := removeSnapshotsOf(ctx, tx, id)
		if err != nil {
			return err
		}
		if alive && lost > 0 && !force {
			return hutch.Errorf(hutch.Conflict, "the node %s is alive and has %d snapshots that are not in the bucket, which would be lost to their owners: drain it or delete them first, or force it", id, lost)
		}
		if _, err := tx.Exec(ctx, "DELETE FROM fleet_nodes WHERE id = $1", id); err != nil {
			return err
		}
		return forgetRecords(ctx, tx, id)
	})
	if err != nil {
		return hutch.RemovedNode{}, databaseError(err)
	}
	d.notifyNodes(ctx)
	return hutch.RemovedNode{Node: id, Freed: freed}, nil
}

// rescue assigns the sandboxes of a removed node that are in the bucket to another node, if there is one. It prefers a
// node whose labels and taints suit them and whose version knows labels and taints. If the only node of a fleet is
// replaced, the new one fetches them. Running sandboxes continue from their checkpoints, if they have any.
func rescue(ctx context.Context, tx pgx.Tx, id string, replaced, checkpoints bool) error {
	rows, err := tx.Query(ctx, `
		UPDATE fleet_holders h SET here = false, awake = false, fetcher = '', image = coalesce(image, checkpoint), checkpoint = NULL,
			node = (SELECT n.id FROM fleet_nodes n WHERE n.id <> $1 OR $2 ORDER BY `+suits("h.about")+` DESC,
				`+abilitiesOf+` @> CASE WHEN coalesce(h.about->'nodeSelector', h.about->'tolerations') IS NULL THEN '[]'::jsonb ELSE '["`+knowsLabels+`"]'::jsonb END DESC, n.id = $1, n.state = 'ready' DESC, n.lease_until DESC LIMIT 1)
		WHERE node = $1 AND (image IS NOT NULL OR $3 AND checkpoint IS NOT NULL) AND EXISTS (SELECT FROM fleet_nodes n WHERE n.id <> $1 OR $2) RETURNING owner, id`, id, replaced, checkpoints)
	if err != nil {
		return err
	}
	list, err := pgx.CollectRows(rows, pgx.RowToStructByPos[Name])
	for _, n := range list {
		if err == nil {
			err = giveRecord(ctx, tx, n, "")
		}
	}
	return err
}

// hasRecords reports whether this database also has the store with the records of sandboxes.
func hasRecords(ctx context.Context, tx pgx.Tx) (there bool, err error) {
	err = tx.QueryRow(ctx, "SELECT to_regclass('hutch.sandboxes') IS NOT NULL").Scan(&there)
	return there, err
}

// forgetRecords removes a node's records from the store, if that is in this database, because ids are unique there too.
func forgetRecords(ctx context.Context, tx pgx.Tx, node string) error {
	if there, err := hasRecords(ctx, tx); err != nil || !there {
		return err
	}
	_, err := tx.Exec(ctx, "DELETE FROM hutch.sandboxes WHERE node = $1", node)
	return err
}
