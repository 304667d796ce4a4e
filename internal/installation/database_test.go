package installation

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"hutch"
	"hutch/internal/datadir"
	"hutch/internal/fleet"
	"hutch/internal/hutchtest/pgtest"
	"hutch/internal/secret"
	"hutch/internal/store"
)

// storeKey returns the key of the store, as the daemon derives it.
func storeKey(key *secret.Key) []byte { return key.Derive("store") }

// shared is the data folder of a node whose state is in a database, with a sandbox that sleeps.
type shared struct {
	url  string
	key  *secret.Key
	data datadir.Folder
	node *store.Store
}

func connectNode(t *testing.T, url, node string, key *secret.Key) *store.Store {
	t.Helper()
	s, err := store.Connect(t.Context(), store.Options{URL: url, Node: node, Key: storeKey(key)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func newShared(t *testing.T) shared {
	t.Helper()
	s := shared{url: pgtest.New(t), key: newKey(t), data: folder(t)}
	s.node = connectNode(t, s.url, "node-a", s.key)
	write(t, s.data, "server/volumes/o/data/volume.json", `{"format":1}`)
	if err := datadir.WriteMembership(s.data.Path("server"), datadir.Membership{Installation: s.node.Installation(), Node: "node-a"}); err != nil {
		t.Fatal(err)
	}
	write(t, s.data, "server/memory/box/pages", "its memory")
	write(t, s.data, "server/memory/gone/pages", "of no sandbox")
	if err := s.node.Put(t.Context(), sleeping("box", 1)); err != nil {
		t.Fatal(err)
	}
	return s
}

func (s shared) write(t *testing.T) (path string, m Manifest) {
	t.Helper()
	from, err := store.OpenBackup(t.Context(), store.Options{URL: s.url, Key: storeKey(s.key), Installation: s.node.Installation()}, fleet.BackupPart())
	if err != nil {
		t.Fatal(err)
	}
	defer from.Close()
	path = filepath.Join(t.TempDir(), "backup")
	m, err = Write(t.Context(), s.data, Options{To: path, Key: s.key, Version: "test", Database: from})
	if err != nil {
		t.Fatal(err)
	}
	return path, m
}

// into returns the options of a restore into a database.
func into(url string) RestoreOptions {
	return RestoreOptions{Database: func(ctx context.Context, key *secret.Key, id string) (*store.Restore, error) {
		return store.BeginRestore(ctx, store.Options{URL: url, Key: storeKey(key)}, id, fleet.BackupPart())
	}}
}

// rows returns all rows of all tables of a database, as text.
func rows(t *testing.T, url string) map[string][]string {
	t.Helper()
	c := pgtest.Connect(t, url)
	list, err := c.Query(t.Context(), `select n.nspname || '.' || c.relname from pg_class c join pg_namespace n on n.oid = c.relnamespace
		where c.relkind = 'r' and n.nspname !~ '^pg_' and n.nspname <> 'information_schema'`)
	if err != nil {
		t.Fatal(err)
	}
	names, err := pgx.CollectRows(list, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	all := map[string][]string{}
	for _, name := range names {
		list, err := c.Query(t.Context(), "select t::text from "+name+" t order by 1")
		if err != nil {
			t.Fatal(err)
		}
		if all[name], err = pgx.CollectRows(list, pgx.RowTo[string]); err != nil {
			t.Fatal(err)
		}
	}
	return all
}

// isEmpty fails the test if a database or a data folder has anything of a restore.
func isEmpty(t *testing.T, url string, to datadir.Folder) {
	t.Helper()
	if got := rows(t, url); len(got) > 0 {
		t.Errorf("the database has %v", got)
	}
	if list, err := os.ReadDir(string(to)); err == nil && len(list) > 0 {
		t.Errorf("the data folder has %v", list)
	} else if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
}

// fill fills a database with values that are hard to write as text, in the tables of the store and of a fleet.
func fill(t *testing.T, s shared) {
	t.Helper()
	ctx := t.Context()
	b := connectNode(t, s.url, "node-b", s.key)
	directory, err := fleet.OpenDirectory(ctx, s.url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(directory.Close)
	odd := "a\tb\nc\\.\r\n\\.\n'\"ü\x01"
	other := sleeping("other", 1)
	other.Env = map[string]string{"ODD": odd, "LONG": strings.Repeat("x", 3<<20)}
	err = errors.Join(b.Put(ctx, other), s.node.Collection("odd").Put(ctx, odd, []byte(odd)), s.node.Collection("odd").Put(ctx, `\.`, []byte{}),
		s.node.Collection("odd").Put(ctx, "deleted", []byte("x")), s.node.Collection("odd").Delete(ctx, "deleted"),
		b.Put(ctx, sleeping("retired", 1)), b.Retire(ctx, "retired", odd, hutch.Usage{Executions: 3, CPUSeconds: 1.0 / 3}))
	if err != nil {
		t.Fatal(err)
	}
	pgtest.Exec(t, s.url, `insert into fleet_authority (certificate, sealed_key) values ('pem', '\x00ff5c2e0a')`)
	pgtest.Exec(t, s.url, `insert into fleet_nodes (id, address, epoch, lease_until, cpu, promised_cpu) values ('node-a', '10.0.0.5:7701', 7, now() + interval '1 hour', 0.1, 1e-300), ('node-b', '10.0.0.6:7701', 3, now(), 2, 0), ('new', '', 0, '-infinity', 0, 0)`)
	pgtest.Exec(t, s.url, `insert into fleet_holders (owner, id, node, memory, cpu, about, image) values ($1, 'box', 'node-a', 1, 0.3, jsonb_build_object('image', $1::text), '{"key":"k"}'), ('', 'other', 'node-b', 1, 1, '{}', null)`, strings.ReplaceAll(odd, "\x00", ""))
	pgtest.Exec(t, s.url, `insert into fleet_renewals values ('node-a', 9007199254740993)`)
	pgtest.Exec(t, s.url, `insert into fleet_starts values ('node-a', 7, '2026-01-02 03:04:05.678901+07')`)
	pgtest.Exec(t, s.url, `insert into fleet_tokens values ('\x5c2e', 'infinity')`)
	pgtest.Exec(t, s.url, `insert into fleet_restores values (1, 'first')`)
	pgtest.Exec(t, s.url, `insert into fleet_snapshots values ('snap-a', $1, 'node-b', '{"snapshotId":"snap-a"}', '{"key":"k"}', $1), ('snap-b', '', '', '{}', null, '')`, odd)
	pgtest.Exec(t, s.url, `insert into fleet_snapshot_copies values ('node-a', 'snap-a')`)
}

// A restored database has every row of the original, and belongs to no running server.
func TestDatabaseRoundTrip(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s := newShared(t)
	fill(t, s)
	path, m := s.write(t)
	if m.Node != "node-a" || m.Asleep != 1 || m.Database == nil || m.Database.Sandboxes["node-b"] != 1 || m.Database.Rows() < 10 {
		t.Errorf("%+v", m)
	}
	verified, err := Verify(ctx, path, s.key, nil)
	if err != nil || fmt.Sprint(verified.Database) != fmt.Sprint(m.Database) {
		t.Errorf("verified: %+v, %v; not %+v", verified.Database, err, m.Database)
	}
	sealed, err := os.ReadFile(path)
	if err != nil || bytes.Contains(sealed, []byte("10.0.0.5")) || bytes.Contains(sealed, []byte("sandboxes")) {
		t.Errorf("the backup can be read without its key: %v", err)
	}
	want := rows(t, s.url)
	url, to := pgtest.New(t), folder(t)
	if _, err := Restore(ctx, path, s.key, to, RestoreOptions{}); hutch.KindOf(err) != hutch.Invalid || !strings.Contains(err.Error(), "--store") {
		t.Errorf("a restore without a database: %v", err)
	}
	isEmpty(t, url, to)
	got, err := Restore(ctx, path, s.key, to, into(url))
	if err != nil || fmt.Sprint(got.Database) != fmt.Sprint(m.Database) {
		t.Fatalf("%+v, %v", got.Database, err)
	}
	there := rows(t, url)
	if len(there["hutch.restored"]) != 1 {
		t.Errorf("%v", there["hutch.restored"])
	}
	delete(there, "hutch.restored")
	for name := range there {
		if strings.HasSuffix(name, ".migrations") { // they have the time of the restore
			delete(there, name)
			delete(want, name)
		}
		if strings.HasSuffix(name, "fleet_nodes") {
			delete(there, name)
			delete(want, name)
		}
		if strings.HasSuffix(name, "fleet_restores") { // it has this restore too
			if len(there[name]) != 2 || there[name][0] != want[name][0] {
				t.Errorf("%s has %q, not %q and another one", name, there[name], want[name])
			}
			delete(there, name)
			delete(want, name)
		}
	}
	if len(there) != 11 || len(there) != len(want) {
		t.Errorf("%d tables, not %d", len(there), len(want))
	}
	for name := range want {
		if !slices.Equal(there[name], want[name]) || len(want[name]) == 0 {
			t.Errorf("%s has\n%.2000q\nnot\n%.2000q", name, there[name], want[name])
		}
	}
	var alive, later int
	if err := pgtest.Connect(t, url).QueryRow(ctx, `select count(*) filter (where lease_until > clock_timestamp()), count(*) filter (where epoch in (8, 4) and lease_until > now() - interval '1 hour' or epoch = 0 and lease_until = '-infinity') from fleet_nodes`).Scan(&alive, &later); err != nil || alive != 0 || later != 3 {
		t.Errorf("%d nodes have a lease, %d of 3 have the next epoch: %v", alive, later, err)
	}
	// A server works with the restored database, and its changes come after the restored ones.
	a := connectNode(t, url, "node-a", s.key)
	all, err := a.All(ctx)
	if err != nil || len(all) != 1 || all[0].Key != "box" || a.Installation() != s.node.Installation() {
		t.Errorf("%v, %v", all, err)
	}
	if err := a.Collection("odd").Put(ctx, "new", []byte("new")); err != nil {
		t.Fatal(err)
	}
	var newest string
	if err := pgtest.Connect(t, url).QueryRow(ctx, `select key from hutch.shelves order by version desc limit 1`).Scan(&newest); err != nil || newest != "new" {
		t.Errorf("the newest document is %q, %v", newest, err)
	}
	for name, there := range map[string]bool{"memory/box/pages": true, "memory/gone": false, "store.json": true, "restored": true} {
		if _, err := os.Lstat(to.Path("server/" + name)); (err == nil) != there {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A backup is restored only to an empty database, and with its key; a database of another installation is not backed up.
func TestDatabaseRefused(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s := newShared(t)
	path, _ := s.write(t)
	for what, other := range map[string]store.Options{
		"another key":          {URL: s.url, Key: storeKey(newKey(t))},
		"another installation": {URL: s.url, Key: storeKey(s.key), Installation: "in-other"},
		"no installation":      {URL: pgtest.New(t), Key: storeKey(s.key)},
	} {
		if b, err := store.OpenBackup(ctx, other); err == nil {
			b.Close()
			t.Errorf("%s: no error", what)
		}
	}
	to := folder(t)
	used, err := Restore(ctx, path, s.key, to, into(s.url))
	if hutch.KindOf(err) != hutch.Conflict || !strings.Contains(err.Error(), "end all servers") {
		t.Errorf("a database that a server uses: %+v, %v", used, err)
	}
	s.node.Close()
	before := rows(t, s.url)
	if _, err := Restore(ctx, path, s.key, to, into(s.url)); hutch.KindOf(err) != hutch.Conflict || !strings.Contains(err.Error(), "CREATE DATABASE") {
		t.Errorf("a database that is not empty: %v", err)
	}
	if after := rows(t, s.url); fmt.Sprint(after) != fmt.Sprint(before) {
		t.Error("the refused restore changed the database")
	}
	pgtest.Exec(t, s.url, `insert into hutch.migrations (number, needs) values (1000, 1)`)
	if b, err := store.OpenBackup(ctx, store.Options{URL: s.url, Key: storeKey(s.key)}); hutch.KindOf(err) != hutch.Unsupported {
		t.Errorf("a backup of a newer database: %v, %v", b, err)
	}
	pgtest.Exec(t, s.url, `delete from hutch.migrations where number = 1000; alter table hutch.usage add column more text`)
	if b, err := store.OpenBackup(ctx, store.Options{URL: s.url, Key: storeKey(s.key)}); hutch.KindOf(err) != hutch.Unsupported || !strings.Contains(err.Error(), "more") {
		t.Errorf("a backup of a table with an unknown column: %v, %v", b, err)
	}
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	newer := filepath.Join(t.TempDir(), "newer")
	if err := os.WriteFile(newer, bytes.Replace(whole, []byte("backup 2\n"), []byte("backup 3\n"), 1), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Restore(ctx, newer, s.key, to, into(pgtest.New(t))); hutch.KindOf(err) != hutch.Unsupported {
		t.Errorf("a backup of a newer version: %v", err)
	}
	if _, err := Restore(ctx, path, s.key, to, RestoreOptions{WithoutDatabase: true}); err != nil {
		t.Errorf("only the data folder: %v", err)
	}
}

// A restore that ends early leaves the database and the data folder empty, whether the file is cut off, the caller gives up or the network
// is cut.
func TestDatabaseInterrupted(t *testing.T) {
	t.Parallel()
	s := newShared(t)
	fill(t, s)
	path, _ := s.write(t)
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	url := pgtest.New(t)
	for _, n := range []int{500, len(whole) / 3, len(whole) / 2, len(whole) - 1} {
		cut, to := filepath.Join(t.TempDir(), "cut"), folder(t)
		if err := os.WriteFile(cut, whole[:n], 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Restore(t.Context(), cut, s.key, to, into(url)); !errors.Is(err, ErrDamaged) {
			t.Errorf("%d of %d bytes: %v", n, len(whole), err)
		}
		isEmpty(t, url, to)
	}
	// The database has all its rows, but is not committed, when the folder is adapted.
	for what, stop := range map[string]func(cancel context.CancelFunc, link *pgtest.Link) error{
		"the caller gives up": func(cancel context.CancelFunc, _ *pgtest.Link) error { cancel(); return nil },
		"the network is cut":  func(_ context.CancelFunc, link *pgtest.Link) error { link.Cut(); return nil },
		"an error":            func(context.CancelFunc, *pgtest.Link) error { return errors.New("no") },
	} {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		link, to := pgtest.NewLink(t, url), folder(t)
		opt := into(link.URL)
		opt.Adapt = func(string) error { return stop(cancel, link) }
		if _, err := Restore(ctx, path, s.key, to, opt); err == nil {
			t.Errorf("%s: no error", what)
		}
		eventuallyFree(t, url)
		isEmpty(t, url, to)
	}
	if _, err := Restore(t.Context(), path, s.key, folder(t), into(url)); err != nil {
		t.Errorf("repeated: %v", err)
	}
}

// eventuallyFree waits until the database has noticed that the connections of others have ended.
func eventuallyFree(t *testing.T, url string) {
	t.Helper()
	c := pgtest.Connect(t, url)
	for limit := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		var n int
		if err := c.QueryRow(t.Context(), `select count(*) from pg_stat_activity where datname = current_database() and application_name = 'hutch'`).Scan(&n); err != nil {
			t.Fatal(err)
		}
		if n == 0 {
			return
		}
		if time.Now().After(limit) {
			t.Fatalf("%d connections are open", n)
		}
	}
}

// If the database is restored and the data folder is not, the same restore can be repeated, until a server uses the database.
func TestDatabaseRestoreRepeated(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s := newShared(t)
	path, _ := s.write(t)
	second, _ := s.write(t)
	url, to := pgtest.New(t), folder(t)
	opt := into(url)
	opt.Adapt = func(string) error { return os.MkdirAll(to.Path(restored+"/in the way"), 0o700) }
	if _, err := Restore(ctx, path, s.key, to, opt); err == nil {
		t.Fatal("the folder could not be renamed, and there is no error")
	}
	if err := os.RemoveAll(to.Path(restored)); err != nil {
		t.Fatal(err)
	}
	want := rows(t, url)
	if len(want) == 0 {
		t.Fatal("the database is empty")
	}
	if _, err := Restore(ctx, second, s.key, to, into(url)); hutch.KindOf(err) != hutch.Conflict {
		t.Errorf("another backup: %v", err)
	}
	if m, err := Restore(ctx, path, s.key, to, into(url)); err != nil || m.Database.Rows() == 0 {
		t.Errorf("%+v, %v", m, err)
	}
	if got := rows(t, url); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%v\nnot\n%v", got, want)
	}
	connectNode(t, url, "node-a", s.key).Close()
	if _, err := Restore(ctx, path, s.key, folder(t), into(url)); hutch.KindOf(err) != hutch.Conflict {
		t.Errorf("after a server has used the database: %v", err)
	}
}

// A backup has the database as it was at one moment: rows that are written together are in it together, and each sandbox has the files of
// its record.
func TestDatabaseWhileWritten(t *testing.T) {
	t.Parallel()
	s := newShared(t)
	other := connectNode(t, s.url, "node-b", s.key)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var writers sync.WaitGroup
	for i, node := range []*store.Store{s.node, other} {
		writers.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				value := fmt.Appendf(nil, "%d of %d %s", n, i, strings.Repeat("x", 10_000))
				node.Collection("pair").Change(ctx, func(d *store.Draft) error { d.Put("a", value); d.Put("z", value); return nil })
				r := sleeping(fmt.Sprintf("new-%d-%d", i, n), 1)
				node.Put(ctx, r)
				node.Retire(ctx, r.Key, "o", hutch.Usage{Executions: 1})
			}
		})
	}
	writers.Go(func() { // it sleeps and wakes: its files are there exactly while its record says that it sleeps
		for n := 0; ctx.Err() == nil; n++ {
			r := sleeping("box", 1)
			r.Sandbox.Status = hutch.Running
			s.node.Put(ctx, r)
			os.RemoveAll(s.data.Path("server/memory/box"))
			if ctx.Err() != nil {
				return
			}
			os.MkdirAll(s.data.Path("server/memory/box.new"), 0o700)
			os.WriteFile(s.data.Path("server/memory/box.new/pages"), fmt.Appendf(nil, "%d", n), 0o600)
			os.Rename(s.data.Path("server/memory/box.new"), s.data.Path("server/memory/box"))
			r.Sandbox.Status = hutch.Hibernated
			r.Sandbox.Reason = fmt.Sprint(n)
			s.node.Put(ctx, r)
			time.Sleep(20 * time.Millisecond)
		}
	})
	for range 5 {
		path, m := s.write(t)
		url, to := pgtest.New(t), folder(t)
		if _, err := Restore(t.Context(), path, s.key, to, into(url)); err != nil {
			t.Fatal(err)
		}
		a := connectNode(t, url, "node-a", s.key)
		pair, err := a.Collection("pair").All(t.Context())
		if err != nil || !bytes.Equal(pair["a"], pair["z"]) {
			t.Errorf("a is %.20s and z is %.20s, %v", pair["a"], pair["z"], err)
		}
		all, err := a.All(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range all {
			if r.Key != "box" {
				continue
			}
			files, err := os.ReadFile(to.Path("server/memory/box/pages"))
			asleep := r.Sandbox.Status == hutch.Hibernated
			if asleep && len(m.Changing) == 0 && string(files) != r.Sandbox.Reason || !asleep && err == nil {
				t.Errorf("it is %s with the files %q of %s: %v, %+v", r.Sandbox.Status, files, r.Sandbox.Reason, err, m)
			}
		}
	}
	cancel()
	writers.Wait()
}

// hostile is the content and the pieces of a backup that an attacker with the key has made.
type hostile struct {
	content map[string]any
	entries []entry
	end     map[string]any // nil for the content with the numbers of rows
}

type entry struct {
	name string
	text string
	kind byte
}

func (h hostile) file(t *testing.T, key *secret.Key) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "hostile")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	manifest, err := json.Marshal(map[string]any{"node": "node-a", "data": "/d", "database": h.content})
	if err != nil {
		t.Fatal(err)
	}
	err = seal(f, formatDatabase, header{Key: nameOf(key)}, key, func(w io.Writer) error {
		out := tar.NewWriter(w)
		errs := []error{put(out, manifestEntry, manifest)}
		for _, e := range h.entries {
			errs = append(errs, out.WriteHeader(&tar.Header{Typeflag: e.kind, Name: e.name, Size: int64(len(e.text)), Linkname: "x"}))
			_, err := io.WriteString(out, e.text)
			errs = append(errs, err)
		}
		if h.end != nil {
			end, err := json.Marshal(h.end)
			errs = append(errs, err, put(out, databaseEntry, end))
		}
		return errors.Join(append(errs, put(out, dataFolder+"server/file", []byte("x")), out.Close())...)
	})
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// The content of a backup is not trusted, even if it has the right key: names in it are not put into SQL statements, and a refused backup
// leaves nothing.
func TestHostileDatabase(t *testing.T) {
	t.Parallel()
	s := newShared(t)
	err := errors.Join(s.node.Collection("c").Put(t.Context(), "k", []byte("doc")), s.node.Put(t.Context(), sleeping("used", 1)), s.node.Retire(t.Context(), "used", "o", hutch.Usage{Executions: 1}))
	if err != nil {
		t.Fatal(err)
	}
	path, _ := s.write(t)
	// The entries of a valid backup, which the cases change.
	var entries []entry
	var content map[string]any
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	sealed, err := open(f, s.key)
	if err != nil {
		t.Fatal(err)
	}
	var end string
	err = sealed.read(func(r io.Reader) error {
		in := tar.NewReader(r)
		for {
			h, err := in.Next()
			if errors.Is(err, io.EOF) {
				return nil
			}
			if err != nil {
				return err
			}
			text, err := io.ReadAll(in)
			switch {
			case err != nil:
				return err
			case h.Name == manifestEntry:
				var m map[string]any
				json.Unmarshal(text, &m)
				content = m["database"].(map[string]any)
			case h.Name == databaseEntry:
				end = string(text)
			case strings.HasPrefix(h.Name, databaseFolder):
				entries = append(entries, entry{h.Name, string(text), tar.TypeReg})
			}
		}
	})
	if err != nil || len(entries) != 4 {
		t.Fatal(len(entries), err)
	}
	text, err := json.Marshal(content)
	if err != nil {
		t.Fatal(err)
	}
	base := func() hostile {
		h := hostile{entries: slices.Clone(entries)}
		json.Unmarshal(text, &h.content)
		json.Unmarshal([]byte(end), &h.end)
		return h
	}
	tables := func(h hostile) []any { return h.content["tables"].([]any) }
	table := func(h hostile, i int) map[string]any { return tables(h)[i].(map[string]any) }
	at := func(h hostile, name string) int {
		return slices.IndexFunc(h.entries, func(e entry) bool { return e.name == databaseFolder+name+"/0" })
	}
	url, to := pgtest.New(t), folder(t)
	for what, try := range map[string]struct {
		kind hutch.Kind
		do   func(h *hostile)
	}{
		"a table of the database itself": {hutch.Unsupported, func(h *hostile) { table(*h, 1)["name"] = "pg_authid" }},
		"a statement as a table":         {hutch.Unsupported, func(h *hostile) { table(*h, 1)["name"] = `sandboxes" (id) from stdin; drop schema public cascade; --` }},
		"a statement as a column":        {hutch.Unsupported, func(h *hostile) { table(*h, 1)["columns"] = []any{`id") from program 'touch /tmp/x'; --`} }},
		"another schema":                 {hutch.Unsupported, func(h *hostile) { table(*h, 1)["name"] = "public.sandboxes" }},
		"the table of migrations":        {hutch.Unsupported, func(h *hostile) { table(*h, 1)["name"] = "migrations" }},
		"a table twice": {hutch.Invalid, func(h *hostile) {
			table(*h, 1)["name"] = table(*h, 0)["name"]
			table(*h, 1)["columns"] = table(*h, 0)["columns"]
		}},
		"a table is missing":              {hutch.Invalid, func(h *hostile) { h.content["tables"] = tables(*h)[:3] }},
		"no tables":                       {hutch.Invalid, func(h *hostile) { h.content["tables"] = []any{} }},
		"a column twice":                  {hutch.Invalid, func(h *hostile) { table(*h, 1)["columns"] = []any{"id", "id"} }},
		"no columns":                      {hutch.Invalid, func(h *hostile) { table(*h, 1)["columns"] = []any{} }},
		"a newer format":                  {hutch.Unsupported, func(h *hostile) { h.content["format"] = 1000 }},
		"format 0":                        {hutch.Invalid, func(h *hostile) { h.content["format"] = 0 }},
		"a huge version":                  {hutch.Invalid, func(h *hostile) { h.content["version"] = int64(1) << 62; h.end["version"] = int64(1) << 62 }},
		"another installation":            {hutch.Invalid, func(h *hostile) { h.content["installation"] = "in-x"; h.end["installation"] = "in-x" }},
		"rows of a table that is unknown": {hutch.Invalid, func(h *hostile) { h.entries = append(h.entries, entry{"database/pg_authid/0", "x\n", tar.TypeReg}) }},
		"a piece is missing":              {hutch.Invalid, func(h *hostile) { h.entries = slices.Delete(h.entries, at(*h, "sandboxes"), at(*h, "sandboxes")+1) }},
		"a piece has another number":      {hutch.Invalid, func(h *hostile) { h.entries[at(*h, "sandboxes")].name = "database/sandboxes/1" }},
		"the order is another":            {hutch.Invalid, func(h *hostile) { slices.Reverse(h.entries) }},
		"a row twice": {hutch.Invalid, func(h *hostile) {
			e := &h.entries[at(*h, "usage")]
			e.text += strings.Replace(e.text, "o", "p", 1)
		}},
		"the end of the table before its end": {hutch.Invalid, func(h *hostile) { e := &h.entries[at(*h, "sandboxes")]; e.text = "\\.\n" + e.text }},
		"a piece is too large":                {hutch.Invalid, func(h *hostile) { h.entries[at(*h, "sandboxes")].text = strings.Repeat("x", pieceSize+1) }},
		"a link":                              {hutch.Invalid, func(h *hostile) { e := &h.entries[at(*h, "sandboxes")]; e.kind, e.text = tar.TypeSymlink, "" }},
		"no end":                              {hutch.Invalid, func(h *hostile) { h.end = nil }},
		"another end":                         {hutch.Invalid, func(h *hostile) { h.end["sandboxes"] = map[string]any{} }},
		"rows that are none":                  {"", func(h *hostile) { h.entries[at(*h, "sandboxes")].text = "x\ty\n" }},
		"values of other types": {"", func(h *hostile) {
			e := &h.entries[at(*h, "sandboxes")]
			e.text = strings.Replace(e.text, `\\x`, "zz", 1)
		}},
	} {
		h := base()
		try.do(&h)
		_, err := Restore(t.Context(), h.file(t, s.key), s.key, to, into(url))
		if err == nil || try.kind != "" && hutch.KindOf(err) != try.kind {
			t.Errorf("%s: %v", what, err)
		}
		isEmpty(t, url, to)
	}
	// A row that does not end, and is larger than any row of a store.
	h := base()
	first := at(h, "sandboxes")
	var pieces []entry
	for i := range 65 {
		pieces = append(pieces, entry{pieceName("sandboxes", i), strings.Repeat("x", pieceSize), tar.TypeReg})
	}
	h.entries = slices.Concat(h.entries[:first], pieces, h.entries[first+1:])
	if _, err := Restore(t.Context(), h.file(t, s.key), s.key, to, into(url)); !errors.Is(err, store.ErrRows) {
		t.Errorf("a huge row: %v", err)
	}
	isEmpty(t, url, to)
	if _, err := Restore(t.Context(), base().file(t, s.key), s.key, to, into(url)); err != nil {
		t.Errorf("the backup without a change: %v", err)
	}
}

// A backup of an older version, without the columns and tables added since, is brought to the present format.
func TestOlderDatabase(t *testing.T) {
	t.Parallel()
	s := newShared(t)
	fill(t, s)
	pgtest.Exec(t, s.url, `alter table fleet_holders drop column checkpoint, drop column stays; drop table fleet_tokens, fleet_restores, fleet_snapshots, fleet_snapshot_copies`)
	path, m := s.write(t)
	for _, table := range m.Database.Tables {
		if table.Name == "fleet_tokens" || table.Name == "fleet_holders" && slices.Contains(table.Columns, "checkpoint") {
			t.Errorf("%+v", table)
		}
	}
	url := pgtest.New(t)
	if _, err := Restore(t.Context(), path, s.key, folder(t), into(url)); err != nil {
		t.Fatal(err)
	}
	var stays string
	var tokens, holders, restores int
	err := pgtest.Connect(t, url).QueryRow(t.Context(), `select max(stays), count(*), (select count(*) from fleet_tokens), (select count(*) from fleet_restores) from fleet_holders where checkpoint is null`).Scan(&stays, &holders, &tokens, &restores)
	if err != nil || stays != "" || holders != 2 || tokens != 0 || restores != 1 {
		t.Errorf("%q, %d holders, %d tokens, %d restores, %v", stays, holders, tokens, restores, err)
	}
}

// A backup leaves no file if the connection to its database is lost.
func TestDatabaseGoesAway(t *testing.T) {
	t.Parallel()
	s := newShared(t)
	fill(t, s)
	for what, cut := range map[string]func(*pgtest.Link){
		"before":    (*pgtest.Link).Cut,
		"meanwhile": func(l *pgtest.Link) { l.Slow(20 * time.Millisecond); time.AfterFunc(300*time.Millisecond, l.Cut) },
	} {
		link := pgtest.NewLink(t, s.url)
		from, err := store.OpenBackup(t.Context(), store.Options{URL: link.URL, Key: storeKey(s.key)}, fleet.BackupPart())
		if err != nil {
			t.Fatal(err)
		}
		defer from.Close()
		cut(link)
		dir := t.TempDir()
		_, err = Write(t.Context(), s.data, Options{To: filepath.Join(dir, "backup"), Key: s.key, Database: from})
		if hutch.KindOf(err) != hutch.Unavailable || !strings.Contains(err.Error(), "does not answer") {
			t.Errorf("%s: %v", what, err)
		}
		if list, err := os.ReadDir(dir); err != nil || len(list) > 0 {
			t.Errorf("%s: %v, %v", what, list, err)
		}
	}
}

// The memory that a backup and a restore need does not grow with the database.
func TestDatabaseMemory(t *testing.T) {
	s := newShared(t)
	const size = 64 << 20 // as text it is twice as much
	pgtest.Exec(t, s.url, `insert into hutch.shelves (shelf, key, doc, version, changed)
		select 'big', n::text, decode(repeat(md5(n::text), 2048), 'hex'), n, now() from generate_series(1, $1::int) n`, size/(32<<10))
	defer debug.SetGCPercent(debug.SetGCPercent(20))
	most := func(do func()) (peak uint64) {
		done, sampled := make(chan struct{}), make(chan struct{})
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		before := m.HeapAlloc
		go func() {
			defer close(sampled)
			for {
				select {
				case <-done:
					return
				case <-time.After(5 * time.Millisecond):
				}
				runtime.ReadMemStats(&m)
				peak = max(peak, m.HeapAlloc-min(m.HeapAlloc, before))
			}
		}()
		do()
		close(done)
		<-sampled
		return peak
	}
	var path string
	var m Manifest
	url, to := pgtest.New(t), folder(t)
	written := most(func() { path, m = s.write(t) })
	restored := most(func() {
		if _, err := Restore(t.Context(), path, s.key, to, into(url)); err != nil {
			t.Fatal(err)
		}
	})
	t.Logf("%d MiB of rows: the backup needs %d MiB of memory, the restore %d MiB", m.Database.Tables[2].Bytes>>20, written>>20, restored>>20)
	if most := uint64(size / 2); written > most || restored > most {
		t.Errorf("more than %d MiB of memory", most>>20)
	}
}
