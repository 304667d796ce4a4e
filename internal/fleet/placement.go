package fleet

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"hutch"
	"hutch/internal/delay"
)

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
		if err := delay.Wait(ctx, pause); err != nil {
			return "", false, err
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
