package fleet

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"hutch"
	"hutch/internal/travel"
)

// schema is created by the first node that opens the directory. Later versions only add to it, so that nodes of two
// versions can share it.
const schema = `
CREATE TABLE IF NOT EXISTS fleet_authority (
	one boolean PRIMARY KEY DEFAULT true CHECK (one),
	certificate text NOT NULL,
	sealed_key bytea NOT NULL
);
CREATE TABLE IF NOT EXISTS fleet_nodes (
	id text PRIMARY KEY,
	address text NOT NULL DEFAULT '',
	version text NOT NULL DEFAULT '',
	state text NOT NULL DEFAULT 'ready',
	certificate text NOT NULL DEFAULT '',
	labels jsonb NOT NULL DEFAULT '{}',
	joined timestamptz NOT NULL DEFAULT now(),
	lease_until timestamptz NOT NULL DEFAULT '-infinity',
	epoch bigint NOT NULL DEFAULT 0,
	memory bigint NOT NULL DEFAULT 0,
	cpu double precision NOT NULL DEFAULT 0,
	most bigint NOT NULL DEFAULT 0,
	promised_memory bigint NOT NULL DEFAULT 0,
	promised_cpu double precision NOT NULL DEFAULT 0,
	promised bigint NOT NULL DEFAULT 0
);
CREATE TABLE IF NOT EXISTS fleet_holders (
	owner text NOT NULL,
	id text NOT NULL,
	node text NOT NULL REFERENCES fleet_nodes (id),
	memory bigint NOT NULL,
	cpu double precision NOT NULL,
	awake boolean NOT NULL DEFAULT true,
	placed timestamptz NOT NULL DEFAULT now(),
	about jsonb NOT NULL DEFAULT '{}',
	PRIMARY KEY (owner, id)
);
CREATE INDEX IF NOT EXISTS fleet_holders_node ON fleet_holders (node);
CREATE INDEX IF NOT EXISTS fleet_holders_id ON fleet_holders (id text_pattern_ops);
CREATE TABLE IF NOT EXISTS fleet_renewals (
	node text PRIMARY KEY REFERENCES fleet_nodes (id) ON DELETE CASCADE,
	count bigint NOT NULL
);
CREATE TABLE IF NOT EXISTS fleet_starts (
	node text PRIMARY KEY REFERENCES fleet_nodes (id) ON DELETE CASCADE,
	epoch bigint NOT NULL,
	started timestamptz NOT NULL
);
CREATE TABLE IF NOT EXISTS fleet_tokens (
	hash bytea PRIMARY KEY,
	expires timestamptz NOT NULL
);
`

// notices is the channel that notifies nodes when the table of nodes has changed.
const notices = "hutch_fleet_nodes"

// Lease is how long a node may serve after it last heard from the database, by the database's clock.
const Lease = 15 * time.Second

// NodeInfo is the directory's record of a node.
type NodeInfo struct {
	hutch.Node
	print string // fingerprint of its certificate: a removed node is still refused when another machine joins under its name
}

// Name identifies a sandbox in the directory.
type Name struct {
	Owner string `json:"owner,omitempty"`
	ID    string `json:"sandboxId"`
}

// Holder says where a sandbox is.
type Holder struct {
	Name
	Node   string    `json:"node"`
	Placed time.Time `json:"placed"`
	About  About     `json:"about,omitzero"`
	Awake  bool      `json:"awake"`
	// Stays is why the sandbox cannot leave a node that is drained, or cannot wake on another one.
	Stays string `json:"stays,omitempty"`
	// Here is false until the node has fetched it from the bucket.
	Here bool `json:"here"`
	// Image is the image of a sleeping sandbox in the bucket; nil for none.
	Image *travel.Image `json:"-"`
	// Checkpoint is the image in the bucket of an earlier state; nil for none.
	Checkpoint *travel.Image `json:"-"`
	// Away says that only the bucket has the sandbox: no node has it, or its node is away and the sandbox slept, or the
	// node has been away so long that the sandbox continues from its checkpoint on another node.
	Away bool `json:"-"`
	// InBucket says that the bucket has an image of the sandbox: the sandbox outlives its node.
	InBucket bool `json:"inBucket"`
}

// inBucket is the newest image of a sandbox; nil for none.
func (h Holder) inBucket() *travel.Image {
	if h.Image == nil {
		return h.Checkpoint
	}
	return h.Image
}

// About is the data that the directory keeps of a sandbox, to show it while its node is away.
type About struct {
	Image   string            `json:"image,omitempty"`
	Runtime string            `json:"runtime,omitempty"`
	Labels  map[string]string `json:"labels,omitempty"`
	Limits  hutch.Limits      `json:"limits,omitzero"`
}

// Directory is the state of a fleet in PostgreSQL: its nodes, and which node holds which sandbox.
type Directory struct {
	db *pgxpool.Pool
	// lease has the connections for leases, which do not wait for calls of clients.
	lease *pgxpool.Pool
}

const (
	connectTime = 5 * time.Second
	// abandoned is how long a node can pause in the middle of a transaction. Then the database ends it, and releases
	// its locks, such as one on the row of another node, long before a lease ends.
	abandoned = 4 * time.Second
)

// OpenDirectory connects to a database, and makes the tables of the directory where they are missing.
func OpenDirectory(ctx context.Context, dsn string) (*Directory, error) {
	cfg, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		return nil, hutch.Errorf(hutch.Invalid, "the URL of the database cannot be used: give postgres://USER:PASSWORD@HOST/DATABASE").Because(err)
	}
	cfg.HealthCheckPeriod = time.Minute
	cfg.ConnConfig.ConnectTimeout = cmp.Or(cfg.ConnConfig.ConnectTimeout, connectTime)
	cfg.ConnConfig.RuntimeParams["idle_in_transaction_session_timeout"] = strconv.FormatInt(abandoned.Milliseconds(), 10)
	db, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return nil, databaseError(err)
	}
	few := cfg.Copy()
	few.MinConns, few.MaxConns = 0, 2
	lease, err := pgxpool.NewWithConfig(ctx, few)
	if err != nil {
		db.Close()
		return nil, databaseError(err)
	}
	d := &Directory{db, lease}
	if err := pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error { return createTables(ctx, tx) }); err != nil {
		d.Close()
		return nil, databaseError(err)
	}
	return d, nil
}

// lockTables makes nodes that start at once create the tables and found the fleet one after the other. The lock ends with the
// transaction.
func lockTables(ctx context.Context, tx pgx.Tx) error {
	_, err := tx.Exec(ctx, "SELECT pg_advisory_xact_lock(7700, 19)")
	return err
}

// Close ends the connections.
func (d *Directory) Close() {
	d.lease.Close()
	d.db.Close()
}

// databaseError is the error for a database that does not answer, or not as expected.
func databaseError(err error) error {
	if err == nil {
		return nil
	}
	if _, ok := errors.AsType[*hutch.Error](err); ok {
		return err
	}
	return hutch.Errorf(hutch.Unavailable, "the fleet's database does not answer as it should: try again in a moment; an administrator checks it with `hutch node ls`").Because(err)
}

const nodeColumns = `n.id, n.certificate, n.address, n.version, n.state, n.lease_until > now(), n.labels, n.joined,
	CASE WHEN n.lease_until = '-infinity' THEN NULL ELSE n.lease_until END, n.epoch,
	n.memory, n.cpu, n.most, n.promised_memory, n.promised_cpu, n.promised`

// scanNode reads nodeColumns, and the columns after them.
func scanNode(row pgx.CollectableRow, more ...any) (n NodeInfo, err error) {
	var labels []byte
	fields := []any{&n.ID, &n.print, &n.Address, &n.Version, &n.State, &n.Alive, &labels, &n.Joined, &n.SeenUntil, &n.Epoch,
		&n.Room.Memory, &n.Room.CPU, &n.Room.Sandboxes, &n.Promised.Memory, &n.Promised.CPU, &n.Promised.Sandboxes}
	if err = row.Scan(append(fields, more...)...); err == nil {
		err = json.Unmarshal(labels, &n.Labels)
	}
	return n, err
}

// List lists the nodes by id.
func (d *Directory) List(ctx context.Context) ([]NodeInfo, error) {
	rows, err := d.db.Query(ctx, "SELECT "+nodeColumns+`, s.started, coalesce(h.held, 0), coalesce(h.stuck, 0) FROM fleet_nodes n
		LEFT JOIN fleet_starts s ON s.node = n.id AND s.epoch = n.epoch
		LEFT JOIN (SELECT node, count(*) AS held, count(*) FILTER (WHERE stays <> '') AS stuck FROM fleet_holders GROUP BY node) h ON h.node = n.id
		ORDER BY n.id`)
	if err != nil {
		return nil, databaseError(err)
	}
	list, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (NodeInfo, error) {
		var more hutch.Node
		n, err := scanNode(row, &more.Started, &more.Held, &more.Stuck)
		n.Started, n.Held, n.Stuck = more.Started, more.Held, more.Stuck
		return n, err
	})
	return list, databaseError(err)
}

// begin starts a node's lease. Its epoch distinguishes this process from an earlier one, and from a copy of the machine.
func (d *Directory) begin(ctx context.Context, n NodeInfo) (epoch int64, err error) {
	labels, err := json.Marshal(n.Labels)
	if err != nil {
		return 0, err
	}
	err = d.lease.QueryRow(ctx, `
		WITH mine AS (
			UPDATE fleet_nodes SET epoch = epoch + 1, lease_until = now() + $2::interval, address = $3, version = $4, labels = $5, memory = $6, cpu = $7, most = $8
			WHERE id = $1 AND certificate = $9 RETURNING id, epoch
		), started AS (
			INSERT INTO fleet_starts (node, epoch, started) SELECT id, epoch, now() FROM mine
			ON CONFLICT (node) DO UPDATE SET epoch = excluded.epoch, started = excluded.started
		)
		SELECT epoch FROM mine`,
		n.ID, Lease, n.Address, n.Version, labels, n.Room.Memory, n.Room.CPU, n.Room.Sandboxes, n.print).Scan(&epoch)
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

// renew renews the lease of a node and lists all nodes in one query. It also counts the renewals. Renewed is the count
// that the node read before: a database with a lower count was restored from a backup, and renews nothing.
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

// notifyNodes makes all nodes read the table of nodes now, and not only at their next renewal.
func (d *Directory) notifyNodes(ctx context.Context) { d.lease.Exec(ctx, "NOTIFY "+notices) }

// Follow calls changed for each change of the table of nodes, until ctx is done.
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
		if err := lockTables(ctx, tx); err != nil { // if two callers remove the last two nodes, one of them fails
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

// rescue assigns the sandboxes of a removed node that are in the bucket to another node, if there is one. A node that
// is replaced can fetch them itself, if it is the only one. Running sandboxes continue from their checkpoints, if they
// have any.
func rescue(ctx context.Context, tx pgx.Tx, id string, replaced, checkpoints bool) error {
	rows, err := tx.Query(ctx, `
		UPDATE fleet_holders SET node = other.id, here = false, awake = false, image = coalesce(image, checkpoint), checkpoint = NULL
		FROM (SELECT id FROM fleet_nodes WHERE id <> $1 OR $2 ORDER BY id = $1, state = 'ready' DESC, lease_until DESC LIMIT 1) other
		WHERE node = $1 AND (image IS NOT NULL OR $3 AND checkpoint IS NOT NULL) RETURNING owner, fleet_holders.id`, id, replaced, checkpoints)
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

// forgetRecords removes a node's records from the store in the same database, if there is one: ids are unique there too.
func forgetRecords(ctx context.Context, tx pgx.Tx, node string) error {
	var there bool
	if err := tx.QueryRow(ctx, "SELECT to_regclass('hutch.sandboxes') IS NOT NULL").Scan(&there); err != nil || !there {
		return err
	}
	_, err := tx.Exec(ctx, "DELETE FROM hutch.sandboxes WHERE node = $1", node)
	return err
}

// placement is a request for a node for a new sandbox.
type placement struct {
	Name
	Memory int64
	CPU    float64
	Most   int      // sandboxes of the owner; 0 is no limit
	Only   []string // nodes that have the snapshot or template of the sandbox; nil is any
	Not    []string // nodes that were tried without success
	About  About
}

// bestOf is how many nodes with capacity are compared. A few are as good as all, and concurrent creates then choose
// different nodes.
const bestOf = 3

// place returns the node of a sandbox, or chooses one. The node's row is locked from the choice to the end, so its
// reservations are always counted exactly. Concurrent creates skip locked nodes.
const place = `
WITH had AS (SELECT node FROM fleet_holders WHERE owner = $1 AND id = $2),
own AS (SELECT count(*) AS n FROM fleet_holders WHERE $5 > 0 AND owner = $1),
roomy AS (
	SELECT id FROM fleet_nodes
	WHERE state = 'ready' AND lease_until > now()
		AND ($6::text[] IS NULL OR id = ANY ($6)) AND id <> ALL ($7)
		AND promised_memory + $3 <= memory AND promised_cpu + $4 <= cpu AND promised < most
	ORDER BY random() LIMIT $9
),
pick AS (
	SELECT n.id FROM fleet_nodes n
	WHERE n.id IN (SELECT id FROM roomy) AND NOT EXISTS (SELECT 1 FROM had) AND ($5 = 0 OR (SELECT n FROM own) < $5)
		AND n.promised_memory + $3 <= n.memory AND n.promised_cpu + $4 <= n.cpu AND n.promised < n.most AND n.state = 'ready'
	ORDER BY greatest((n.promised_memory + $3)::float8 / n.memory, (n.promised_cpu + $4) / n.cpu), random()
	LIMIT 1 FOR UPDATE SKIP LOCKED
),
held AS (
	INSERT INTO fleet_holders (owner, id, node, memory, cpu, about) SELECT $1, $2, pick.id, $3, $4, $8 FROM pick
	ON CONFLICT DO NOTHING RETURNING node
),
promised AS (
	UPDATE fleet_nodes n SET promised_memory = promised_memory + $3, promised_cpu = promised_cpu + $4, promised = promised + 1
	FROM held WHERE n.id = held.node
)
SELECT 'held', node FROM held UNION ALL SELECT 'had', node FROM had
UNION ALL SELECT 'most', '' FROM own WHERE $5 > 0 AND n >= $5
UNION ALL SELECT 'busy', id FROM roomy`

// place returns the node that holds a sandbox or will create it. For a new sandbox it reserves memory and CPU of the
// node. Concurrent callers for one id get the same node.
func (d *Directory) place(ctx context.Context, p placement) (node string, made bool, err error) {
	about, err := json.Marshal(p.About)
	if err != nil {
		return "", false, err
	}
	if p.Not == nil {
		p.Not = []string{}
	}
	for pause := time.Millisecond; ; pause = min(2*pause, 50*time.Millisecond) {
		answers, err := d.placeOnce(ctx, p, about)
		if pg, ok := errors.AsType[*pgconn.PgError](err); ok && pg.Code == "40P01" { // a deadlock, which was broken
			continue
		}
		if err != nil {
			return "", false, databaseError(err)
		}
		switch {
		case answers["held"] != "":
			return answers["held"], true, nil
		case answers["had"] != "":
			return answers["had"], false, nil
		case has(answers, "most"):
			return "", false, hutch.Errorf(hutch.Exhausted, "the limit of %d sandboxes at once of this token, awake or asleep, is reached: destroy one", p.Most).With("limit", "sandboxes")
		case !has(answers, "busy"):
			return "", false, hutch.Errorf(hutch.Exhausted, "no node of the fleet has room for %d MiB of memory and %v cores: destroy a sandbox, wait until an idle one sleeps, or add a node", p.Memory, p.CPU).With("limit", "room of the fleet")
		}
		// Other creates have locked all nodes with capacity, or have taken the id meanwhile.
		select {
		case <-ctx.Done():
			return "", false, context.Cause(ctx)
		case <-time.After(pause):
		}
	}
}

func has(m map[string]string, key string) bool { _, ok := m[key]; return ok }

func (d *Directory) placeOnce(ctx context.Context, p placement, about []byte) (answers map[string]string, err error) {
	read := func(q interface {
		Query(context.Context, string, ...any) (pgx.Rows, error)
	}) error {
		answers = map[string]string{}
		rows, err := q.Query(ctx, place, p.Owner, p.ID, p.Memory, p.CPU, p.Most, p.Only, p.Not, about, bestOf)
		if err != nil {
			return err
		}
		var what, node string
		_, err = pgx.ForEachRow(rows, []any{&what, &node}, func() error { answers[what] = node; return nil })
		return err
	}
	if p.Most == 0 {
		return answers, read(d.db)
	}
	// Only one create at a time counts the sandboxes of an owner.
	err = pgx.BeginFunc(ctx, d.db, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "SELECT pg_advisory_xact_lock(7701, hashtext($1))", p.Owner); err != nil {
			return err
		}
		return read(tx)
	})
	return answers, err
}

// holder returns the holder of a sandbox; ok is false if no node holds it.
func (d *Directory) holder(ctx context.Context, n Name) (h Holder, ok bool, err error) {
	list, err := d.holders(ctx, "h.owner = $1 AND h.id = $2", n.Owner, n.ID)
	if err != nil || len(list) == 0 {
		return h, false, err
	}
	return list[0], true, nil
}

// mostOfLabel bounds the sandboxes that a label is searched in.
const mostOfLabel = 100

var likeEscapes = strings.NewReplacer(`\`, `\\`, "_", `\_`, "%", `\%`)

// ofLabel lists sandboxes of any owner that only the bucket has, and whose ports can have a label.
func (d *Directory) ofLabel(ctx context.Context, label string) ([]Holder, error) {
	ids, beginnings := hutch.LabelIDs(label)
	for i, b := range beginnings {
		beginnings[i] = likeEscapes.Replace(b) + "%"
	}
	list, err := d.holders(ctx, "(h.id = ANY ($1) OR h.id LIKE ANY ($2)) AND "+isAway, ids, beginnings)
	return list[:min(len(list), mostOfLabel)], err
}

const holderColumns = "h.owner, h.id, h.node, h.placed, h.awake, h.here, h.stays, h.image, h.checkpoint, " + isAway + ", h.about"

func scanHolder(row pgx.CollectableRow) (h Holder, err error) {
	var about, image, checkpoint []byte
	if err = row.Scan(&h.Owner, &h.ID, &h.Node, &h.Placed, &h.Awake, &h.Here, &h.Stays, &image, &checkpoint, &h.Away, &about); err == nil {
		err = json.Unmarshal(about, &h.About)
	}
	if err == nil && image != nil {
		h.InBucket, err = true, json.Unmarshal(image, &h.Image)
	}
	if err == nil && checkpoint != nil {
		err = json.Unmarshal(checkpoint, &h.Checkpoint)
	}
	return h, err
}

// heldBy lists the sandboxes of nodes, and sandboxes that are only in the bucket, of all owners or of one.
func (d *Directory) heldBy(ctx context.Context, nodes []string, owner *string) ([]Holder, error) {
	return d.holders(ctx, "(h.node = ANY ($1) OR NOT h.here) AND ($2::text IS NULL OR h.owner = $2)", nodes, owner)
}

// forgotten lists sandboxes that the directory has had on a node for a while. If the node does not have one, it was
// destroyed or never made.
func (d *Directory) forgotten(ctx context.Context, node string, after time.Duration) ([]Name, error) {
	rows, err := d.db.Query(ctx, "SELECT owner, id FROM fleet_holders WHERE node = $1 AND here AND placed < now() - $2::interval", node, after)
	if err != nil {
		return nil, databaseError(err)
	}
	list, err := pgx.CollectRows(rows, pgx.RowToStructByPos[Name])
	return list, databaseError(err)
}

// entry is a sandbox that a node reports.
type entry struct {
	Name
	Memory int64
	CPU    float64
	Awake  bool
	About  About
}

// adopt records sandboxes of a node that no create announced: copies, and those older than the fleet. It returns those
// that another node holds.
func (d *Directory) adopt(ctx context.Context, node string, list []entry) (taken []Name, err error) {
	if len(list) == 0 {
		return nil, nil
	}
	err = d.change(ctx, node, func(tx pgx.Tx) error {
		taken = nil
		for _, e := range list {
			about, err := json.Marshal(e.About)
			if err != nil {
				return err
			}
			var at string
			err = tx.QueryRow(ctx, `
				INSERT INTO fleet_holders AS h (owner, id, node, memory, cpu, awake, about) VALUES ($1, $2, $3, $4, $5, $6, $7)
				ON CONFLICT (owner, id) DO UPDATE SET awake = CASE WHEN h.node = $3 THEN $6 ELSE h.awake END,
					image = CASE WHEN h.node = $3 AND $6 THEN NULL ELSE h.image END RETURNING node`,
				e.Owner, e.ID, node, e.Memory, e.CPU, e.Awake, about).Scan(&at)
			if err != nil {
				return err
			}
			if at != node {
				taken = append(taken, e.Name)
			}
		}
		return nil
	})
	return taken, err
}

// free forgets sandboxes that a node no longer has.
func (d *Directory) free(ctx context.Context, node string, list ...Name) error {
	if len(list) == 0 {
		return nil
	}
	owners, ids := split(list)
	return d.change(ctx, node, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, `DELETE FROM fleet_holders h USING unnest($2::text[], $3::text[]) AS u(owner, id)
			WHERE h.owner = u.owner AND h.id = u.id AND h.node = $1 AND h.here`, node, owners, ids)
		return err
	})
}

// awake notes which sandboxes of a node have fallen asleep, or are awake.
func (d *Directory) awake(ctx context.Context, node string, list []entry) error {
	if len(list) == 0 {
		return nil
	}
	names := make([]Name, len(list))
	awake := make([]bool, len(list))
	for i, e := range list {
		names[i], awake[i] = e.Name, e.Awake
	}
	owners, ids := split(names)
	return d.change(ctx, node, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, `UPDATE fleet_holders h SET awake = u.awake, image = CASE WHEN u.awake THEN NULL ELSE h.image END FROM unnest($2::text[], $3::text[], $4::bool[]) AS u(owner, id, awake)
			WHERE h.owner = u.owner AND h.id = u.id AND h.node = $1 AND h.here`, node, owners, ids, awake)
		return err
	})
}

func split(list []Name) (owners, ids []string) {
	for _, n := range list {
		owners, ids = append(owners, n.Owner), append(ids, n.ID)
	}
	return owners, ids
}

// change changes which sandboxes a node holds, and recounts its reservations. It locks the node's row first, as place
// does.
func (d *Directory) change(ctx context.Context, node string, do func(pgx.Tx) error) error {
	return databaseError(pgx.BeginFunc(ctx, d.db, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "SELECT 1 FROM fleet_nodes WHERE id = $1 FOR UPDATE", node); err != nil {
			return err
		}
		if err := do(tx); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, `
			UPDATE fleet_nodes SET (promised_memory, promised_cpu, promised) =
				(SELECT coalesce(sum(memory), 0), coalesce(sum(cpu), 0), count(*) FROM fleet_holders WHERE node = $1 AND awake)
			WHERE id = $1`, node)
		return err
	}))
}

// Held lists the sandboxes that a node holds, oldest first.
func (d *Directory) Held(ctx context.Context, node string) ([]Holder, error) {
	return d.holders(ctx, "h.node = $1 AND h.here", node)
}
