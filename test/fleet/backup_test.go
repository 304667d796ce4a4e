package fleet

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"hutch"
	"hutch/internal/hutchtest"
	"hutch/internal/hutchtest/pgtest"
)

// askItself is what a sandbox runs to reach its own web server.
const askItself = `python3 -c 'import urllib.request; print(urllib.request.urlopen("http://127.0.0.1:8000/note").read().decode())'`

// TestBackup: a fleet is backed up while its sandboxes run. A second fleet continues from the backup with the same
// processes, in other data folders and another database, while the original fleet runs on. Neither touches the other.
func TestBackup(t *testing.T) {
	if os.Geteuid() != 0 {
		hutchtest.Skip(t, "the nodes of this test need root")
	}
	t.Setenv("HUTCH_TOKEN", token)
	flags := []string{"--runtime", "gvisor", "--quiet=false"}
	all := newFleetOn(t, pgtest.New(t), map[string][]string{"a": flags, "b": flags, "c": flags})
	a, b := all[0], all[1]
	ids := map[string]string{}
	for _, name := range []string{"a", "b", "c"} {
		ids[name] = placeOn(t, a, name)
		a.sh(t, ids[name], "echo of "+name+" > note")
		if _, err := a.StartProcess(t.Context(), ids[name], hutch.ProcessRequest{Name: "web", Command: "exec python3 -m http.server 8000"}); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the web server answers", func() bool {
			res, err := a.Exec(t.Context(), ids[name], hutch.ExecRequest{Command: askItself}, nil)
			return err == nil && strings.TrimSpace(string(res.Stdout)) == "of "+name
		})
	}
	secret := strings.Fields(a.must(t, "token", "create", "ci"))[0]

	// The node with the database is backed up last.
	dir := hutchtest.Dir(t)
	files := map[string]string{"a": filepath.Join(dir, "backup-a"), "b": filepath.Join(dir, "backup-b")}
	type manifest struct {
		Copied   int
		Awake    []string
		Database *struct {
			Tables []struct {
				Name string
				Rows int
			}
			Sandboxes map[string]int
		}
	}
	backUp := func(n *node, args ...string) (m manifest) {
		t.Helper()
		if err := json.Unmarshal([]byte(n.must(t, append([]string{"installation", "backup", "--json", files[n.name]}, args...)...)), &m); err != nil {
			t.Fatal(err)
		}
		return m
	}
	if m := backUp(b, "--no-database"); m.Copied != 1 || len(m.Awake) != 0 || m.Database != nil {
		t.Errorf("%+v", m)
	}
	if m := backUp(a); m.Copied != 1 || m.Database == nil || m.Database.Sandboxes["b"] != 1 || m.Database.Sandboxes["c"] != 1 {
		t.Errorf("%+v", m)
	}
	a.sh(t, ids["a"], "echo later > note")
	late := placeOn(t, a, "b")

	// Restored beside the original.
	store := pgtest.New(t)
	key := filepath.Join(a.data, "server", "secrets.key")
	again := map[string]*node{}
	t.Cleanup(func() {
		for _, n := range again {
			if n.process != nil {
				n.process.Empty(t)
			}
		}
		for _, n := range again {
			if n.process != nil {
				n.end(t, syscall.SIGTERM)
			}
		}
	})
	restore := func(name string, args ...string) *node {
		t.Helper()
		n := &node{name: name, data: filepath.Join(dir, name), args: flags}
		said := n.must(t, append([]string{"installation", "restore", files[name], "--secret-key", key, "--store", store}, args...)...)
		if !strings.Contains(said, "hutch serve, with the database 127.0.0.1:") || strings.Contains(said, "postgres://") {
			t.Errorf("it says %q", said)
		}
		again[name] = n
		return n
	}
	a2, b2 := restore("a"), restore("b", "--no-database")
	if _, err := a2.hutch(t, "installation", "restore", files["a"], "--secret-key", key, "--store", store, "--data", filepath.Join(dir, "more")); err == nil || !strings.Contains(err.Error(), "is not empty") && !strings.Contains(err.Error(), "in use") {
		t.Errorf("restored again: %v", err)
	}
	a2.start(t)
	listed := func(n *node, id string) (sb hutch.Sandbox, there bool) {
		t.Helper()
		list, err := n.Sandboxes(t.Context(), hutch.Filter{})
		if err != nil {
			t.Fatal(err)
		}
		i := slices.IndexFunc(list, func(sb hutch.Sandbox) bool { return sb.ID == id })
		if i < 0 {
			return sb, false
		}
		return list[i], true
	}
	for _, name := range []string{"b", "c"} { // b2 has not started, and c was not restored; the original nodes are not asked
		if sb, ok := listed(a2, ids[name]); !ok || sb.Status != hutch.Failed || !strings.Contains(sb.Reason, "node "+name) {
			t.Errorf("a sandbox of the node %s: %+v, %v", name, sb, ok)
		}
	}
	if nodes := a2.nodes(t); nodes["b"].Alive || nodes["c"].Alive {
		t.Errorf("nodes of the original are alive: %+v", nodes)
	}
	b2.start(t)
	for _, name := range []string{"a", "b"} {
		if got := a2.shSoon(t, ids[name], askItself); got != "of "+name {
			t.Errorf("the web server on %s says %q", name, got)
		}
		ps, err := b2.Processes(t.Context(), ids[name])
		if err != nil || len(ps) != 1 || ps[0].Name != "web" || ps[0].ExitCode != nil {
			t.Errorf("processes of the sandbox on %s: %+v, %v", name, ps, err)
		}
	}
	if sb, ok := listed(a2, late); ok {
		t.Errorf("a sandbox from after the backup: %+v", sb)
	}
	if list := a2.must(t, "token", "ls"); !strings.Contains(list, " ci ") || strings.Contains(list, secret) {
		t.Errorf("tokens: %s", list)
	}
	a2.must(t, "node", "rm", "c")
	if sb, ok := listed(b2, ids["c"]); ok {
		t.Errorf("a sandbox of a removed node: %+v", sb)
	}

	// The original fleet has all of it, also what came after the backup.
	if got := b.sh(t, ids["a"], askItself); got != "later" {
		t.Errorf("the original says %q", got)
	}
	a.sh(t, late, "true")
	for name, n := range a.nodes(t) {
		if !n.Alive {
			t.Errorf("the node %s of the original is away", name)
		}
	}
}

// TestBackupWithBucket: after one node is restored, a sandbox of a lost node wakes from the bucket. A sandbox that only
// a lost node has fails with an error that names the node. Only one of the two fleets, original or restored, uses the
// bucket.
func TestBackupWithBucket(t *testing.T) {
	bucket := hutchtest.Dir(t)
	a, b, c := newFleet(t, "--fleet-bucket", bucket)
	t.Setenv("HUTCH_TOKEN", token)
	asleep, awake := placeOn(t, a, "c"), placeOn(t, a, "b")
	a.sh(t, asleep, "echo kept > note")
	a.sleeps(t, asleep, "c")
	file, store := filepath.Join(hutchtest.Dir(t), "backup"), pgtest.New(t)
	a.must(t, "installation", "backup", file)
	// A fleet that is restored beside the original must not use its bucket.
	beside := &node{data: filepath.Join(hutchtest.Dir(t), "beside")}
	beside.must(t, "installation", "restore", file, "--secret-key", filepath.Join(a.data, "server", "secrets.key"), "--store", pgtest.New(t))
	if said, err := beside.hutch(t, "serve", "--quiet", "--listen", "127.0.0.1:0", "--runtime", "native", "--fleet-listen", "127.0.0.1:0", "--fleet-bucket", bucket); err == nil || !strings.Contains(err.Error(), "another copy of this fleet") {
		t.Errorf("a second fleet with the bucket: %s, %v", said, err)
	}
	if _, err := a.Destroy(t.Context(), awake, true); err != nil { // its programs end with the test
		t.Fatal(err)
	}
	for _, n := range []*node{b, c, a} {
		n.end(t, syscall.SIGKILL)
	}
	key := filepath.Join(a.data, "server", "secrets.key")
	a.data, a.args = filepath.Join(hutchtest.Dir(t), "a"), []string{"--fleet-bucket", bucket}
	a.must(t, "installation", "restore", file, "--secret-key", key, "--store", store)
	a.start(t)
	t.Cleanup(func() { // before its database and its folder are removed
		a.Destroy(context.Background(), asleep, true)
		a.end(t, syscall.SIGTERM)
	})
	if got := a.shSoon(t, asleep, "cat note"); got != "kept" { // the restored node has taken over the bucket
		t.Errorf("it says %q", got)
	}
	if said, err := b.hutch(t, "serve", "--quiet", "--listen", "127.0.0.1:0", "--runtime", "native", "--fleet-listen", "127.0.0.1:0", "--fleet-bucket", bucket); err == nil || !strings.Contains(err.Error(), "restored from a backup of this one") {
		t.Errorf("a node of the original comes back: %s, %v", said, err)
	}
	if _, err := a.Exec(t.Context(), awake, hutch.ExecRequest{Command: "true"}, nil); hutch.KindOf(err) != hutch.Unavailable || !strings.Contains(err.Error(), "node b") {
		t.Errorf("a sandbox that only the lost node has: %v", err)
	}
}

// TestBackupOfOneServer: a server with its state in PostgreSQL is backed up while it runs. After it is lost, it is
// restored with a newer version of Hutch: the backup has the programs that the saved memory needs. A restore that is
// killed leaves the database empty, and is repeated.
func TestBackupOfOneServer(t *testing.T) {
	if os.Geteuid() != 0 {
		hutchtest.Skip(t, "the server of this test needs root")
	}
	t.Setenv("HUTCH_TOKEN", token)
	t.Setenv("HUTCH_STORE", pgtest.New(t))
	dir := hutchtest.Dir(t)
	file := filepath.Join(dir, "backup")
	n := &node{name: "first", data: filepath.Join(dir, "first"), args: []string{"--runtime", "gvisor"}, alone: true}
	n.start(t)
	t.Cleanup(func() {
		if n.process == nil {
			return
		}
		for _, id := range []string{"awake", "asleep"} {
			n.Destroy(context.Background(), id, true)
		}
		n.end(t, syscall.SIGTERM)
	})
	for _, id := range []string{"awake", "asleep"} {
		if _, err := n.Create(t.Context(), hutch.CreateRequest{ID: id, Limits: hutch.Limits{Memory: 64}}); err != nil {
			t.Fatal(err)
		}
		n.sh(t, id, "echo "+id+" > note")
		if _, err := n.StartProcess(t.Context(), id, hutch.ProcessRequest{Command: "exec python3 -m http.server 8000"}); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the web server answers", func() bool {
			res, err := n.Exec(t.Context(), id, hutch.ExecRequest{Command: askItself}, nil)
			return err == nil && strings.TrimSpace(string(res.Stdout)) == id
		})
	}
	if _, err := n.Hibernate(t.Context(), "asleep", hutch.HibernateRequest{}); err != nil {
		t.Fatal(err)
	}
	again := &node{data: filepath.Join(dir, "again")}
	refused := func(by *node, want string, args ...string) {
		t.Helper()
		if out, err := by.hutch(t, append([]string{"installation"}, args...)...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %s, %v, and not %q", args, out, err, want)
		}
	}
	original := os.Getenv("HUTCH_STORE")
	os.Setenv("HUTCH_STORE", "")
	refused(n, "give its URL with --store", "backup", file)
	os.Setenv("HUTCH_STORE", original)
	if said := n.must(t, "installation", "backup", "--with-key", file); !strings.Contains(said, "1 sleeping sandboxes, copies of 1 that were awake, and the database: ") {
		t.Errorf("it says %q", said)
	}
	if said := n.must(t, "installation", "verify", file); !strings.Contains(said, "and the database: ") {
		t.Errorf("it says %q", said)
	}
	refused(again, "end all servers", "restore", file)
	for _, id := range []string{"awake", "asleep"} { // the machine is lost
		if _, err := n.Destroy(t.Context(), id, true); err != nil {
			t.Fatal(err)
		}
	}
	n.end(t, syscall.SIGTERM)
	refused(again, "is not empty", "restore", file)

	url := pgtest.New(t)
	db, err := pgxpool.New(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(db.Close)
	count := func(of string) (i int) {
		t.Helper()
		if err := db.QueryRow(t.Context(), "select count(*) from "+of).Scan(&i); err != nil {
			t.Fatal(err)
		}
		return i
	}
	const clients = "pg_stat_activity where application_name = 'hutch' and datname = current_database()"
	link := pgtest.NewLink(t, url)
	link.Slow(100 * time.Millisecond)
	n.data = again.data
	killed := exec.Command(hutchtest.Program(t, "hutch"), "installation", "restore", file, "--data", n.data, "--store", link.URL)
	if err := killed.Start(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the restore fills the database", func() bool { return count(clients+" and state = 'idle in transaction'") > 0 })
	killed.Process.Kill()
	killed.Wait()
	eventually(t, "the database knows that it ended", func() bool { return count(clients) == 0 })
	if got := count("pg_namespace where nspname = 'hutch'"); got != 0 {
		t.Error("the restore was killed, and the database is not empty")
	}
	os.Setenv("HUTCH_STORE", "")
	refused(again, "give the URL of an empty one", "restore", file)
	os.Setenv("HUTCH_STORE", url)
	if said := n.must(t, "installation", "restore", file); !strings.Contains(said, "and the database: ") {
		t.Errorf("it says %q", said)
	}
	n.programs = versionOf(t, "new")
	n.start(t)
	if got := n.builds(t); got != 2 {
		t.Errorf("%d builds are kept", got)
	}
	for _, id := range []string{"awake", "asleep"} {
		if got := n.sh(t, id, askItself); got != id {
			t.Errorf("the web server in %s says %q", id, got)
		}
	}
}
