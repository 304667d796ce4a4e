package store

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"

	"hutch"
	"hutch/internal/delay"
	"hutch/internal/durable"
)

// Options are the address of a store in PostgreSQL, and the node that opens it.
type Options struct {
	URL  string // in the form postgres://USER:PASSWORD@HOST:PORT/DATABASE
	Node string // the name of this node, which has its own records of sandboxes; no two servers can have it at once
	Key  []byte // encrypts the documents; KeySize bytes
	// Installation is the id that the database must have; "" accepts any installation with this key, or begins one.
	Installation     string
	Wait             time.Duration // how long Connect waits for the database; default a minute
	OperationTimeout time.Duration // the time limit of one operation; default 15 s
	Log              *slog.Logger
}

const (
	// connectTime bounds one attempt to connect.
	connectTime = 5 * time.Second
	// connections limits the connections to the database, without the connection that listens.
	connections = 16
)

// postgres is a database that nodes share.
type postgres struct {
	seal
	db     *sql.DB
	config *pgx.ConnConfig
	opt    Options
	where  string // for people, without the password
	id     string // id of the installation

	life context.Context // done when the store closes
	end  context.CancelFunc
	done sync.WaitGroup

	begun atomic.Bool // Connect has returned the store

	mu          sync.Mutex
	mirrors     map[string][]*Mirror // by collection
	listenErr   error                // the error that keeps changes of other nodes from arriving; nil if they arrive
	unconfirmed []attempt
}

// attempt is a record that was perhaps written although the caller got an error.
type attempt struct {
	key    string
	sealed []byte
}

// isPostgres reports whether a store's name is a URL of PostgreSQL.
func isPostgres(name string) bool {
	return strings.HasPrefix(name, "postgres://") || strings.HasPrefix(name, "postgresql://")
}

// Connect opens a store in PostgreSQL, updates its tables, and takes the node's lock.
func Connect(ctx context.Context, opt Options) (*Store, error) {
	opt.Wait, opt.OperationTimeout, opt.Log = cmp.Or(opt.Wait, time.Minute), cmp.Or(opt.OperationTimeout, 15*time.Second), cmp.Or(opt.Log, slog.New(slog.DiscardHandler))
	config, where, err := parse(opt.URL)
	if err != nil {
		return nil, err
	}
	setTimeouts(config, opt.OperationTimeout)
	p := &postgres{config: config, opt: opt, where: where, mirrors: map[string][]*Mirror{}}
	if p.seal, err = newSeal(opt.Key); err != nil {
		return nil, err
	}
	p.life, p.end = context.WithCancel(context.Background())
	p.db = stdlib.OpenDB(*config)
	p.db.SetMaxOpenConns(connections)
	p.db.SetMaxIdleConns(connections / 2)
	p.db.SetConnMaxIdleTime(5 * time.Minute)
	s := &Store{p.db, p}
	if err := p.begin(ctx, s); err != nil {
		p.close()
		return nil, fmt.Errorf("open the store in %s: %w", where, err)
	}
	return s, nil
}

// parse reads the URL of a database. Its errors never contain the password.
func parse(name string) (*pgx.ConnConfig, string, error) {
	config, err := pgx.ParseConfig(name)
	// If the password were not before the host, or contained an @, it could not be found and hidden in messages.
	if u, wrong := url.Parse(name); err != nil || wrong != nil || !isPostgres(name) || strings.Trim(u.Path, "/") == "" || u.Query().Has("password") || strings.Count(name, "@") > 1 {
		return nil, "", hutch.Errorf(hutch.Invalid, "that is not the URL of a PostgreSQL database: give one such as postgres://USER@HOST:5432/DATABASE, with the password in it, in $PGPASSWORD or in the file of $PGPASSFILE; special characters in it are written as %%40 for @ and %%2F for /").Naming(hutch.AboutField, "store")
	}
	config.ConnectTimeout = cmp.Or(config.ConnectTimeout, connectTime)
	config.RuntimeParams["application_name"] = cmp.Or(config.RuntimeParams["application_name"], "hutch")
	config.OnNotice = func(*pgconn.PgConn, *pgconn.Notice) {}
	where := config.Host + ":" + strconv.Itoa(int(config.Port)) + "/" + config.Database
	if strings.HasPrefix(config.Host, "/") {
		where = config.Host + "/" + config.Database
	}
	return config, where, nil
}

// setTimeouts sets the timeouts of each connection, unless the URL sets them. With these timeouts, the database ends
// the connections and locks of a node that was cut off or lost its power; by default it waits for two hours. They are
// set by statements, because a pooler refuses parameters that it does not know.
func setTimeouts(config *pgx.ConnConfig, timeout time.Duration) {
	statements := "set search_path = hutch"
	for name, value := range map[string]int64{
		"idle_in_transaction_session_timeout": timeout.Milliseconds(),
		"tcp_keepalives_idle":                 10,
		"tcp_keepalives_interval":             5,
		"tcp_keepalives_count":                3,
		"tcp_user_timeout":                    30_000,
	} {
		if _, given := config.RuntimeParams[name]; !given {
			statements += fmt.Sprintf("; set %s = %d", name, value)
		}
	}
	config.AfterConnect = func(ctx context.Context, c *pgconn.PgConn) error {
		return c.Exec(ctx, statements).Close()
	}
}

// Check refuses a text that is not the URL of a PostgreSQL database.
func Check(name string) error {
	_, _, err := parse(name)
	return err
}

// Where returns a readable name of the database in a URL, without user and password.
func Where(name string) string {
	_, where, err := parse(name)
	if err != nil {
		return "a PostgreSQL database"
	}
	return where
}

// begin waits for the database, brings the tables up to date and begins to listen.
func (p *postgres) begin(ctx context.Context, s *Store) error {
	end := time.Now().Add(p.opt.Wait)
	for said := false; ; {
		try, cancel := context.WithTimeout(ctx, 2*p.opt.OperationTimeout)
		err := p.migrate(try)
		cancel()
		if err == nil {
			break
		}
		err = p.explained(err)
		if ctx.Err() != nil || hutch.KindOf(err) != hutch.Unavailable || time.Now().After(end) {
			return err
		}
		if !said {
			p.opt.Log.Warn("waiting for the database", "database", p.where, "err", err)
			said = true
		}
		delay.Wait(ctx, 500*time.Millisecond)
	}
	listening := make(chan error, 1)
	p.done.Go(func() { p.listen(listening) })
	select {
	case err := <-listening:
		p.begun.Store(err == nil)
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (p *postgres) close() error {
	p.end()
	p.done.Wait()
	return p.db.Close()
}

func (p *postgres) query(statement string) string {
	var b strings.Builder
	n := 0
	for _, c := range statement {
		if c != '?' {
			b.WriteRune(c)
			continue
		}
		n++
		b.WriteString("$" + strconv.Itoa(n))
	}
	return b.String()
}

func (p *postgres) limited(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, p.opt.OperationTimeout, errSlow)
}

var errSlow = errors.New("it took too long")

// explained turns an error of the database into a message for a person. Errors of the callers' own functions are
// returned unchanged.
func (p *postgres) explained(err error) error {
	if err == nil || errors.Is(err, context.Canceled) {
		return err
	}
	if _, ours := errors.AsType[*hutch.Error](err); ours {
		return err
	}
	pg, said := errors.AsType[*pgconn.PgError](err)
	unavailable := func(why string) error {
		return hutch.Errorf(hutch.Unavailable, "the server's database, %s, %s, so this may not have been done: try again in a moment; if it continues, see whether the database runs and can be reached from the server", p.where, why).Because(err)
	}
	// An error that keeps a server from starting is not for the clients of a running server.
	now := func(kind hutch.Kind) hutch.Kind {
		if p.begun.Load() {
			return hutch.Unavailable
		}
		return kind
	}
	switch {
	case !said && isOutage(err):
		return unavailable("does not answer")
	case !said:
		return err
	case pg.Code == "53100":
		return durable.Full.Because(err)
	case strings.HasPrefix(pg.Code, "53"), strings.HasPrefix(pg.Code, "57P"), strings.HasPrefix(pg.Code, "08"), pg.Code == "57014", pg.Code == "40001", pg.Code == "40P01", pg.Code == "25006", pg.Code == "25P03":
		return unavailable("says: " + pg.Message)
	case strings.HasPrefix(pg.Code, "28"), pg.Code == "42501":
		return hutch.Errorf(now(hutch.Denied), "the database %s refuses this server (%s): check the user and the password of --store, and that the user owns the database", p.where, pg.Message).Because(err)
	case pg.Code == "3D000":
		return hutch.Errorf(now(hutch.NotFound), "there is no database %s: create it, with the user of --store as its owner: CREATE DATABASE %s OWNER %s", p.where, p.config.Database, p.config.User).Because(err)
	}
	return fmt.Errorf("the database %s says: %s (%s)", p.where, pg.Message, pg.Code)
}

// isOutage reports whether an error means that the database did not answer.
func isOutage(err error) bool {
	if _, ok := errors.AsType[*pgconn.ConnectError](err); ok || pgconn.Timeout(err) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, errSlow) {
		return true
	}
	if _, ok := errors.AsType[interface {
		error
		Timeout() bool
		Temporary() bool
	}](err); ok { // an error of package net
		return true
	}
	text := err.Error()
	for _, s := range []string{"EOF", "conn closed", "closed the connection", "connection reset", "broken pipe", "bad connection", "failed to deallocate", "conn busy"} {
		if strings.Contains(text, s) {
			return true
		}
	}
	return false
}

func (p *postgres) lock(ctx context.Context, tx *sql.Tx, name string) error {
	_, err := tx.ExecContext(ctx, `select pg_advisory_xact_lock(hashtextextended($1, 0))`, "hutch "+name)
	return err
}

func (p *postgres) now(ctx context.Context, tx *sql.Tx) (at time.Time, err error) {
	err = tx.QueryRowContext(ctx, `select clock_timestamp()`).Scan(&at)
	return at, err
}

func (p *postgres) ours() (condition, value string) { return "node = ?", p.opt.Node }
func (p *postgres) shared() bool                    { return true }

// put writes a record. It ignores keep: every record is on disk when the statement returns.
func (p *postgres) put(ctx context.Context, r Record, _ bool) error {
	doc, err := json.Marshal(r)
	if err != nil {
		return err
	}
	sealed := p.sealed("sandbox "+r.Key, doc)
	done, err := p.db.ExecContext(ctx, `update sandboxes set status = $3, runtime = $4, record = $5 where id = $1 and node = $2`, r.Key, p.opt.Node, r.Sandbox.Status, r.Sandbox.Runtime, sealed)
	if err != nil {
		return err
	}
	if n, err := done.RowsAffected(); n > 0 || err != nil {
		return err
	}
	err = p.insert(ctx, r, sealed)
	if err != nil && hutch.KindOf(p.explained(err)) == hutch.Unavailable {
		p.mu.Lock()
		p.unconfirmed = append(p.unconfirmed, attempt{r.Key, sealed})
		p.mu.Unlock()
	}
	return err
}

// insert writes a new record. The id must be unique over all nodes, and the owner's limit is for all nodes together.
func (p *postgres) insert(ctx context.Context, r Record, sealed []byte) error {
	tx, err := p.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if r.Most > 0 {
		if err := p.lock(ctx, tx, "owner "+r.Sandbox.Owner); err != nil {
			return err
		}
		var n int
		if err := tx.QueryRowContext(ctx, `select count(*) from sandboxes where owner = $1`, r.Sandbox.Owner).Scan(&n); err != nil {
			return err
		}
		if n >= r.Most {
			return hutch.Errorf(hutch.Exhausted, "the limit of %d sandboxes at once of this token, awake or asleep, on all nodes together, is reached: destroy one", r.Most).With("limit", "sandboxes")
		}
	}
	_, err = tx.ExecContext(ctx, `insert into sandboxes (id, node, owner, sandbox, status, runtime, created, record) values ($1, $2, $3, $4, $5, $6, $7, $8)`,
		r.Key, p.opt.Node, r.Sandbox.Owner, r.Sandbox.ID, r.Sandbox.Status, r.Sandbox.Runtime, r.Sandbox.CreatedAt, sealed)
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok && pg.Code == "23505" {
		return hutch.Errorf(hutch.Conflict, "there is a sandbox %q already, on another node: choose another id", r.Sandbox.ID).Naming(hutch.AboutField, "id")
	}
	if err != nil {
		return err
	}
	return tx.Commit()
}

// decide removes records that the engine considers not written, because it got an error. Otherwise the engine would
// find, at its next start, sandboxes that it has given up.
func (p *postgres) decide(db *pgx.Conn) error {
	ctx, cancel := p.limited(p.life)
	defer cancel()
	p.mu.Lock()
	all := p.unconfirmed
	p.mu.Unlock()
	for _, a := range all {
		// A record that was written under this key since then has another text, because encryption never gives the same
		// text twice.
		if _, err := db.Exec(ctx, `delete from sandboxes where id = $1 and node = $2 and record = $3`, a.key, p.opt.Node, a.sealed); err != nil {
			return err
		}
	}
	p.mu.Lock()
	p.unconfirmed = p.unconfirmed[len(all):]
	p.mu.Unlock()
	return nil
}

func (p *postgres) putUsage(ctx context.Context, tx *sql.Tx, owner string, doc []byte) error {
	_, err := tx.ExecContext(ctx, `insert into usage (node, owner, doc) values ($1, $2, $3) on conflict (node, owner) do update set doc = excluded.doc`, p.opt.Node, owner, doc)
	return err
}

func (p *postgres) writeDocument(ctx context.Context, tx *sql.Tx, s *Collection, d Document, quiet bool) error {
	var sealed []byte
	if d.Doc != nil {
		sealed = p.sealed(s.label(d.Key), d.Doc)
	} else if quiet {
		_, err := tx.ExecContext(ctx, `delete from shelves where shelf = $1 and key = $2`, s.name, d.Key)
		return err
	}
	_, err := tx.ExecContext(ctx, `insert into shelves (shelf, key, doc, version, changed) values ($1, $2, $3, case when $4 then 0 else nextval('versions') end, now())
		on conflict (shelf, key) do update set doc = excluded.doc, version = excluded.version, changed = excluded.changed`, s.name, d.Key, sealed, quiet)
	if err == nil && !quiet {
		_, err = tx.ExecContext(ctx, `select pg_notify($1, $2)`, channel, s.name)
	}
	return err
}

// ready returns an error if /ready must report one. A store that misses the changes of other nodes is not ready,
// because it could accept a token that another node has revoked.
func (p *postgres) ready(ctx context.Context) error {
	p.mu.Lock()
	listenErr := p.listenErr
	p.mu.Unlock()
	if listenErr != nil {
		return listenErr
	}
	_, err := p.db.ExecContext(ctx, `select 1`)
	return err
}
