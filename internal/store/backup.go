package store

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"hutch"
)

// Part is a set of tables in a shared store, for backups. One part has the tables of this package. Another package can
// keep tables in the same database; they are another part.
type Part struct {
	// Schema is the schema of the tables. If it is "", Find returns the schema.
	Schema string
	Find   func(ctx context.Context, c *pgx.Conn) (schema string, err error)
	// Tables are in an order in which they can be filled: a table comes after those that it refers to.
	Tables []Table
	// Create creates the empty tables. In its statements, and in those of Restored, names without a schema are in
	// Schema.
	Create func(ctx context.Context, tx pgx.Tx) error
	// Restored removes data that was valid only for the servers of the backup from the restored tables. It can be nil.
	Restored func(ctx context.Context, tx pgx.Tx) error
}

// Table is a table with all columns that this version knows.
type Table struct {
	Name    string
	Columns []string
}

// ownTables are the tables of this package. The table of migrations is missing, because a restore writes that table
// itself.
var ownTables = []Table{
	{"installation", []string{"one", "id", "proof"}},
	{"sandboxes", []string{"id", "node", "owner", "sandbox", "status", "runtime", "created", "record"}},
	{"shelves", []string{"shelf", "key", "doc", "version", "changed"}},
	{"usage", []string{"node", "owner", "doc"}},
}

// ownSchema is the schema of this package's tables.
const ownSchema = "hutch"

// Content describes what a backup of a database contains.
type Content struct {
	Format       int            `json:"format"` // the number of migrations that were applied to the tables
	Installation string         `json:"installation"`
	Version      int64          `json:"version"` // the highest version among the documents
	Tables       []TableContent `json:"tables"`
	// Sandboxes are the numbers of sandboxes on each node.
	Sandboxes map[string]int64 `json:"sandboxes"`
}

// TableContent describes what a backup of a table contains.
type TableContent struct {
	Name    string   `json:"name"`
	Columns []string `json:"columns"`
	Rows    int64    `json:"rows"`
	Bytes   int64    `json:"bytes"`
}

// Rows returns the number of all rows.
func (c Content) Rows() (n int64) {
	for _, t := range c.Tables {
		n += t.Rows
	}
	return n
}

// mostRow is the size of the largest row in a backup, as text. PostgreSQL keeps a whole row in memory.
const mostRow = 64 << 20

// connection is a connection to a shared store, for a backup or a restore. No server uses it, and its transactions can take hours.
type connection struct {
	postgres // only its key, its name and its errors are used
	conn     *pgx.Conn
	parts    []Part
}

func connect(ctx context.Context, opt Options, more []Part) (*connection, error) {
	config, where, err := parse(opt.URL)
	if err != nil {
		return nil, err
	}
	c := &connection{postgres: postgres{config: config, where: where, opt: opt}}
	if c.seal, err = newSeal(opt.Key); err != nil {
		return nil, err
	}
	c.parts = append([]Part{{Schema: ownSchema, Tables: ownTables}}, more...)
	// These settings make the text of values independent of the settings of a database or a user.
	const same = `set idle_in_transaction_session_timeout = 0; set statement_timeout = 0; set datestyle = 'ISO, MDY'; set intervalstyle = 'postgres';
		set timezone = 'UTC'; set bytea_output = 'hex'; set extra_float_digits = 1; set tcp_keepalives_idle = 10; set tcp_keepalives_interval = 5; set tcp_keepalives_count = 3`
	config.AfterConnect = func(ctx context.Context, c *pgconn.PgConn) error { return c.Exec(ctx, same).Close() }
	dial, end := context.WithTimeout(ctx, cmp.Or(opt.Wait, 2*connectTime))
	defer end()
	if c.conn, err = pgx.ConnectConfig(dial, config); err != nil {
		return nil, fmt.Errorf("open the store in %s: %w", where, c.explained(err))
	}
	for i, p := range c.parts {
		if p.Schema != "" {
			continue
		}
		if c.parts[i].Schema, err = p.Find(dial, c.conn); err != nil {
			return nil, errors.Join(fmt.Errorf("open the store in %s: %w", where, c.explained(err)), c.Close())
		}
	}
	return c, nil
}

// Close ends the connection, and with it a transaction that was not committed.
func (c *connection) Close() error {
	ctx, end := context.WithTimeout(context.Background(), time.Second)
	defer end()
	return c.conn.Close(ctx)
}

// Where returns the name of the database, for people.
func (c *connection) Where() string { return c.where }

// sqlName returns a table's name for use in statements. Table names are from this program, never from a backup.
func (p Part) sqlName(table string) string {
	return pgx.Identifier{p.Schema, table}.Sanitize()
}

func columnList(columns []string) (list string) {
	for i, name := range columns {
		if i > 0 {
			list += ", "
		}
		list += pgx.Identifier{name}.Sanitize()
	}
	return list
}

func (c *connection) noInstallation() error {
	return hutch.Errorf(hutch.NotFound, "no installation is in the database %s: give the database that the server uses, with --store or in HUTCH_STORE", c.where)
}

// checkInstallation returns the id of the installation in the database. It refuses the database of another
// installation.
func (c *connection) checkInstallation(ctx context.Context, tx pgx.Tx) (string, error) {
	var id string
	var proof []byte
	err := tx.QueryRow(ctx, `select id, proof from hutch.installation`).Scan(&id, &proof)
	if errors.Is(err, pgx.ErrNoRows) {
		return "", c.noInstallation()
	}
	if err != nil {
		return "", err
	}
	if opened, err := c.opened("installation", proof); err != nil || string(opened) != id {
		return "", hutch.Errorf(hutch.Denied, "the database %s belongs to another installation, or was written with another secret key: give the key and the database of one installation", c.where)
	}
	if c.opt.Installation != "" && c.opt.Installation != id {
		return "", hutch.Errorf(hutch.Conflict, "the database %s belongs to another installation than the data folder: give the database that the server of this folder uses, with --store or in HUTCH_STORE", c.where)
	}
	return id, nil
}

// Backup reads a shared store for a backup, while servers use it.
type Backup struct {
	*connection
	tx pgx.Tx // sees the database at one moment
}

// OpenBackup connects to a shared store. Of the options it needs URL, Key and Installation. It creates and locks
// nothing in the store.
func OpenBackup(ctx context.Context, opt Options, more ...Part) (*Backup, error) {
	c, err := connect(ctx, opt, more)
	if err != nil {
		return nil, err
	}
	b := &Backup{connection: c}
	if _, err := b.Refresh(ctx); err != nil {
		return nil, errors.Join(err, b.Close())
	}
	return b, b.Release(ctx)
}

// Refresh begins a transaction that sees the present state of the database, and returns what is in it, without the
// numbers of rows and bytes.
func (b *Backup) Refresh(ctx context.Context) (c Content, err error) {
	if err := b.Release(ctx); err != nil {
		return c, err
	}
	if b.tx, err = b.conn.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}); err == nil {
		c, err = b.content(ctx)
	}
	if err != nil {
		return c, fmt.Errorf("back up the database: %w", b.explained(err))
	}
	return c, nil
}

// Release ends the transaction of Refresh.
func (b *Backup) Release(ctx context.Context) error {
	if b.tx == nil {
		return nil
	}
	err := b.tx.Rollback(ctx)
	b.tx = nil
	return b.explained(err)
}

func (b *Backup) content(ctx context.Context) (c Content, err error) {
	var there bool
	if err := b.tx.QueryRow(ctx, `select to_regclass('hutch.migrations') is not null`).Scan(&there); err != nil {
		return c, err
	}
	if !there {
		return c, b.noInstallation()
	}
	if err := b.tx.QueryRow(ctx, `select coalesce(max(number), 0) from hutch.migrations`).Scan(&c.Format); err != nil {
		return c, err
	}
	if c.Format > len(migrations) {
		return c, hutch.Errorf(hutch.Unsupported, "a newer hutch has changed the tables of the database %s (format %d, this one knows %d): make the backup with that version", b.where, c.Format, len(migrations))
	}
	if c.Installation, err = b.checkInstallation(ctx, b.tx); err != nil {
		return c, err
	}
	if err := b.tx.QueryRow(ctx, `select last_value from hutch.versions`).Scan(&c.Version); err != nil {
		return c, err
	}
	for _, p := range b.parts {
		for _, t := range p.Tables {
			columns, err := b.columns(ctx, p, t)
			if err != nil {
				return c, err
			}
			if len(columns) > 0 {
				c.Tables = append(c.Tables, TableContent{Name: t.Name, Columns: columns})
			}
		}
	}
	c.Sandboxes = map[string]int64{}
	rows, err := b.tx.Query(ctx, `select node, count(*) from hutch.sandboxes group by node`)
	if err != nil {
		return c, err
	}
	var node string
	var n int64
	_, err = pgx.ForEachRow(rows, []any{&node, &n}, func() error { c.Sandboxes[node] = n; return nil })
	return c, err
}

// columns returns the columns of a table in the database; none if the table does not exist. It refuses a column that
// this version does not know, because that column would be missing in the backup.
func (b *Backup) columns(ctx context.Context, p Part, t Table) ([]string, error) {
	rows, err := b.tx.Query(ctx, `select attname from pg_attribute where attrelid = to_regclass($1) and attnum > 0 and not attisdropped order by attnum`, p.sqlName(t.Name))
	if err != nil {
		return nil, err
	}
	there, err := pgx.CollectRows(rows, pgx.RowTo[string])
	for _, name := range there {
		if !slices.Contains(t.Columns, name) {
			return nil, hutch.Errorf(hutch.Unsupported, "the table %s of the database %s has a column that this hutch does not know, %s, as after an upgrade: make the backup with the newest version that uses the database", t.Name, b.where, name)
		}
	}
	return there, err
}

// Records calls each with every record of a node, in no particular order.
func (b *Backup) Records(ctx context.Context, node string, each func(Record) error) error {
	rows, err := b.tx.Query(ctx, `select id, record from hutch.sandboxes where node = $1`, node)
	if err != nil {
		return b.explained(err)
	}
	var id string
	var doc []byte
	_, err = pgx.ForEachRow(rows, []any{&id, &doc}, func() error {
		var r Record
		text, err := b.opened("sandbox "+id, doc)
		if err == nil {
			err = json.Unmarshal(text, &r)
		}
		if err != nil {
			return fmt.Errorf("sandbox %s: %w", id, err)
		}
		r.Key = cmp.Or(r.Key, id)
		return each(r)
	})
	return b.explained(err)
}

// Copy writes each table in c to the writer that to returns, and adds the numbers of rows and bytes to c.
func (b *Backup) Copy(ctx context.Context, c *Content, to func(table string) io.WriteCloser) error {
	for i := range c.Tables {
		t := &c.Tables[i]
		p, _, _ := find(b.parts, t.Name)
		out := to(t.Name)
		rows := &RowCounter{}
		_, err := b.conn.PgConn().CopyTo(ctx, io.MultiWriter(rows, out), "copy "+p.sqlName(t.Name)+" ("+columnList(t.Columns)+") to stdout")
		if err = errors.Join(err, out.Close()); err != nil {
			return fmt.Errorf("back up the table %s: %w", t.Name, b.explained(err))
		}
		t.Rows, t.Bytes = rows.Rows, rows.Bytes
	}
	return nil
}

// find returns the part and the table with a name, and the index of the table among the tables of all parts. The table
// is nil if this program has no such table.
func find(parts []Part, name string) (p Part, table *Table, place int) {
	for _, p := range parts {
		for _, t := range p.Tables {
			if t.Name == name {
				return p, &t, place
			}
			place++
		}
	}
	return Part{}, nil, place
}

// ErrRows is the error for rows that are not those of a backup.
var ErrRows = hutch.Errorf(hutch.Invalid, "the rows of a table cannot be those of a backup: one is larger than %d MiB, or ends the table", mostRow>>20)

// RowCounter counts the rows that are written to it, one row per line, and refuses rows that are too large.
type RowCounter struct {
	Rows, Bytes int64
	line        int64 // bytes of the present line so far
	start       []byte
}

// Write implements io.Writer.
func (c *RowCounter) Write(text []byte) (int, error) {
	n := len(text)
	c.Bytes += int64(n)
	for len(text) > 0 {
		end := bytes.IndexByte(text, '\n')
		part := text
		if end >= 0 {
			part = text[:end]
		}
		if need := 3 - len(c.start); need > 0 {
			c.start = append(c.start, part[:min(need, len(part))]...)
		}
		if c.line += int64(len(part)); c.line > mostRow {
			return 0, ErrRows
		}
		if end < 0 {
			break
		}
		if string(bytes.TrimSuffix(c.start, []byte("\r"))) == `\.` { // the database would read it as the end
			return 0, ErrRows
		}
		c.Rows++
		c.line, c.start, text = 0, c.start[:0], text[end+1:]
	}
	return n, nil
}

// Restore fills an empty database from a backup, in one transaction.
type Restore struct {
	*connection
	tx pgx.Tx
	// Done reports that an earlier restore of the same backup has filled the database, and that no server has used the
	// database since.
	Done bool

	content Content
}

// BeginRestore begins to restore the backup with the given id into the database of the options. It refuses a database
// that is not empty.
func BeginRestore(ctx context.Context, opt Options, id string, more ...Part) (*Restore, error) {
	c, err := connect(ctx, opt, more)
	if err != nil {
		return nil, err
	}
	r := &Restore{connection: c}
	if err := r.begin(ctx, id); err != nil {
		return nil, errors.Join(fmt.Errorf("restore the database: %w", r.explained(err)), r.Close())
	}
	return r, nil
}

func (r *Restore) begin(ctx context.Context, id string) (err error) {
	if r.tx, err = r.conn.Begin(ctx); err != nil {
		return err
	}
	var mine, used, there, restored bool
	// A starting server waits for this lock.
	if err := r.tx.QueryRow(ctx, `select pg_try_advisory_xact_lock(hashtextextended('hutch migration', 0))`).Scan(&mine); err != nil {
		return err
	}
	err = r.tx.QueryRow(ctx, `select exists (select from pg_locks where locktype = 'advisory' and pid <> pg_backend_pid()
		and database = (select oid from pg_database where datname = current_database()))`).Scan(&used)
	if err != nil {
		return err
	}
	if !mine || used {
		return hutch.Errorf(hutch.Conflict, "a server uses the database %s, or another backup is being restored to it: end all servers of this database, and try again", r.where)
	}
	var names []string
	for _, p := range r.parts[1:] {
		for _, t := range p.Tables {
			names = append(names, t.Name)
		}
	}
	err = r.tx.QueryRow(ctx, `select exists (select from pg_class c join pg_namespace n on n.oid = c.relnamespace where n.nspname = 'hutch' or c.relname = any ($1) and n.nspname !~ '^pg_'),
		to_regclass('hutch.restored') is not null`, names).Scan(&there, &restored)
	if err != nil {
		return err
	}
	if restored {
		var of string
		if err := r.tx.QueryRow(ctx, `select backup from hutch.restored`).Scan(&of); err != nil && !errors.Is(err, pgx.ErrNoRows) {
			return err
		}
		if of == id {
			r.Done = true
			return nil
		}
	}
	if there {
		return hutch.Errorf(hutch.Conflict, "the database %s is not empty, it has the state of a server: a backup is restored only to an empty one, so create one, such as CREATE DATABASE hutch_again OWNER %s, and give that with --store", r.where, r.config.User)
	}
	if _, err := r.tx.Exec(ctx, `create schema if not exists hutch`); err != nil {
		return err
	}
	_, err = r.tx.Exec(ctx, `create table hutch.restored (backup text not null)`)
	if err == nil {
		_, err = r.tx.Exec(ctx, `insert into hutch.restored values ($1)`, id)
	}
	return err
}

// Prepare creates the tables for a content. The content is from the backup, so it is not trusted.
func (r *Restore) Prepare(ctx context.Context, c Content) error {
	if err := checkContent(c, r.parts[1:]...); err != nil {
		return err
	}
	r.content = c
	err := r.inSchema(ctx, ownSchema, func() error {
		if _, err := r.tx.Exec(ctx, `create table migrations (number int primary key, needs int not null, at timestamptz not null default now())`); err != nil {
			return err
		}
		return r.migrate(ctx, 0, c.Format)
	})
	for _, p := range r.parts[1:] {
		if err == nil && slices.ContainsFunc(c.Tables, func(t TableContent) bool { return t.Name == p.Tables[0].Name }) {
			err = r.inSchema(ctx, p.Schema, func() error { return p.Create(ctx, r.tx) })
		}
	}
	return r.explained(err)
}

// checkContent refuses a content with tables or columns that this version does not have.
func checkContent(c Content, more ...Part) error {
	newer := hutch.Errorf(hutch.Unsupported, "the database in the backup was written by a newer hutch (format %d, this one knows %d): restore it with that version or a newer one", c.Format, len(migrations))
	if c.Format > len(migrations) {
		return newer
	}
	damaged := hutch.Errorf(hutch.Invalid, "the backup is damaged: it does not say what its database has, so nothing of it was restored; use another copy of it")
	parts := append([]Part{{Schema: ownSchema, Tables: ownTables}}, more...)
	last := -1
	own := 0
	for _, t := range c.Tables {
		_, known, at := find(parts, t.Name)
		if known == nil {
			return newer
		}
		if at <= last || len(t.Columns) == 0 {
			return damaged
		}
		if last = at; at < len(ownTables) {
			own++
		}
		seen := map[string]bool{}
		for _, name := range t.Columns {
			if !slices.Contains(known.Columns, name) {
				return newer
			}
			if seen[name] {
				return damaged
			}
			seen[name] = true
		}
	}
	if c.Format < 1 || own != len(ownTables) || c.Version < 0 || c.Version > math.MaxInt64/2 {
		return damaged
	}
	return nil
}

// inSchema calls do while names without a schema refer to the given schema.
func (r *Restore) inSchema(ctx context.Context, schema string, do func() error) error {
	if _, err := r.tx.Exec(ctx, `set local search_path = `+pgx.Identifier{schema}.Sanitize()); err != nil {
		return err
	}
	if err := do(); err != nil {
		return err
	}
	_, err := r.tx.Exec(ctx, `set local search_path to default`)
	return err
}

// migrate brings the tables from one format to another.
func (r *Restore) migrate(ctx context.Context, from, to int) error {
	return migrateTables(from, to, func(statement string, args ...any) error {
		_, err := r.tx.Exec(ctx, statement, args...)
		return err
	})
}

// Table fills one table of the content with rows, and returns the number of its rows.
func (r *Restore) Table(ctx context.Context, name string, rows io.Reader) (int64, error) {
	i := slices.IndexFunc(r.content.Tables, func(t TableContent) bool { return t.Name == name })
	p, known, _ := find(r.parts, name)
	if i < 0 || known == nil {
		return 0, hutch.Errorf(hutch.Invalid, "the backup has rows of a table that it does not name")
	}
	var columns []string // with the names as this program writes them
	for _, want := range r.content.Tables[i].Columns {
		columns = append(columns, known.Columns[slices.Index(known.Columns, want)])
	}
	tag, err := r.conn.PgConn().CopyFrom(ctx, rows, "copy "+p.sqlName(known.Name)+" ("+columnList(columns)+") from stdin")
	if err != nil {
		return 0, fmt.Errorf("restore the table %s: %w", known.Name, r.explained(err))
	}
	return tag.RowsAffected(), nil
}

// Complete changes the restored tables to the form of this version, removes data that was valid only for the servers of
// the backup, and checks that the tables can be decrypted with the key.
func (r *Restore) Complete(ctx context.Context) error {
	err := r.complete(ctx)
	if err != nil {
		return fmt.Errorf("restore the database: %w", r.explained(err))
	}
	return nil
}

func (r *Restore) complete(ctx context.Context) error {
	if err := r.inSchema(ctx, ownSchema, func() error { return r.migrate(ctx, r.content.Format, len(migrations)) }); err != nil {
		return err
	}
	if _, err := r.tx.Exec(ctx, `select setval('hutch.versions', greatest($1::bigint, 1, (select max(version) from hutch.shelves)))`, r.content.Version); err != nil {
		return err
	}
	id, err := r.checkInstallation(ctx, r.tx)
	if err != nil {
		return err
	}
	if id != r.content.Installation {
		return hutch.Errorf(hutch.Invalid, "the backup is damaged: its database is of another installation, so nothing of it was restored; use another copy of it")
	}
	for _, p := range r.parts[1:] {
		if p.Restored == nil || !slices.ContainsFunc(r.content.Tables, func(t TableContent) bool { return t.Name == p.Tables[0].Name }) {
			continue
		}
		if err := r.inSchema(ctx, p.Schema, func() error { return p.Restored(ctx, r.tx) }); err != nil {
			return err
		}
	}
	return nil
}

// Commit makes everything visible at once. If Done is true, it has nothing to commit.
func (r *Restore) Commit(ctx context.Context) error {
	if r.Done {
		return r.tx.Rollback(ctx)
	}
	if err := r.tx.Commit(ctx); err != nil {
		return fmt.Errorf("restore the database: %w", r.explained(err))
	}
	return nil
}
