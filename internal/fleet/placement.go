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

// placement describes a new sandbox that needs a node.
type placement struct {
	Name
	Memory int64
	CPU    float64
	Most   int         // limit of the owner's sandboxes; 0 is no limit
	Only   []string    // nodes that have the snapshot, template or volumes of the sandbox; nil is any
	Not    []string    // nodes that were tried without success
	From   *snapshotOn // the snapshot or template of the sandbox; nil for none
	Mounts string      // the node with the volumes of the sandbox; empty for a sandbox without volumes
	About  About
	Needs  []string // abilities that its node needs for its caller
}

// needs returns all abilities that the node of the sandbox needs.
func (p placement) needs() []string { return append(p.About.needs(), p.Needs...) }

// moves reports whether the snapshot of the sandbox must first come to another node, because only the bucket has it, or
// because the volumes of the sandbox are on another node.
func (p placement) moves() bool {
	return p.From != nil && (p.From.away() || p.Mounts != "" && p.Mounts != p.From.node)
}

// taintSchema adds the taints of nodes to tables of older versions.
const taintSchema = `
DO $$ BEGIN
	IF NOT EXISTS (SELECT FROM pg_attribute WHERE attrelid = 'fleet_nodes'::regclass AND attname = 'taints') THEN
		ALTER TABLE fleet_nodes ADD COLUMN taints jsonb NOT NULL DEFAULT '{}';
	END IF;
END $$`

// suits returns a condition on fleet_nodes n: by the node's labels and taints, a sandbox can be placed there. about is
// the expression for the sandbox's About. Nodes of older versions can have null as labels.
func suits(about string) string {
	selector, tolerations := "coalesce("+about+"->'nodeSelector', '{}')", "coalesce("+about+"->'tolerations', '{}')"
	return "((" + selector + " = '{}' OR n.labels @> " + selector + ") AND n.taints <@ " + tolerations + ")"
}

// unsuitableNode says why an existing sandbox cannot move to a node. It does not name labels and taints, because owners
// read it.
const unsuitableNode = ": its labels or taints do not match the sandbox's nodeSelector and tolerations"

// nodeLabels returns labels or taints in the JSON of a database column.
func nodeLabels(labels map[string]string) ([]byte, error) {
	if labels == nil {
		return []byte("{}"), nil
	}
	return json.Marshal(labels)
}

// bestOf is how many nodes with capacity are compared. Comparing a few is as good as comparing all, and concurrent
// creates then choose different nodes.
const bestOf = 3

// placeStatement returns the node of an existing sandbox, or chooses a node for a new one. The node's row is locked
// from the choice to the end, so its reservations are always counted exactly. Concurrent creates skip locked nodes. The
// row of an existing sandbox is locked for the read, so the read waits for a statement that removes the row. With a
// slow database, such a statement can still run when its caller has given up.
var placeStatement = `
WITH had AS (SELECT node FROM fleet_holders WHERE owner = $1 AND id = $2 FOR KEY SHARE),
own AS (SELECT count(*) AS n FROM fleet_holders WHERE $5 > 0 AND owner = $1),
ready AS (
	SELECT id, ` + abilitiesOf + ` @> $10::jsonb AS able, memory, cpu, most, promised_memory, promised_cpu, promised FROM fleet_nodes n
	WHERE state = 'ready' AND lease_until > now() AND ` + suits("$8::jsonb") + ` AND ($6::text[] IS NULL OR id = ANY ($6)) AND id <> ALL ($7)
),
roomy AS (
	SELECT id FROM ready WHERE able
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
UNION ALL SELECT 'busy', id FROM roomy
UNION ALL SELECT 'away', '' WHERE NOT EXISTS (SELECT FROM ready)
UNION ALL SELECT 'unsuitable', '' WHERE NOT EXISTS (SELECT FROM roomy)
	AND NOT (SELECT bool_or(` + suits("$8::jsonb") + `) FROM fleet_nodes n WHERE $6::text[] IS NULL OR n.id = ANY ($6))
UNION ALL (SELECT 'outdated', id FROM ready WHERE NOT EXISTS (SELECT FROM roomy) AND NOT EXISTS (SELECT FROM ready WHERE able) ORDER BY id LIMIT 1)`

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
		if pg, ok := errors.AsType[*pgconn.PgError](err); ok && pg.Code == "40P01" { // PostgreSQL ended a deadlock
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
		case has(answers, "unsuitable"):
			return "", false, p.unsuitable()
		case answers["outdated"] != "": // none of the ready nodes that suit the sandbox has the abilities
			return "", false, p.outdated(answers["outdated"])
		case has(answers, "away"):
			return "", false, hutch.Errorf(hutch.Unavailable, "no node of the fleet%s that can have the sandbox is ready: each is cordoned, drains, or does not answer. Try again when one is; an administrator sees them with `hutch node ls`", p.About.suitable()).With("limit", roomOfFleet)
		case !has(answers, "busy"):
			return "", false, hutch.Errorf(hutch.Exhausted, "no node of the fleet%s has room for %d MiB of memory and %v cores: destroy a sandbox, wait until an idle one sleeps, or add a node", p.About.suitable(), p.Memory, p.CPU).With("limit", roomOfFleet)
		}
		// Other creates have locked all nodes with capacity, or have taken the id meanwhile.
		if err := delay.Wait(ctx, pause); err != nil {
			return "", false, err
		}
	}
}

// suitable describes in words the nodes that suit a sandbox; "" if its request names no labels.
func (a About) suitable() string {
	if len(a.NodeSelector) == 0 {
		return ""
	}
	return " with " + hutch.FormatNodeLabels(a.NodeSelector)
}

// outdated returns the error for a sandbox when all nodes that suit it have older versions. As with unsuitable, the
// snapshot of the sandbox can then come to another node.
func (p placement) outdated(node string) error {
	return hutch.AsError(outdated(node, p.needs())).With("limit", nodesForSandbox)
}

// unsuitable returns the error for a sandbox that no node suits, however much capacity there is. It does not say what
// labels and taints there are, because only administrators may know the nodes.
func (p placement) unsuitable() error {
	among := ""
	if p.Only != nil {
		among = " that has its snapshot, template or volumes"
	}
	if len(p.About.NodeSelector) > 0 {
		return hutch.Errorf(hutch.Invalid, "no node of the fleet%s has all labels of nodeSelector, %s, and only taints that tolerations has: leave nodeSelector out or correct it, or ask an administrator, who sees labels and taints with `hutch node ls`",
			among, hutch.FormatNodeLabels(p.About.NodeSelector)).Naming(hutch.AboutField, "nodeSelector").With("limit", nodesForSandbox)
	}
	return hutch.Errorf(hutch.Invalid, "every node of the fleet%s has a taint that the sandbox does not tolerate: give tolerations, or ask an administrator, who sees the taints with `hutch node ls`",
		among).Naming(hutch.AboutField, "tolerations").With("limit", nodesForSandbox)
}

// Limits that errors name, for a full fleet and for a sandbox that no node suits.
const (
	roomOfFleet     = "room of the fleet"
	nodesForSandbox = "nodes for the sandbox"
)

// needsOtherNode reports whether an error means that none of the allowed nodes suits the sandbox and has capacity.
func needsOtherNode(err error) bool {
	if err == nil {
		return false
	}
	return suitsNoNode(err) || hutch.AsError(err).Data["limit"] == roomOfFleet
}

// suitsNoNode reports whether an error means that none of the allowed nodes suits the sandbox.
func suitsNoNode(err error) bool { return hutch.AsError(err).Data["limit"] == nodesForSandbox }

func has(m map[string]string, key string) bool { _, ok := m[key]; return ok }

func (d *Directory) placeOnce(ctx context.Context, p placement, about []byte) (answers map[string]string, err error) {
	read := func(q interface {
		Query(context.Context, string, ...any) (pgx.Rows, error)
	}) error {
		answers = map[string]string{}
		rows, err := q.Query(ctx, placeStatement, p.Owner, p.ID, p.Memory, p.CPU, p.Most, p.Only, p.Not, about, bestOf, abilitiesJSON(p.needs()))
		if err != nil {
			return err
		}
		var what, node string
		_, err = pgx.ForEachRow(rows, []any{&what, &node}, func() error { answers[what] = node; return nil })
		return err
	}
	if p.Most == 0 {
		err = read(d.db)
		return answers, err
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
