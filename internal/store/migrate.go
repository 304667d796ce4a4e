package store

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"

	"hutch"
)

// migrations lead from an empty database to the tables of this version, one after another. A released migration is
// never changed; new ones are appended. While a fleet is upgraded, nodes of two versions run at once, so a migration
// adds only things that older versions can ignore. A migration that breaks older versions has needs set, and runs when
// those versions are no longer in use.
var migrations = []struct {
	needs int // the number of migrations that a version must know to use the tables from here on
	sql   string
}{
	{1, `
create table sandboxes (
	id      text primary key,
	node    text not null,
	owner   text not null,
	sandbox text not null,
	status  text not null,
	runtime text not null,
	created timestamptz not null,
	record  bytea not null,
	unique (owner, sandbox)
);
create index sandboxes_node on sandboxes (node);
create sequence versions;
create table shelves (
	shelf   text not null,
	key     text not null,
	doc     bytea, -- null: it is gone
	version bigint not null,
	changed timestamptz not null,
	primary key (shelf, key)
);
create index shelves_version on shelves (shelf, version);
create table usage (
	node  text not null,
	owner text not null,
	doc   bytea not null,
	primary key (node, owner)
);
create table installation (
	one   boolean primary key default true check (one),
	id    text not null,
	proof bytea not null -- the id, sealed: who can open it has the key
);`},
}

// migrate brings the tables up to date, in one transaction, even if other nodes do the same at that time.
func (p *postgres) migrate(ctx context.Context) error {
	tx, err := p.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if err := p.lock(ctx, tx, "migration"); err != nil {
		return err
	}
	if err := p.migrateLocked(ctx, tx); err != nil {
		return err
	}
	if err := p.identify(ctx, tx); err != nil {
		return err
	}
	// From now on, the database is no longer what a restore has written: see [Restore.Done].
	if _, err := tx.ExecContext(ctx, `drop table if exists hutch.restored`); err != nil {
		return err
	}
	return tx.Commit()
}

func (p *postgres) migrateLocked(ctx context.Context, tx *sql.Tx) error {
	var there bool
	if err := tx.QueryRowContext(ctx, `select to_regclass('hutch.migrations') is not null`).Scan(&there); err != nil {
		return err
	}
	if !there {
		if _, err := tx.ExecContext(ctx, `create schema if not exists hutch`); err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, `create table hutch.migrations (number int primary key, needs int not null, at timestamptz not null default now())`); err != nil {
			return err
		}
	}
	var at, needs int
	if err := tx.QueryRowContext(ctx, `select coalesce(max(number), 0), coalesce(max(needs), 0) from migrations`).Scan(&at, &needs); err != nil {
		return err
	}
	if needs > len(migrations) {
		return hutch.Errorf(hutch.Unsupported, "a newer hutch has changed its tables in a way that this one does not know (format %d, this one knows %d): start that version or a newer one", needs, len(migrations))
	}
	return migrateTables(at, len(migrations), func(statement string, args ...any) error {
		_, err := tx.ExecContext(ctx, statement, args...)
		return err
	})
}

// migrateTables brings the tables from one format to another.
func migrateTables(from, to int, do func(statement string, args ...any) error) error {
	for number := from + 1; number <= to; number++ {
		m := migrations[number-1]
		if err := do(m.sql); err != nil {
			return fmt.Errorf("migration %d: %w", number, err)
		}
		if err := do(`insert into migrations (number, needs) values ($1, $2)`, number, m.needs); err != nil {
			return err
		}
	}
	return nil
}

// identify refuses the database of another installation. The first server that opens an empty database begins an
// installation.
func (p *postgres) identify(ctx context.Context, tx *sql.Tx) error {
	const name = "installation"
	var proof []byte
	err := tx.QueryRowContext(ctx, `select id, proof from installation`).Scan(&p.id, &proof)
	switch {
	case errors.Is(err, sql.ErrNoRows) && p.opt.Installation != "":
		return hutch.Errorf(hutch.Conflict, "the database is empty, and this data folder belongs to an installation that has one: give its database with --store, or restore that from a backup")
	case errors.Is(err, sql.ErrNoRows):
		p.id = "in-" + rand.Text()
		_, err := tx.ExecContext(ctx, `insert into installation (id, proof) values ($1, $2)`, p.id, p.sealed(name, []byte(p.id)))
		return err
	case err != nil:
		return err
	}
	if id, err := p.opened(name, proof); err != nil || string(id) != p.id {
		return hutch.Errorf(hutch.Denied, "the database belongs to another installation, or was written with another secret key: start with the key of that installation, by --secret-key or HUTCH_SECRET_KEY, or use another database")
	}
	if p.opt.Installation != "" && p.opt.Installation != p.id {
		return hutch.Errorf(hutch.Conflict, "the database belongs to another installation than this data folder: give the database of this one with --store, or use another data folder")
	}
	return nil
}

// Installation returns the id of the installation that shares the database; "" if the store is a file.
func (s *Store) Installation() string {
	if p, ok := s.database.(*postgres); ok {
		return p.id
	}
	return ""
}
