package fleet

import (
	"cmp"
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"hutch"
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
CREATE TABLE IF NOT EXISTS fleet_restores (
	number bigint PRIMARY KEY,
	id text NOT NULL
);
`

// notices is the channel of the database for changes of the table of nodes.
const notices = "hutch_fleet_nodes"

// NodeInfo is the directory's record of a node.
type NodeInfo struct {
	hutch.Node
	print     string   // fingerprint of its certificate; a removed node stays refused after another machine has joined with its name
	abilities []string // its abilities (see abilities.go)
}

// Name identifies a sandbox in the directory.
type Name struct {
	Owner string `json:"owner,omitempty"`
	ID    string `json:"sandboxId"`
}

// newSchema is the schema for the tables of new fleets. The store uses the same schema.
const newSchema = "hutch"

// findSchema returns the schema with the tables of the fleet. Tables of older versions can be in any schema, usually
// "public". It ignores tables that other users of the database have made, even if the search path leads to them first.
func findSchema(ctx context.Context, c *pgx.Conn) (schema string, err error) {
	err = c.QueryRow(ctx, `
		SELECT n.nspname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace, pg_database d, pg_roles me
		WHERE d.datname = current_database() AND me.rolname = current_user AND c.relname = 'fleet_nodes' AND c.relkind = 'r' AND n.nspname !~ '^pg_'
			AND (c.relowner IN (me.oid, d.datdba) OR NOT me.rolsuper AND pg_has_role(c.relowner, 'USAGE'))
		ORDER BY c.relowner = me.oid DESC, n.nspname = $1 DESC, array_position(current_schemas(false), n.nspname) LIMIT 1`, newSchema).Scan(&schema)
	if errors.Is(err, pgx.ErrNoRows) {
		return newSchema, nil
	}
	return schema, err
}

// chooseSchema makes table names in statements refer to one schema, on all connections that are made from now on.
func chooseSchema(ctx context.Context, cfg *pgxpool.Config) error {
	c, err := pgx.ConnectConfig(ctx, cfg.ConnConfig.Copy())
	if err != nil {
		return err
	}
	defer c.Close(context.WithoutCancel(ctx))
	schema, err := findSchema(ctx, c)
	if err != nil {
		return err
	}
	if schema == newSchema {
		err := pgx.BeginFunc(ctx, c, func(tx pgx.Tx) error {
			if err := lockTables(ctx, tx); err != nil {
				return err
			}
			_, err := tx.Exec(ctx, "CREATE SCHEMA IF NOT EXISTS "+newSchema)
			return err
		})
		if err != nil {
			return err
		}
	}
	set := "SET search_path = " + pgx.Identifier{schema}.Sanitize() // as a statement, because a pooler refuses it as a connection parameter
	cfg.AfterConnect = func(ctx context.Context, c *pgx.Conn) error {
		_, err := c.Exec(ctx, set)
		return err
	}
	return nil
}

// Directory is the state of a fleet in PostgreSQL: its nodes, and which node holds which sandbox.
type Directory struct {
	db *pgxpool.Pool
	// lease has separate connections for leases, so that leases do not wait for calls of clients.
	lease *pgxpool.Pool
}

const (
	connectTime = 5 * time.Second
	// abandoned is how long a node can pause in the middle of a transaction before the database ends the transaction
	// and releases its locks. It is much shorter than a lease, because a lock can be on the row of another node.
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
	if err := chooseSchema(ctx, cfg); err != nil {
		return nil, databaseError(err)
	}
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

// databaseError returns the error for a database that does not answer, or gives an unexpected answer.
func databaseError(err error) error {
	if err == nil {
		return nil
	}
	if _, ok := errors.AsType[*hutch.Error](err); ok {
		return err
	}
	return hutch.Errorf(hutch.Unavailable, "the fleet's database does not answer as it should: try again in a moment; an administrator checks it with `hutch node ls`").Because(err)
}
