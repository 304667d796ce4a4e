// Package store keeps the daemon's state: one row for each sandbox, whose document is the engine's own record as JSON,
// and collections with the few documents of other packages. The other columns are only for people and counts; the
// document is authoritative.
//
// The state is in SQLite, in a file of one server, or in PostgreSQL, where several servers, the nodes, share it. Both
// pass the same suite of tests. Their differences are in sqlite.go and postgres.go. Two ideas make PostgreSQL work:
//
// Every document is encrypted with a key that the database does not have. So a dump of the database shows neither
// secrets nor tokens, and a document that was changed there is refused. Other packages need not encrypt their
// documents.
//
// A package keeps a collection in memory through a [Mirror]: one function applies each changed document to memory,
// whichever node changed it. A change first applies all earlier changes, and is then decided while the collection is
// locked. So a rule about several documents (a name is unique, there is a maximum) applies across all nodes.
package store

import (
	"cmp"
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"hutch"
	"hutch/internal/driver"
)

// Record is the data needed to find a sandbox again after a restart. Its JSON names are in the stores of existing
// servers, so they never change, even where they differ from the field names.
type Record struct {
	// Key is the key of the record, which is unique. It also names the sandbox's saved files and its first instance.
	// The id would not suffice, because two owners can use the same id.
	Key     string            `json:"place"`
	Sandbox hutch.Sandbox     `json:"sandbox"`
	Env     map[string]string `json:"env,omitempty"`
	// EnvNews are changes of Env that the interpreters in the sandbox have not received yet; nil removes a variable.
	EnvNews map[string]*string `json:"envNews,omitempty"`
	// Template is the id of the template that the sandbox started from, or of the sandbox that it is a copy of.
	Template         string        `json:"template,omitempty"`
	Secrets          []string      `json:"secrets,omitempty"` // as in hutch.CreateRequest: names, no values
	RequestedSecrets []string      `json:"lent,omitempty"`    // names of the secrets that programs have requested
	Token            string        `json:"token"`             // the token of the agent
	Handle           driver.Handle `json:"handle"`            // the driver's handle, while the sandbox runs
	InstanceID       string        `json:"seat,omitempty"`    // id of the present or last instance; empty means Key
	Used             Used          `json:"used"`
	Traffic          hutch.Traffic `json:"traffic,omitzero"`        // the sandbox's network traffic
	HiddenNetwork    []byte        `json:"hiddenNetwork,omitempty"` // encrypted: the parts of the network that have hidden values
	Listing          *Listing      `json:"books,omitempty"`         // set while the sandbox sleeps
	Ports            []Exposure    `json:"ports,omitempty"`
	// VolumesUnsaved reports that the sandbox was put to sleep without its agent, and so without a save of its volumes.
	VolumesUnsaved bool `json:"volumesUnsaved,omitempty"`

	// Most is the maximum number of the owner's sandboxes on all nodes, for a new record; 0 means no limit. It is not
	// stored.
	Most int `json:"-"`
}

// Generation returns a name that distinguishes this sandbox from all earlier ones with the same key. An id can be used
// again after a sandbox was destroyed. The name is derived from the token, but reveals nothing about it.
func (r Record) Generation() string {
	sum := sha256.Sum256([]byte("generation of a sandbox " + r.Token))
	return hex.EncodeToString(sum[:8])
}

// CheckpointName returns the name of the sandbox's copy for a backup of the data folder.
func (r Record) CheckpointName() string { return r.Key + checkpointSeparator + r.Generation() }

// checkpointSeparator is a character that cannot be in a key.
const checkpointSeparator = "@"

// CutCheckpointName returns the key and the generation of the sandbox whose copy has this name.
func CutCheckpointName(name string) (key, generation string) {
	key, generation, _ = strings.Cut(name, checkpointSeparator)
	return key, generation
}

// Exposure is an exposed port, without its URL.
type Exposure struct {
	hutch.Port
	Key string `json:"key"` // the key that signs links to the port
}

// Listing is what can be reported about a sleeping sandbox without waking it, such as its processes.
type Listing struct {
	Processes []hutch.Process     `json:"processes"`
	Contexts  []hutch.CodeContext `json:"contexts"`
}

// Store is an open store. Its methods are safe for concurrent use.
type Store struct {
	db *sql.DB
	database
}

// database has the operations that differ between SQLite and PostgreSQL.
type database interface {
	// query returns a statement with the parameters ? in the form of the database.
	query(statement string) string
	// limited adds the time limit of one operation.
	limited(ctx context.Context) (context.Context, context.CancelFunc)
	// explained turns an error into a message for a person.
	explained(err error) error
	// lock takes the lock with a name until the transaction ends.
	lock(ctx context.Context, tx *sql.Tx, name string) error
	// now returns the time for the dates in documents that several nodes read.
	now(ctx context.Context, tx *sql.Tx) (time.Time, error)
	// put writes a record. If keep is true, the record is not lost in a power failure.
	put(ctx context.Context, r Record, keep bool) error
	// ours returns an SQL condition with one parameter, and the value for it. It selects the rows of this node if nodes
	// share the tables.
	ours() (condition, value string)
	// opened returns the decrypted document; some databases do not encrypt.
	opened(name string, doc []byte) ([]byte, error)
	// watch passes the changes of other nodes to m, until the store is closed. For a file it does nothing, because
	// there are no other nodes.
	watch(m *Mirror)
	// writeDocument writes or removes a document; the caller holds its lock. A quiet change is not announced to
	// mirrors.
	writeDocument(ctx context.Context, tx *sql.Tx, s *Collection, d Document, quiet bool) error
	// putUsage writes the sum of an owner's usage; the caller holds its lock.
	putUsage(ctx context.Context, tx *sql.Tx, owner string, doc []byte) error
	shared() bool
	ready(ctx context.Context) error
	close() error
}

// Close closes the store.
func (s *Store) Close() error { return s.close() }

// Shared reports whether other nodes can use the store, too.
func (s *Store) Shared() bool { return s.shared() }

// Ready returns an error while the store cannot work.
func (s *Store) Ready(ctx context.Context) error {
	ctx, end := s.limited(ctx)
	defer end()
	return s.explained(s.ready(ctx))
}

// Put writes a record, and replaces an existing one with the same key.
func (s *Store) Put(ctx context.Context, r Record) error { return s.write(ctx, r, false) }

// Keep does the same as Put, for a record that must survive a power failure of the machine, together with all records
// that were written before it. It waits for the disk.
func (s *Store) Keep(ctx context.Context, r Record) error { return s.write(ctx, r, true) }

func (s *Store) write(ctx context.Context, r Record, keep bool) error {
	ctx, end := s.limited(ctx)
	defer end()
	if err := s.put(ctx, r, keep); err != nil {
		return fmt.Errorf("store sandbox %s: %w", r.Key, s.explained(err))
	}
	return nil
}

// Runtimes returns the runtimes of all records.
func (s *Store) Runtimes(ctx context.Context) (names []string, err error) {
	ours, us := s.ours()
	err = s.read(ctx, `select distinct runtime from sandboxes where `+ours+` order by runtime`, []any{us}, func(rows *sql.Rows) error {
		var name string
		err := rows.Scan(&name)
		names = append(names, name)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read the store: %w", err)
	}
	return names, nil
}

// Find returns the record of an owner's sandbox on any node. It works only in a shared store.
func (s *Store) Find(ctx context.Context, owner, sandbox string) (Record, error) {
	if !s.Shared() {
		return Record{}, hutch.Errorf(hutch.Unsupported, "this server shares its store with no other")
	}
	all, err := s.records(ctx, `owner = ? and sandbox = ?`, owner, sandbox)
	if err == nil && len(all) == 0 {
		err = hutch.Errorf(hutch.NotFound, "the store has no sandbox %q", sandbox).Naming(hutch.AboutSandbox, sandbox)
	}
	if err != nil {
		return Record{}, err
	}
	return all[0], nil
}

// Has reports whether the store has a record with the key: in a shared store, only a record of this node counts.
func (s *Store) Has(ctx context.Context, key string) (bool, error) {
	ours, us := s.ours()
	all, err := s.records(ctx, `id = ? and `+ours, key, us)
	return len(all) > 0, err
}

// All returns every record, oldest first; in a shared store, only those of this node.
func (s *Store) All(ctx context.Context) ([]Record, error) {
	ours, us := s.ours()
	return s.records(ctx, ours, us)
}

// records returns the records that match a condition, oldest first.
func (s *Store) records(ctx context.Context, condition string, args ...any) (all []Record, err error) {
	err = s.read(ctx, `select id, record from sandboxes where `+condition+` order by created, id`, args, func(rows *sql.Rows) error {
		var id string
		var doc []byte
		var r Record
		if err := rows.Scan(&id, &doc); err != nil {
			return err
		}
		doc, err := s.opened("sandbox "+id, doc)
		if err == nil {
			err = json.Unmarshal(doc, &r)
		}
		if err != nil {
			return fmt.Errorf("sandbox %s: %w", id, err)
		}
		r.Key = cmp.Or(r.Key, id) // empty in an older store, where the id was the key
		all = append(all, r)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read the store: %w", err)
	}
	return all, nil
}

// read calls each with every row that a query returns.
func (s *Store) read(ctx context.Context, statement string, args []any, each func(*sql.Rows) error) error {
	ctx, end := s.limited(ctx)
	defer end()
	return s.explained(readRows(ctx, s.db, s.query(statement), args, each))
}

type querier interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

func readRows(ctx context.Context, db querier, statement string, args []any, each func(*sql.Rows) error) error {
	rows, err := db.QueryContext(ctx, statement, args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := each(rows); err != nil {
			return err
		}
	}
	return rows.Err()
}

// inTransaction calls do in a transaction, which is committed if do succeeds.
func (s *Store) inTransaction(ctx context.Context, do func(ctx context.Context, tx *sql.Tx) error) error {
	ctx, end := s.limited(ctx)
	defer end()
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return s.explained(err)
	}
	defer tx.Rollback()
	if err := do(ctx, tx); err != nil {
		return s.explained(err)
	}
	return s.explained(tx.Commit())
}
