package fleet

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"hutch"
	"hutch/internal/travel"
)

// How the directory records sandboxes that move between nodes. A row of fleet_holders has an image while the sandbox
// sleeps and the bucket has its present state. The column here is false while only the bucket has the sandbox; node is
// then the node that is to fetch it. In addition, the row can have a checkpoint: an image of an earlier state, which
// becomes the sandbox's image when its node has been away for some time.
//
//	awake ── sleeps, image written ──► image ── handOver ──► image, not here
//	  ▲                                │  ▲                         │
//	  └──────────── waking ────────────┘  └──────── arrived ────────┘
//
// While a sandbox's node is dead, its row can name a fetcher: another node, which reads the image or the checkpoint.
// The fetcher becomes the sandbox's node in the step arrived, when it has read everything and the dead node is still
// dead. If the dead node returns before that, it has its sandbox as before. So a sandbox whose files are on a disk is
// not lost because of a bad object in the bucket.
//
// Each arrow is one statement. Its condition is that the row still names the expected node. So the statement of another
// node, such as one that was considered dead, changes no row; from that, this node knows that it no longer has the
// sandbox. The sandbox's record in the store belongs to the same node or, during a change, to none.
const transitSchema = `
DO $$ BEGIN
	IF NOT EXISTS (SELECT FROM pg_attribute WHERE attrelid = 'fleet_holders'::regclass AND attname = 'image') THEN
		ALTER TABLE fleet_holders ADD COLUMN here boolean NOT NULL DEFAULT true, ADD COLUMN image jsonb, ADD COLUMN stays text NOT NULL DEFAULT '';
		ALTER TABLE fleet_nodes ADD COLUMN machine jsonb NOT NULL DEFAULT '{}';
	END IF;
	IF NOT EXISTS (SELECT FROM pg_attribute WHERE attrelid = 'fleet_holders'::regclass AND attname = 'checkpoint') THEN
		ALTER TABLE fleet_holders ADD COLUMN checkpoint jsonb;
	END IF;
	IF NOT EXISTS (SELECT FROM pg_attribute WHERE attrelid = 'fleet_holders'::regclass AND attname = 'fetcher') THEN
		ALTER TABLE fleet_holders ADD COLUMN fetcher text NOT NULL DEFAULT '';
	END IF;
END $$`

// isLong is a condition on the node of fleet_holders h: it has been away so long that its sandboxes continue from their
// checkpoints elsewhere. The time is longer than the restart of a server, because sandboxes survive a restart.
const isLong = `EXISTS (SELECT FROM fleet_nodes n WHERE n.id = h.node AND n.lease_until < now() - interval '1 minute')`

// isAlive is a condition on the node of fleet_holders h.
const isAlive = `EXISTS (SELECT FROM fleet_nodes n WHERE n.id = h.node AND n.lease_until > now())`

// isAway is a condition on fleet_holders h: only the bucket has the sandbox.
const isAway = `(NOT h.here OR NOT ` + isAlive + ` AND (h.image IS NOT NULL AND NOT h.awake OR h.image IS NULL AND h.checkpoint IS NOT NULL AND ` + isLong + `))`

// errMoved is the error for a node that acts on a sandbox that now belongs to another node.
var errMoved = hutch.Errorf(hutch.Unavailable, "the sandbox was taken over by another node while this one was away: try again")

// setMachine notes the properties of a node that decide which images can wake there.
func (d *Directory) setMachine(ctx context.Context, node string, m travel.Machine) error {
	text, err := json.Marshal(m)
	if err == nil {
		_, err = d.db.Exec(ctx, "UPDATE fleet_nodes SET machine = $2 WHERE id = $1", node, text)
	}
	return databaseError(err)
}

// keep records that a sleeping sandbox of a node is also in the bucket.
func (d *Directory) keep(ctx context.Context, node string, name Name, img travel.Image) error {
	text, err := json.Marshal(img)
	if err != nil {
		return err
	}
	tag, err := d.db.Exec(ctx, "UPDATE fleet_holders SET image = $4, checkpoint = NULL, stays = '' WHERE owner = $1 AND id = $2 AND node = $3 AND here", name.Owner, name.ID, node, text)
	if err == nil && tag.RowsAffected() == 0 {
		return errMoved
	}
	return databaseError(err)
}

// keepCheckpoint records a checkpoint of a sandbox on a node, which replaces the checkpoint with the key over ("" for
// none). since is when the sandbox was placed; it is checked because a later sandbox can have the same name.
func (d *Directory) keepCheckpoint(ctx context.Context, node string, name Name, since time.Time, over string, img travel.Image) error {
	text, err := json.Marshal(img)
	if err != nil {
		return err
	}
	tag, err := d.db.Exec(ctx, "UPDATE fleet_holders SET checkpoint = $4, stays = '' WHERE owner = $1 AND id = $2 AND node = $3 AND here AND awake AND placed = $5 AND coalesce(checkpoint->>'key', '') = $6",
		name.Owner, name.ID, node, text, since, over)
	if err == nil && tag.RowsAffected() == 0 {
		return errMoved
	}
	return databaseError(err)
}

// dropCheckpoints removes the checkpoints of a node on which checkpoints are turned off, and returns their keys.
func (d *Directory) dropCheckpoints(ctx context.Context, node string) ([]string, error) {
	rows, err := d.db.Query(ctx, `WITH old AS (SELECT owner, id, checkpoint FROM fleet_holders WHERE node = $1 AND checkpoint IS NOT NULL)
		UPDATE fleet_holders h SET checkpoint = NULL FROM old WHERE h.owner = old.owner AND h.id = old.id AND h.node = $1 RETURNING old.checkpoint->>'key'`, node)
	if err != nil {
		return nil, databaseError(err)
	}
	keys, err := pgx.CollectRows(rows, pgx.RowTo[string])
	return keys, databaseError(err)
}

// reserveWake reserves the promised memory and cores for a sandbox that is about to wake on its node. If the node has
// no capacity, isFull reports true for the error. The sandbox's image is out of date from then on; if checkpoints is
// true, it stays as a checkpoint. old is the key of the image.
func (d *Directory) reserveWake(ctx context.Context, node string, name Name, checkpoints bool) (old string, err error) {
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
		_, err = tx.Exec(ctx, `UPDATE fleet_holders SET awake = true, image = NULL, stays = '', fetcher = '', checkpoint =
			CASE WHEN $3 THEN coalesce(image || jsonb_build_object('checkpoint', now()), checkpoint) END WHERE owner = $1 AND id = $2`, name.Owner, name.ID, checkpoints)
		return err
	})
	return old, err
}

// roomOfNode is the name of the limit in the error of a full node.
const roomOfNode = "room of the node"

// isFull reports whether a sandbox could not wake because its node has no capacity for it.
func isFull(err error) bool {
	return hutch.KindOf(err) == hutch.Exhausted && hutch.AsError(err).Data["limit"] == roomOfNode
}

// checkRoom returns an error if a node has no capacity for one more awake sandbox. The node's row must be locked.
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

// transit runs a statement that moves one sandbox, and then makes its record in the store belong to no node.
func (d *Directory) transit(ctx context.Context, name Name, statement string, args ...any) error {
	return databaseError(pgx.BeginFunc(ctx, d.db, func(tx pgx.Tx) error {
		if err := changeRow(ctx, tx, statement, append([]any{name.Owner, name.ID}, args...)...); err != nil {
			return err
		}
		return giveRecord(ctx, tx, name, "")
	}))
}

func giveRecord(ctx context.Context, tx pgx.Tx, name Name, node string) error {
	if there, err := hasRecords(ctx, tx); err != nil || !there {
		return err
	}
	_, err := tx.Exec(ctx, "UPDATE hutch.sandboxes SET node = $3 WHERE owner = $1 AND sandbox = $2", name.Owner, name.ID, node)
	return err
}

// handOver assigns a sandbox that is in the bucket to another node, which is to fetch it.
func (d *Directory) handOver(ctx context.Context, from string, h Holder, to string) error {
	return d.transit(ctx, h.Name, `UPDATE fleet_holders h SET node = $5, here = false, stays = '' WHERE owner = $1 AND id = $2 AND node = $3 AND here
		AND NOT awake AND image->>'key' = $4 AND EXISTS (SELECT FROM fleet_nodes WHERE id = $5)`, from, h.Image.Key, to)
}

// claim makes a live node the fetcher of a sandbox whose node is dead. If several nodes claim at once, one succeeds, and
// the others get errMoved.
func (d *Directory) claim(ctx context.Context, h Holder, to string) error {
	return databaseError(changeRow(ctx, d.db, `UPDATE fleet_holders h SET fetcher = $3 WHERE owner = $1 AND id = $2 AND node = $4 AND here AND fetcher = $5
		AND `+isAway+` AND coalesce(image, checkpoint)->>'key' = $6 AND EXISTS (SELECT FROM fleet_nodes WHERE id = $3)`, h.Owner, h.ID, to, h.Node, h.Fetcher, h.inBucket().Key))
}

// dropClaim ends the claim of a node that could not fetch a sandbox.
func (d *Directory) dropClaim(ctx context.Context, name Name, fetcher string) error {
	_, err := d.db.Exec(ctx, "UPDATE fleet_holders SET fetcher = '' WHERE owner = $1 AND id = $2 AND fetcher = $3", name.Owner, name.ID, fetcher)
	return databaseError(err)
}

// dropClaims ends the claims to the sandboxes of a node that is back.
func (d *Directory) dropClaims(ctx context.Context, node string) error {
	_, err := d.db.Exec(ctx, "UPDATE fleet_holders SET fetcher = '' WHERE node = $1 AND fetcher <> ''", node)
	return databaseError(err)
}

// dropOwnClaims ends the claims of a node that starts, except those to the sandboxes in except, whose arrivals are
// undecided.
func (d *Directory) dropOwnClaims(ctx context.Context, fetcher string, except []Name) error {
	owners, ids := make([]string, 0, len(except)), make([]string, 0, len(except))
	for _, name := range except {
		owners, ids = append(owners, name.Owner), append(ids, name.ID)
	}
	_, err := d.db.Exec(ctx, `UPDATE fleet_holders SET fetcher = '' WHERE fetcher = $1
		AND (owner, id) NOT IN (SELECT * FROM unnest($2::text[], $3::text[]))`, fetcher, owners, ids)
	return databaseError(err)
}

// take assigns a sandbox that is on no node to another node, because the node that was to fetch it is dead. If several
// nodes try at once, the condition on h.node decides: after waiting for a lock, PostgreSQL reads that row again, but
// not rows of other tables.
func (d *Directory) take(ctx context.Context, h Holder, to string) error {
	return d.transit(ctx, h.Name, `UPDATE fleet_holders h SET node = $4, stays = '' WHERE owner = $1 AND id = $2
		AND NOT here AND image->>'key' = $3 AND h.node = $5 AND NOT `+isAlive+` AND EXISTS (SELECT FROM fleet_nodes WHERE id = $4)`, h.Image.Key, to, h.Node)
}

// arrived records that a node has fetched a sandbox. With this, a node also takes over the sandbox of a dead node. A
// second call changes nothing and succeeds.
func (d *Directory) arrived(ctx context.Context, h Holder, at string) error {
	// change locks the row of the dead node, so that this node cannot renew its lease meanwhile. change also recounts
	// the reservations of the dead node, which no longer include the sandbox.
	return d.change(ctx, h.Node, func(tx pgx.Tx) error {
		err := changeRow(ctx, tx, `UPDATE fleet_holders h SET node = $3, here = true, fetcher = '', stays = '', awake = false,
				image = coalesce(image, checkpoint), checkpoint = CASE WHEN image IS NOT NULL THEN checkpoint END
			WHERE owner = $1 AND id = $2 AND coalesce(image, checkpoint)->>'key' = $4 AND (node = $3 OR node = $5 AND fetcher = $3 AND here AND `+isAway+`)`,
			h.Owner, h.ID, at, h.inBucket().Key, h.Node)
		if err != nil {
			return err
		}
		return giveRecord(ctx, tx, h.Name, at)
	})
}

// fetchAgain makes a node fetch a sandbox that it lacks although, by the directory, it is asleep there. It returns
// errMoved for a sandbox without an image, and for one without a record in the store, which was destroyed.
func (d *Directory) fetchAgain(ctx context.Context, node string, name Name) error {
	return databaseError(pgx.BeginFunc(ctx, d.db, func(tx pgx.Tx) error {
		if there, err := hasRecords(ctx, tx); err != nil || !there {
			return cmp.Or(err, error(errMoved))
		}
		err := changeRow(ctx, tx, "UPDATE fleet_holders SET here = false, stays = '' WHERE owner = $1 AND id = $2 AND node = $3 AND here AND NOT awake AND image IS NOT NULL",
			name.Owner, name.ID, node)
		if err != nil {
			return err
		}
		return changeRow(ctx, tx, "UPDATE hutch.sandboxes SET node = '' WHERE owner = $1 AND sandbox = $2 AND node = $3", name.Owner, name.ID, node)
	}))
}

// recordStay records why a sandbox cannot leave its node.
func (d *Directory) recordStay(ctx context.Context, node string, name Name, why string) error {
	_, err := d.db.Exec(ctx, "UPDATE fleet_holders SET stays = $4 WHERE owner = $1 AND id = $2 AND node = $3", name.Owner, name.ID, node, why)
	return databaseError(err)
}

// recordLost records why a sandbox cannot wake from the image that a node has read, unless the sandbox has another
// image now.
func (d *Directory) recordLost(ctx context.Context, h Holder, why string) error {
	_, err := d.db.Exec(ctx, "UPDATE fleet_holders SET stays = $4 WHERE owner = $1 AND id = $2 AND node = $3 AND coalesce(image, checkpoint)->>'key' = $5", h.Owner, h.ID, h.Node, why, h.inBucket().Key)
	return databaseError(err)
}

// staying lists the sandboxes on a node that have a reason to stay there.
func (d *Directory) staying(ctx context.Context, node string) ([]Holder, error) {
	return d.holders(ctx, "h.node = $1 AND h.here AND h.stays <> ''", node)
}

// recordAllStay notes why no sandbox can leave a node.
func (d *Directory) recordAllStay(ctx context.Context, node, why string) error {
	_, err := d.db.Exec(ctx, "UPDATE fleet_holders SET stays = $2 WHERE node = $1 AND stays = ''", node, why)
	return databaseError(err)
}

// toFetch lists the sandboxes that a node is to fetch, except those whose images are lost.
func (d *Directory) toFetch(ctx context.Context, node string) ([]Holder, error) {
	return d.holders(ctx, "h.node = $1 AND NOT h.here AND h.stays = ''", node)
}

// abandon removes a sandbox that is on no live node, and assigns its record to a node, which removes the record. The
// sandbox is asleep, or has a checkpoint from which it could continue.
func (d *Directory) abandon(ctx context.Context, h Holder, recordTo string) error {
	// change locks the row of the dead node, so that this node cannot renew its lease meanwhile.
	return d.change(ctx, h.Node, func(tx pgx.Tx) error {
		err := changeRow(ctx, tx, "DELETE FROM fleet_holders h WHERE owner = $1 AND id = $2 AND placed = $3 AND node = $4 AND (NOT awake AND NOT "+isAlive+" OR "+isAway+")",
			h.Owner, h.ID, h.Placed, h.Node)
		if err != nil {
			return err
		}
		return giveRecord(ctx, tx, h.Name, recordTo)
	})
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
	return d.set(ctx, `SELECT i->>'key' FROM fleet_holders, unnest(ARRAY[image, checkpoint]) i WHERE i IS NOT NULL
		UNION ALL SELECT image->>'key' FROM fleet_snapshots WHERE image IS NOT NULL`)
}

// builds lists the builds that images need or that nodes run.
func (d *Directory) builds(ctx context.Context) (map[string]bool, error) {
	return d.set(ctx, `SELECT i->'needs'->>'build' FROM fleet_holders, unnest(ARRAY[image, checkpoint]) i WHERE i->'needs'->>'build' IS NOT NULL
		UNION SELECT image->'needs'->>'build' FROM fleet_snapshots WHERE image->'needs'->>'build' IS NOT NULL
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
