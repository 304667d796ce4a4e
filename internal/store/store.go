// Package store keeps the daemon's state on disk, in SQLite: one row for each
// sandbox, whose document is the engine's own record as JSON. The columns
// beside it exist only to be looked at by people; the document is the truth.
// Other packages keep their few documents on shelves of it.
package store

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"net/url"

	"hutch"
	"hutch/internal/driver"

	_ "modernc.org/sqlite" // pure Go: no C compiler, no shared library
)

// Record is what must be known of a sandbox to find it again after a restart.
type Record struct {
	// Place is its name on this host, unlike any other; the key of the record.
	Place   string            `json:"place"`
	Sandbox hutch.Sandbox     `json:"sandbox"`
	Env     map[string]string `json:"env,omitempty"`
	// EnvNews are changes of Env that the interpreters in the sandbox have not been told; nil removes a variable.
	EnvNews map[string]*string `json:"envNews,omitempty"`
	// Template is the id of the template that it began as, or the sandbox that it is a copy of.
	Template string        `json:"template,omitempty"`
	Secrets  []string      `json:"secrets,omitempty"` // as in hutch.CreateRequest: names, no values
	Lent     []string      `json:"lent,omitempty"`    // secrets that its programs have asked for, by name
	Token    string        `json:"token"`             // the agent's
	Handle   driver.Handle `json:"handle"`            // the driver's, while it runs
	Seat     string        `json:"seat,omitempty"`    // the driver's name of where it runs or last ran; empty is Place
	Used     Used          `json:"used"`
	Traffic  hutch.Traffic `json:"traffic,omitzero"` // what went over its network
	Books    *Books        `json:"books,omitempty"`
	Ports    []Exposure    `json:"ports,omitempty"`
	// VolumesUnsaved says that it was put to sleep without its agent, and so without a save of its volumes.
	VolumesUnsaved bool `json:"volumesUnsaved,omitempty"`
}

// Exposure is an exposed port, without its URL.
type Exposure struct {
	hutch.Port
	Key string `json:"key"` // what links to it are signed with
}

// Books are what can be said of a hibernated sandbox without waking it.
type Books struct {
	Processes []hutch.Process     `json:"processes"`
	Contexts  []hutch.CodeContext `json:"contexts"`
}

// Memory is the path of a store that is gone when it is closed.
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
pragma user_version = 2;`

const putRecord = `insert into sandboxes values (?, ?, ?, ?, ?)
	on conflict (id) do update set status = excluded.status, record = excluded.record`

// version is that of the schema. An older hutch does not open a newer one's
// store: what it does not know of, such as owners, it would not heed.
const version = 2

// Store is an open store. Its methods are safe for concurrent use.
type Store struct {
	db     *sql.DB
	put    *sql.Stmt
	delete *sql.Stmt
}

// Open opens the store at path, and makes it when it does not exist. A process that
// is killed at any moment loses no committed record; a machine that loses its
// power may lose the last few since Keep, whose sandboxes are gone with it.
func Open(ctx context.Context, path string) (*Store, error) {
	dsn := url.URL{Scheme: "file", Opaque: (&url.URL{Path: path}).EscapedPath(), RawQuery: url.Values{
		"_pragma": {"journal_mode(wal)", "synchronous(normal)", "busy_timeout(5000)"},
	}.Encode()}
	db, err := sql.Open("sqlite", dsn.String())
	if err != nil {
		return nil, fmt.Errorf("open store %s: %w", path, err)
	}
	db.SetMaxOpenConns(1) // SQLite has one writer, and every :memory: connection its own database
	s := &Store{db: db}
	if err := s.prepare(ctx); err != nil {
		db.Close()
		return nil, fmt.Errorf("open store %s: %w", path, err)
	}
	return s, nil
}

func (s *Store) prepare(ctx context.Context) error {
	var v int
	if err := s.db.QueryRowContext(ctx, "pragma user_version").Scan(&v); err != nil {
		return err
	}
	if v > version {
		return hutch.Errorf(hutch.Unsupported, "the store was written by a newer hutch (format %d, this one knows %d): start that version again, or use another data folder", v, version)
	}
	if _, err := s.db.ExecContext(ctx, schema+usageSchema); err != nil {
		return err
	}
	var err error
	s.put, err = s.db.PrepareContext(ctx, putRecord)
	if err != nil {
		return err
	}
	s.delete, err = s.db.PrepareContext(ctx, `delete from sandboxes where id = ?`)
	return err
}

// Close closes the store.
func (s *Store) Close() error { return s.db.Close() }

// Put writes a record over the one of the same place.
func (s *Store) Put(ctx context.Context, r Record) error {
	row, err := row(r)
	if err == nil {
		_, err = s.put.ExecContext(ctx, row...)
	}
	return unwritten(r, err)
}

// Keep is Put of a record that a machine must not lose with its power, nor any
// that was written before. It waits for the disk.
func (s *Store) Keep(ctx context.Context, r Record) error {
	row, err := row(r)
	if err != nil {
		return unwritten(r, err)
	}
	c, err := s.db.Conn(ctx) // the only one: no other caller writes meanwhile
	if err != nil {
		return unwritten(r, err)
	}
	defer c.Close()
	if _, err = c.ExecContext(ctx, "pragma synchronous = full"); err == nil {
		_, err = c.ExecContext(ctx, putRecord, row...)
	}
	_, failed := c.ExecContext(context.WithoutCancel(ctx), "pragma synchronous = normal")
	return unwritten(r, cmp.Or(err, failed))
}

// row is a record as a row of the table.
func row(r Record) ([]any, error) {
	doc, err := json.Marshal(r)
	created := r.Sandbox.CreatedAt.UTC().Format("2006-01-02T15:04:05.000Z")
	return []any{r.Place, r.Sandbox.Status, r.Sandbox.Runtime, created, doc}, err
}

func unwritten(r Record, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("store sandbox %s: %w", r.Place, explained(err))
}

// Runtimes returns those that there are records of.
func (s *Store) Runtimes(ctx context.Context) (names []string, err error) {
	rows, err := s.db.QueryContext(ctx, `select distinct runtime from sandboxes order by runtime`)
	if err != nil {
		return nil, fmt.Errorf("read the store: %w", err)
	}
	defer rows.Close()
	for rows.Next() {
		var name string
		if err := rows.Scan(&name); err != nil {
			return nil, fmt.Errorf("read the store: %w", err)
		}
		names = append(names, name)
	}
	return names, rows.Err()
}

// All returns every record, oldest first.
func (s *Store) All(ctx context.Context) ([]Record, error) {
	rows, err := s.db.QueryContext(ctx, `select id, record from sandboxes order by created, id`)
	if err != nil {
		return nil, fmt.Errorf("read the store: %w", err)
	}
	defer rows.Close()
	var all []Record
	for rows.Next() {
		var id string
		var doc []byte
		var r Record
		if err := rows.Scan(&id, &doc); err != nil {
			return nil, fmt.Errorf("read the store: %w", err)
		}
		if err := json.Unmarshal(doc, &r); err != nil {
			return nil, fmt.Errorf("read sandbox %s from the store: %w", id, err)
		}
		r.Place = cmp.Or(r.Place, id) // of a store from before places had names
		all = append(all, r)
	}
	return all, rows.Err()
}
