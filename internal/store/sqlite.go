package store

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"time"

	"modernc.org/sqlite" // pure Go: no C compiler, no shared library
	sqlite3 "modernc.org/sqlite/lib"

	"hutch"
	"hutch/internal/durable"
)

// Memory is the path of a store that is lost when it is closed.
const Memory = ":memory:"

const schema = `
create table if not exists sandboxes (
	id      text primary key,
	status  text not null,
	runtime text not null,
	created text not null,
	record  blob not null
) strict;
create table if not exists shelves (
	shelf text not null,
	key   text not null,
	doc   blob not null,
	primary key (shelf, key)
) strict, without rowid;
create table if not exists usage (
	owner text primary key,
	doc   blob not null
) strict;
pragma user_version = 2;`

const putRecord = `insert into sandboxes values (?, ?, ?, ?, ?)
	on conflict (id) do update set status = excluded.status, record = excluded.record`

// version is the version of the schema. An older hutch does not open a newer store, because it would ignore rules that
// it does not know, such as rules about owners.
const version = 2

// sqliteFile is the database of one server. No other process changes it.
type sqliteFile struct {
	db      *sql.DB
	prepped *sql.Stmt // putRecord
}

// Open opens the store in the file at path, and creates it if it does not exist. A process that is killed at any moment
// loses no committed record. A power failure of the machine can lose the last few records since the last Keep; their
// sandboxes are lost with it anyway.
func Open(ctx context.Context, path string) (*Store, error) {
	dsn := url.URL{Scheme: "file", Opaque: (&url.URL{Path: path}).EscapedPath(), RawQuery: url.Values{
		"_pragma": {"journal_mode(wal)", "synchronous(normal)", "busy_timeout(5000)"},
	}.Encode()}
	db, err := sql.Open("sqlite", dsn.String())
	if err != nil {
		return nil, fmt.Errorf("open store %s: %w", path, err)
	}
	db.SetMaxOpenConns(1) // SQLite has one writer, and every :memory: connection its own database
	f := &sqliteFile{db: db}
	if err := f.prepare(ctx); err != nil {
		db.Close()
		return nil, fmt.Errorf("open store %s: %w", path, err)
	}
	return &Store{db, f}, nil
}

func (f *sqliteFile) prepare(ctx context.Context) error {
	var v int
	if err := f.db.QueryRowContext(ctx, "pragma user_version").Scan(&v); err != nil {
		return err
	}
	if v > version {
		return hutch.Errorf(hutch.Unsupported, "the store was written by a newer hutch (format %d, this one knows %d): start that version again, or use another data folder", v, version)
	}
	_, err := f.db.ExecContext(ctx, schema)
	if err == nil {
		f.prepped, err = f.db.PrepareContext(ctx, putRecord)
	}
	return err
}

func (f *sqliteFile) put(ctx context.Context, r Record, keep bool) error {
	doc, err := json.Marshal(r)
	if err != nil {
		return err
	}
	row := []any{r.Key, r.Sandbox.Status, r.Sandbox.Runtime, r.Sandbox.CreatedAt.UTC().Format("2006-01-02T15:04:05.000Z"), doc}
	if !keep {
		_, err = f.prepped.ExecContext(ctx, row...)
		return err
	}
	c, err := f.db.Conn(ctx) // the only connection, so no other caller writes meanwhile
	if err != nil {
		return err
	}
	defer c.Close()
	if _, err = c.ExecContext(ctx, "pragma synchronous = full"); err == nil {
		_, err = c.ExecContext(ctx, putRecord, row...)
	}
	_, failed := c.ExecContext(context.WithoutCancel(ctx), "pragma synchronous = normal")
	return cmp.Or(err, failed)
}

// explained returns err, with a message for a person if the disk is full.
func (*sqliteFile) explained(err error) error {
	e, ok := errors.AsType[*sqlite.Error](err)
	if !ok || e.Code() != sqlite3.SQLITE_FULL && e.Code() != sqlite3.SQLITE_IOERR_SHMSIZE {
		return err
	}
	return durable.Full.Because(err)
}

func (f *sqliteFile) ready(ctx context.Context) error {
	_, err := f.db.ExecContext(ctx, `insert into shelves values ('ready', 'at', ?) on conflict do update set doc = excluded.doc`, []byte(time.Now().UTC().Format(time.RFC3339)))
	return err
}

func (*sqliteFile) query(statement string) string { return statement }
func (*sqliteFile) limited(ctx context.Context) (context.Context, context.CancelFunc) {
	return ctx, func() {}
}
func (*sqliteFile) lock(context.Context, *sql.Tx, string) error     { return nil }
func (*sqliteFile) now(context.Context, *sql.Tx) (time.Time, error) { return time.Now(), nil }
func (*sqliteFile) ours() (condition, value string)                 { return "'' = ?", "" }
func (*sqliteFile) opened(_ string, doc []byte) ([]byte, error)     { return doc, nil }
func (*sqliteFile) watch(*Mirror)                                   {}
func (*sqliteFile) shared() bool                                    { return false }
func (f *sqliteFile) close() error                                  { return f.db.Close() }

func (*sqliteFile) writeDocument(ctx context.Context, tx *sql.Tx, s *Collection, d Document, _ bool) (err error) {
	if d.Doc == nil {
		_, err = tx.ExecContext(ctx, `delete from shelves where shelf = ? and key = ?`, s.name, d.Key)
	} else {
		_, err = tx.ExecContext(ctx, `insert into shelves values (?, ?, ?) on conflict do update set doc = excluded.doc`, s.name, d.Key, d.Doc)
	}
	return err
}

func (*sqliteFile) putUsage(ctx context.Context, tx *sql.Tx, owner string, doc []byte) error {
	_, err := tx.ExecContext(ctx, `insert into usage values (?, ?) on conflict (owner) do update set doc = excluded.doc`, owner, doc)
	return err
}
