package fleet

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"hutch"
	"hutch/internal/travel"
)

// Sandboxes that travel, in the directory. A row of fleet_holders has an image while the sandbox sleeps and the bucket
// has its present state. Here is false while only the bucket has it: node is then the node that is to fetch it. In
// addition, it can have a checkpoint, an image of an earlier state, which becomes the image when its node has been away
// for some time.
//
//	awake ── sleeps, image written ──► image ── handOver, or take from a dead node ──► image, not here
//	  ▲     the node is away, checkpoint │  ▲                                                ▲│
//	  │ ────────────────── take ─────────┼──┼────────────────────────────────────────────────┘│
//	  └──────────── waking ──────────────┘  └───────────────────── arrived ───────────────────┘
//
// Each arrow is one statement whose condition names the node that has the sandbox before. So a statement of a second
// node, such as one that was considered dead, changes no row, which tells that node that it no longer has the sandbox.
// The sandbox's record in the store belongs to the same node or, during a change, to none.
const transitSchema = `
DO $$ BEGIN
	IF NOT EXISTS (SELECT FROM pg_attribute WHERE attrelid = 'fleet_holders'::regclass AND attname = 'image') THEN
		ALTER TABLE fleet_holders ADD COLUMN here boolean NOT NULL DEFAULT true, ADD COLUMN image jsonb, ADD COLUMN stays text NOT NULL DEFAULT '';
		ALTER TABLE fleet_nodes ADD COLUMN machine jsonb NOT NULL DEFAULT '{}';
	END IF;
	IF NOT EXISTS (SELECT FROM pg_attribute WHERE attrelid = 'fleet_holders'::regclass AND attname = 'checkpoint') THEN
		ALTER TABLE fleet_holders ADD COLUMN checkpoint jsonb;
	END IF;
END $$`

// isLong is a condition on the node of fleet_holders h: it has been away so long that its sandboxes continue from their checkpoints
// elsewhere. That is longer than the restart of a server, which ends none of them.
const isLong = `EXISTS (SELECT FROM fleet_nodes n WHERE n.id = h.node AND n.lease_until < now() - interval '1 minute')`

// isAlive is a condition on the node of fleet_holders h.
const isAlive = `EXISTS (SELECT FROM fleet_nodes n WHERE n.id = h.node AND n.lease_until > now())`

// isAway is a condition on fleet_holders h: only the bucket has the sandbox.
const isAway = `(NOT h.here OR NOT ` + isAlive + ` AND (h.image IS NOT NULL AND NOT h.awake OR h.image IS NULL AND h.checkpoint IS NOT NULL AND ` + isLong + `))`

// errMoved is the error for a node that acts on a sandbox that another node has now.
var errMoved = hutch.Errorf(hutch.Unavailable, "the sandbox was taken over by another node while this one was away: try again")

// setMachine notes the properties of a node that decide which images can wake there.
func (d *Directory) setMachine(ctx context.Context, node string, m travel.Machine) error {
	text, err := json.Marshal(m)
	if err == nil {
		_, err = d.db.Exec(ctx, "UPDATE fleet_nodes SET machine = $2 WHERE id = $1", node, text)
	}
	return databaseError(err)
}

// keep notes that a sandbox which sleeps on a node is also in the bucket.
func (d *Directory) keep(ctx context.Context, node string, name Name, img travel.Image) error {
	text, err := json.Marshal(img)
	if err != nil {
		return err
	}
	tag, err := d.db.Exec(ctx, "UPDATE fleet_holders SET image = $4, checkpoint = NULL WHERE owner = $1 AND id = $2 AND node = $3 AND here", name.Owner, name.ID, node, text)
	if err == nil && tag.RowsAffected() == 0 {
		return errMoved
	}
	return databaseError(err)
}

// keepCheckpoint records a checkpoint of a sandbox on a node, and replaces the one with the key over, "" for none.
// Since says when the sandbox was placed: a later one can have its name.
func (d *Directory) keepCheckpoint(ctx context.Context, node string, name Name, since time.Time, over string, img travel.Image) error {
	text, err := json.Marshal(img)
	if err != nil {
		return err
	}
	tag, err := d.db.Exec(ctx, "UPDATE fleet_holders SET checkpoint = $4 WHERE owner = $1 AND id = $2 AND node = $3 AND here AND awake AND placed = $5 AND coalesce(checkpoint->>'key', '') = $6",
		name.Owner, name.ID, node, text, since, over)
	if err == nil && tag.RowsAffected() == 0 {
		return errMoved
	}
	return databaseError(err)
}

// dropCheckpoints removes the checkpoints of a node that makes none, and returns their keys.
func (d *Directory) dropCheckpoints(ctx context.Context, node string) ([]string, error) {
	rows, err := d.db.Query(ctx, `WITH old AS (SELECT owner, id, checkpoint FROM fleet_holders WHERE node = $1 AND checkpoint IS NOT NULL)
		UPDATE fleet_holders h SET checkpoint = NULL FROM old WHERE h.owner = old.owner AND h.id = old.id AND h.node = $1 RETURNING old.checkpoint->>'key'`, node)
	if err != nil {
		return nil, databaseError(err)
	}
	keys, err := pgx.CollectRows(rows, pgx.RowTo[string])
	return keys, databaseError(err)
}

// waking promises a sandbox on a node, which is about to wake, its memory and cores; the error is isFull if the node has no room. Its image is then out
// of date; with checkpoints, the image is one. It returns the key of the image.
func (d *Directory) waking(ctx context.Context, node string, name Name, checkpoints bool) (old string, err error) {
	err = d.change(ctx, node, func(tx pgx.Tx) error {
		var at string
		var here, awake bool
		var needs hutch.NodeRoom
		err := tx.QueryRow(ctx, "SELECT node, here, awake, memory, cpu, coalesce(image->>'key', '') FROM fleet_holders WHERE owner = $1 AND id = $2 FOR UPDATE",
			name.Owner, name.ID).Scan(&at, &here, &awake, &needs.Memory, &needs.CPU, &old)
		switch {
		case errors.Is(err, pgx.ErrNoRows): // not in the directory yet
			return nil
		case err != nil:
			return err
		case at != node || !here:
			return errMoved
		}
		if !awake {
			if err := checkRoom(ctx, tx, node, name.ID, needs); err != nil {
				return err
			}
		}
		_, err = tx.Exec(ctx, `UPDATE fleet_holders SET awake = true, image = NULL, stays = '', checkpoint =
			CASE WHEN $3 THEN coalesce(image || jsonb_build_object('checkpoint', now()), checkpoint) END WHERE owner = $1 AND id = $2`, name.Owner, name.ID, checkpoints)
		return err
	})
	return old, err
}

// roomOfNode is the limit that the error of a full node names.
const roomOfNode = "room of the node"

// isFull reports whether a sandbox could not wake because its node has no room for it.
func isFull(err error) bool {
	return hutch.KindOf(err) == hutch.Exhausted && hutch.AsError(err).Data["limit"] == roomOfNode
}

// checkRoom returns an error if a node, whose row is locked, has no room for one more sandbox that is awake.
func checkRoom(ctx context.Context, tx pgx.Tx, node, sandbox string, needs hutch.NodeRoom) error {
	var room, promised hutch.NodeRoom
	err := tx.QueryRow(ctx, "SELECT memory, cpu, most, promised_memory, promised_cpu, promised FROM fleet_nodes WHERE id = $1", node).Scan(
		&room.Memory, &room.CPU, &room.Sandboxes, &promised.Memory, &promised.CPU, &promised.Sandboxes)
	if err != nil {
		return err
	}
	lacks := ""
	switch {
	case promised.Memory+needs.Memory > room.Memory:
		lacks = fmt.Sprintf("it needs %d MiB of memory, and %d of %d MiB are promised to others", needs.Memory, promised.Memory, room.Memory)
	case promised.CPU+needs.CPU > room.CPU:
		lacks = fmt.Sprintf("it needs %v cores, and %v of %v are promised to others", needs.CPU, promised.CPU, room.CPU)
	case promised.Sandboxes >= room.Sandboxes:
		lacks = fmt.Sprintf("%d sandboxes are awake there, and there can be no more", promised.Sandboxes)
	default:
		return nil
	}
	return hutch.Errorf(hutch.Exhausted, "the node %s has no room to wake the sandbox %q, which stays asleep: %s; wait until an idle sandbox sleeps, destroy one, or add a node", node, sandbox, lacks).
		With("limit", roomOfNode).With("retryAfter", 5)
}

// transit runs a statement that moves one sandbox, and then gives its record in the store to a node, or to none.
func (d *Directory) transit(ctx context.Context, name Name, recordTo, statement string, args ...any) error {
	return databaseError(pgx.BeginFunc(ctx, d.db, func(tx pgx.Tx) error {
		tag, err := tx.Exec(ctx, statement, append([]any{name.Owner, name.ID}, args...)...)
		if err != nil {
			return err
		}
		if tag.RowsAffected() == 0 {
			return errMoved
		}
		return giveRecord(ctx, tx, name, recordTo)
	}))
}

func giveRecord(ctx context.Context, tx pgx.Tx, name Name, node string) error {
	var there bool
	if err := tx.QueryRow(ctx, "SELECT to_regclass('hutch.sandboxes') IS NOT NULL").Scan(&there); err != nil || !there {
		return err
	}
	_, err := tx.Exec(ctx, "UPDATE hutch.sandboxes SET node = $3 WHERE owner = $1 AND sandbox = $2", name.Owner, name.ID, node)
	return err
}

// handOver assigns a sandbox that is in the bucket to another node, which fetches it.
func (d *Directory) handOver(ctx context.Context, from string, h Holder, to string) error {
	return d.transit(ctx, h.Name, "", `UPDATE fleet_holders h SET node = $5, here = false, stays = '' WHERE owner = $1 AND id = $2 AND node = $3 AND here
		AND NOT awake AND image->>'key' = $4 AND EXISTS (SELECT FROM fleet_nodes WHERE id = $5)`, from, h.Image.Key, to)
}

// take assigns to a node a sandbox of a dead node that is in the bucket. If several nodes try at once, the condition on
// h.node decides: PostgreSQL reads the row that it waited for again, but not other tables.
func (d *Directory) take(ctx context.Context, h Holder, to string) error {
	if h.Image == nil {
		return d.takeCheckpoint(ctx, h, to)
	}
	return d.transit(ctx, h.Name, "", `UPDATE fleet_holders h SET node = $4, here = false, stays = '' WHERE owner = $1 AND id = $2
		AND NOT awake AND image->>'key' = $3 AND h.node = $5 AND NOT `+isAlive+` AND EXISTS (SELECT FROM fleet_nodes WHERE id = $4)`, h.Image.Key, to, h.Node)
}

// takeCheckpoint is take for a sandbox that continues from its checkpoint. Its node reserves nothing for it from then
// on.
func (d *Directory) takeCheckpoint(ctx context.Context, h Holder, to string) error {
	return d.change(ctx, h.Node, func(tx pgx.Tx) error {
		tag, err := tx.Exec(ctx, `UPDATE fleet_holders h SET node = $4, here = false, stays = '', awake = false, image = checkpoint, checkpoint = NULL WHERE owner = $1 AND id = $2
			AND image IS NULL AND checkpoint->>'key' = $3 AND h.node = $5 AND `+isLong+` AND EXISTS (SELECT FROM fleet_nodes WHERE id = $4)`,
			h.Owner, h.ID, h.Checkpoint.Key, to, h.Node)
		if err != nil {
			return err
		}
		if tag.RowsAffected() == 0 {
			return errMoved
		}
		return giveRecord(ctx, tx, h.Name, "")
	})
}

// arrived records that a node has fetched a sandbox. A second call changes nothing and succeeds.
func (d *Directory) arrived(ctx context.Context, h Holder, at string) error {
	return d.transit(ctx, h.Name, at, `UPDATE fleet_holders SET here = true, stays = '' WHERE owner = $1 AND id = $2 AND node = $3 AND image->>'key' = $4`, at, h.Image.Key)
}

// recordStay records why a sandbox cannot leave its node.
func (d *Directory) recordStay(ctx context.Context, node string, name Name, why string) error {
	_, err := d.db.Exec(ctx, "UPDATE fleet_holders SET stays = $4 WHERE owner = $1 AND id = $2 AND node = $3", name.Owner, name.ID, node, why)
	return databaseError(err)
}

// recordAllStay notes why no sandbox can leave a node.
func (d *Directory) recordAllStay(ctx context.Context, node, why string) error {
	_, err := d.db.Exec(ctx, "UPDATE fleet_holders SET stays = $2 WHERE node = $1 AND stays = ''", node, why)
	return databaseError(err)
}

// toFetch lists the sandboxes that a node has to fetch, without those whose images are lost.
func (d *Directory) toFetch(ctx context.Context, node string) ([]Holder, error) {
	return d.holders(ctx, "h.node = $1 AND NOT h.here AND h.stays = ''", node)
}

// abandon removes a sandbox that is on no live node, and gives its record to a node that removes it too.
func (d *Directory) abandon(ctx context.Context, h Holder, recordTo string) error {
	return d.transit(ctx, h.Name, recordTo, "DELETE FROM fleet_holders h WHERE owner = $1 AND id = $2 AND placed = $3 AND node = $4 AND (NOT here OR NOT awake AND NOT "+isAlive+")", h.Placed, h.Node)
}

// orphans lists the sandboxes in the bucket whose nodes have been dead for a while: sleeping ones, and those that
// continue from a checkpoint.
func (d *Directory) orphans(ctx context.Context, dead time.Duration) ([]Holder, error) {
	return d.holders(ctx, `h.stays = '' AND h.image IS NOT NULL AND NOT h.awake AND EXISTS (SELECT FROM fleet_nodes n WHERE n.id = h.node AND n.lease_until < now() - $1::interval)
		OR h.stays = '' AND h.image IS NULL AND h.checkpoint IS NOT NULL AND `+isLong, dead)
}

func (d *Directory) holders(ctx context.Context, condition string, args ...any) ([]Holder, error) {
	rows, err := d.db.Query(ctx, "SELECT "+holderColumns+" FROM fleet_holders h WHERE "+condition+" ORDER BY h.placed", args...)
	if err != nil {
		return nil, databaseError(err)
	}
	list, err := pgx.CollectRows(rows, scanHolder)
	return list, databaseError(err)
}

// images lists the keys of all images.
func (d *Directory) images(ctx context.Context) (map[string]bool, error) {
	return d.set(ctx, "SELECT i->>'key' FROM fleet_holders, unnest(ARRAY[image, checkpoint]) i WHERE i IS NOT NULL")
}

// builds lists the builds that images need, and those of the nodes.
func (d *Directory) builds(ctx context.Context) (map[string]bool, error) {
	return d.set(ctx, `SELECT i->'needs'->>'build' FROM fleet_holders, unnest(ARRAY[image, checkpoint]) i WHERE i->'needs'->>'build' IS NOT NULL
		UNION SELECT b.value FROM fleet_nodes, json_each_text((machine->'builds')::json) b WHERE machine->'builds' IS NOT NULL`)
}

func (d *Directory) set(ctx context.Context, query string) (map[string]bool, error) {
	rows, err := d.db.Query(ctx, query)
	if err != nil {
		return nil, databaseError(err)
	}
	list, err := pgx.CollectRows(rows, pgx.RowTo[string])
	all := map[string]bool{}
	for _, key := range list {
		all[key] = true
	}
	return all, databaseError(err)
}

// nodeForWake returns a node on which an image can wake: first if it fits, else the node with the smallest promises. It is not the node not; "" excludes
// none.
func (d *Directory) nodeForWake(ctx context.Context, h Holder, first, not string) (string, error) {
	rows, err := d.db.Query(ctx, `
		SELECT n.id, n.machine, n.promised_memory + h.memory <= n.memory AND n.promised_cpu + h.cpu <= n.cpu AND n.promised < n.most
		FROM fleet_nodes n, fleet_holders h WHERE h.owner = $1 AND h.id = $2 AND n.state = 'ready' AND n.lease_until > now() AND n.id <> $4
		ORDER BY n.id <> $3, greatest(n.promised_memory::float8 / greatest(n.memory, 1), n.promised_cpu / greatest(n.cpu, 0.001)), n.id`, h.Owner, h.ID, first, not)
	if err != nil {
		return "", databaseError(err)
	}
	var id string
	var text []byte
	var roomy bool
	var chosen string
	var why []string
	_, err = pgx.ForEachRow(rows, []any{&id, &text, &roomy}, func() error {
		var m travel.Machine
		if err := json.Unmarshal(text, &m); err != nil {
			return err
		}
		lacks := m.Lacks(h.inBucket().Needs)
		switch {
		case m.Builds == nil:
			why = append(why, id+": it has no --fleet-bucket")
		case lacks != nil:
			why = append(why, fmt.Sprintf("%s: %v", id, lacks))
		case !roomy:
			why = append(why, id+": it has no room")
		default:
			chosen = cmp.Or(chosen, id)
		}
		return nil
	})
	if err != nil {
		return "", databaseError(err)
	}
	if chosen == "" {
		if why == nil {
			why = []string{"no other node is ready"}
		}
		return "", hutch.Errorf(hutch.Unavailable, "no node can wake the sandbox %q, which stays in the bucket: %s", h.ID, strings.Join(why, "; ")).With("limit", "nodes for the sandbox")
	}
	return chosen, nil
}
