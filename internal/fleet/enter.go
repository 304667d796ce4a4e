package fleet

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"hutch"
	"hutch/internal/delay"
)

// Entry is a machine's request to join the fleet in a database without a join token.
type Entry struct {
	Node       string
	Store      string // URL of the database
	SecretsKey string
	// Replace replaces an absent node of the same name. Its sandboxes are lost, except those in the bucket.
	Replace bool
}

// Enter makes this machine a node with nothing but access to the database and the key of the secrets. If the database
// has no fleet, the error is [hutch.NotFound]. The authority's key is in the database, encrypted with the key of the
// secrets. A caller that has both can sign its own certificate, so a token would prove nothing more.
func Enter(ctx context.Context, d *Directory, e Entry) (*Identity, error) {
	if err := hutch.CheckID(e.Node); err != nil {
		return nil, err
	}
	authority, err := readAuthority(ctx, d.db, e.SecretsKey)
	if err != nil {
		return nil, err
	}
	key, request, err := newKey()
	if err != nil {
		return nil, err
	}
	id, err := authority.sign(e.Node, request)
	if err != nil {
		return nil, err
	}
	id.Key, id.Store, id.SecretsKey = key, e.Store, e.SecretsKey
	print, err := id.print()
	if err != nil {
		return nil, err
	}
	if err := d.enterSoon(ctx, e, print); err != nil {
		return nil, err
	}
	d.notifyNodes(ctx)
	return id, nil
}

var errStillAlive = hutch.Errorf(hutch.Conflict, "another process runs as this node: end it, or give this one another name with --node")

// enterSoon enters with the node's name. If the node to be replaced was killed, its lease is still valid for a while,
// so enterSoon waits for its end.
func (d *Directory) enterSoon(ctx context.Context, e Entry, print string) error {
	ctx, cancel := context.WithTimeout(ctx, 2*Lease)
	defer cancel()
	for {
		err := d.enter(ctx, e, print)
		if !errors.Is(err, errStillAlive) {
			return err
		}
		if delay.Wait(ctx, time.Second) != nil {
			return errStillAlive
		}
	}
}

// enter adds a node, or gives its name a new certificate; the old one is then useless. A node that was never started
// has nothing, so its name is free. This happens when a process ends before it has written its identity. The state of a
// replaced node is kept: a cordoned node stays cordoned.
func (d *Directory) enter(ctx context.Context, e Entry, print string) error {
	return databaseError(pgx.BeginFunc(ctx, d.db, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "INSERT INTO fleet_nodes (id) VALUES ($1) ON CONFLICT DO NOTHING", e.Node); err != nil {
			return err
		}
		var began, alive bool
		err := tx.QueryRow(ctx, "SELECT lease_until > '-infinity', lease_until > now() FROM fleet_nodes WHERE id = $1 FOR UPDATE", e.Node).Scan(&began, &alive)
		switch {
		case err != nil:
			return err
		case began && !e.Replace:
			return hutch.Errorf(hutch.Conflict, "the fleet has a node %q, and this data folder is not that node's: bring its data folder back, or remove it with `hutch node rm %[1]s` on another node; with --fleet-replace a new node takes the place of one that is away, and what that one held is lost, except what the bucket has", e.Node)
		case alive:
			return errStillAlive
		}
		if err := rescue(ctx, tx, e.Node, true, true); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, "DELETE FROM fleet_holders WHERE node = $1 AND (here OR image IS NULL)", e.Node); err != nil {
			return err
		}
		if err := forgetRecords(ctx, tx, e.Node); err != nil {
			return err
		}
		if _, err := removeSnapshotsOf(ctx, tx, e.Node); err != nil {
			return err
		}
		_, err = tx.Exec(ctx, "UPDATE fleet_nodes SET certificate = $2, promised_memory = 0, promised_cpu = 0, promised = 0 WHERE id = $1", e.Node, print)
		return err
	}))
}
