package fleet

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sys/unix"

	"hutch"
	"hutch/internal/hutchtest"
	"hutch/internal/hutchtest/pgtest"
)

var (
	chaosFor  = flag.Duration("chaos", 20*time.Second, "for how long TestRandomFailures causes failures")
	chaosSeed = flag.Uint64("seed", 0, "which failures TestRandomFailures causes; 0 chooses one")
)

const (
	chaosClients = 8
	chaosBoxes   = 3  // of each client
	chaosMemory  = 64 // MiB of a sandbox
	chaosRoom    = 6 * chaosMemory
)

// TestRandomFailures uses a fleet while its nodes are killed, paused and cut off, and compares each answer with what earlier
// answers promised. A failure can be repeated with the seed that the test prints, as far as the machine does the same again.
//
// Without a bucket, a sandbox stays on its node: no sandbox is on two nodes, and no sandbox is lost if its node comes
// back. With a bucket, sandboxes also fall asleep, move to other nodes while their own is away, and wake there with the
// same files; and the bucket fails too.
func TestRandomFailures(t *testing.T) {
	t.Run("without a bucket", func(t *testing.T) { randomFailures(t, "") })
	t.Run("with a bucket", func(t *testing.T) { randomFailures(t, hutchtest.Dir(t)) })
}

func randomFailures(t *testing.T, bucket string) {
	seed := *chaosSeed
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("go test ./test/fleet -run TestRandomFailures -seed %d -chaos %v", seed, *chaosFor)
	c := newChaos(t, seed, bucket)
	ctx, cancel := context.WithCancel(t.Context())
	var using sync.WaitGroup
	for i := range chaosClients {
		using.Go(func() { c.use(ctx, i) })
	}
	using.Go(func() { c.watchPromises(ctx) })
	c.breakThings(*chaosFor)
	cancel()
	using.Wait()
	t.Logf("answers: %v", c.answers)
	c.converge()
}

// chaos is a fleet whose connections the test can cut.
type chaos struct {
	t        *testing.T
	seed     uint64
	bucket   string        // a folder; empty for none
	database *pgxpool.Pool // connected in a way that is never cut
	nodes    []*breakable
	boxes    []*modelBox

	bucketBack func() // ends the failure of the bucket, once; nil before the first

	mu      sync.Mutex
	retired []string // ids of sandboxes that may or may not exist
	first   string   // what the first to write to the sandbox of all clients wrote
	answers map[string]int
}

// breakable is a node with the connections that the test can cut.
type breakable struct {
	*node
	store, door *pgtest.Link
	undo        func() // ends the failure; nil if there is none
	until       time.Time
}

// modelBox is what is known of a sandbox that one client uses.
type modelBox struct {
	id    string
	state string // of these constants
	nonce string // content of a file in it, while it exists
}

const (
	absent = "absent"
	there  = "there"
	unsure = "unsure" // a call about it was not answered, but can still take effect, so its id is not used again
)

func newChaos(t *testing.T, seed uint64, bucket string) *chaos {
	t.Helper()
	c := &chaos{t: t, seed: seed, bucket: bucket, answers: map[string]int{}}
	if os.Geteuid() != 0 {
		hutchtest.Skip(t, "the runtime native needs root here")
	}
	store := pgtest.New(t)
	var err error
	if c.database, err = pgxpool.New(t.Context(), store); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.database.Close)
	more := map[string][]string{}
	for _, name := range []string{"a", "b", "c"} {
		door := freeAddress(t)
		n := &breakable{store: pgtest.NewLink(t, store), door: pgtest.NewLink(t, "tcp://"+door)}
		u, err := url.Parse(n.door.URL)
		if err != nil {
			t.Fatal(err)
		}
		more[name] = []string{"--listen", freeAddress(t), "--fleet-listen", door, "--fleet-address", u.Host, "--store", n.store.URL, "--fleet-memory", strconv.Itoa(chaosRoom)}
		if bucket != "" {
			more[name] = append(more[name], "--fleet-bucket", bucket)
		}
		c.nodes = append(c.nodes, n)
	}
	for i, n := range newFleetOn(t, c.nodes[0].store.URL, more) {
		c.nodes[i].node = n
	}
	t.Cleanup(func() {
		c.heal()
		for _, n := range c.nodes {
			if t.Failed() {
				t.Logf("the log of %s:\n%s", n.name, n.said.String())
			}
		}
	})
	c.warm()
	for i := range chaosClients * chaosBoxes {
		c.boxes = append(c.boxes, &modelBox{id: fmt.Sprintf("box-%d", i), state: absent})
	}
	return c
}

// warm makes a sandbox on each node, because a node's first sandbox also makes the image of the host, which takes long.
func (c *chaos) warm() {
	c.t.Helper()
	for i := range c.nodes {
		if _, err := c.nodes[0].Create(c.t.Context(), hutch.CreateRequest{ID: fmt.Sprintf("warm-%d", i), Limits: hutch.Limits{Memory: chaosMemory}}); err != nil {
			c.t.Fatal(err)
		}
	}
	for i := range c.nodes {
		if _, err := c.nodes[0].Destroy(c.t.Context(), fmt.Sprintf("warm-%d", i), true); err != nil {
			c.t.Fatal(err)
		}
	}
}

// freeAddress returns an address that the kernel gives to no connection of its own accord, so it is still free after a
// restart.
func freeAddress(t *testing.T) string {
	t.Helper()
	for range 100 {
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", 20_000+rand.IntN(10_000)))
		if err == nil {
			defer l.Close()
			return l.Addr().String()
		}
	}
	t.Fatal("no port is free")
	return ""
}

// use makes, uses and destroys sandboxes, each through any node.
func (c *chaos) use(ctx context.Context, client int) {
	r := rand.New(rand.NewPCG(c.seed, uint64(client)))
	mine := c.boxes[client*chaosBoxes:][:chaosBoxes]
	for ctx.Err() == nil {
		n := c.nodes[r.IntN(len(c.nodes))]
		call, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		switch b := mine[r.IntN(len(mine))]; {
		case r.IntN(8) == 0:
			c.share(call, n, client)
		case b.state == there && c.bucket != "" && r.IntN(4) == 0:
			c.sleep(call, n, b)
		case b.state == there && r.IntN(4) > 0:
			c.check(call, n, b)
		case b.state == there, b.state == unsure:
			c.destroy(call, n, b)
		case b.state == absent && r.IntN(4) == 0:
			c.look(call, n, b)
		default:
			c.create(call, n, b)
		}
		cancel()
	}
}

// answered counts an answer. It fails the test for an error that no failure of a node explains.
func (c *chaos) answered(what string, n *breakable, b *modelBox, err error, fine ...hutch.Kind) {
	key := what
	if err != nil {
		key += " " + string(hutch.KindOf(err))
	}
	c.mu.Lock()
	c.answers[key]++
	c.mu.Unlock()
	e, ok := errors.AsType[*hutch.Error](err)
	if err != nil && (!ok || e.Kind == hutch.Unavailable) { // an error of the network
		time.Sleep(20 * time.Millisecond) // so that a node that refuses at once does not get all calls
		return
	}
	if err != nil && !slices.Contains(fine, e.Kind) {
		c.t.Errorf("%s %s, which is %s, through %s: %v (%s)", what, b.id, b.state, n.name, err, e.Kind)
	}
}

func (c *chaos) create(ctx context.Context, n *breakable, b *modelBox) {
	_, err := n.Create(ctx, hutch.CreateRequest{ID: b.id, Limits: hutch.Limits{Memory: chaosMemory}})
	c.answered("create", n, b, err, hutch.Exhausted)
	if hutch.KindOf(err) == hutch.Exhausted {
		return
	}
	b.state = unsure
	if err != nil {
		return
	}
	b.nonce = strconv.FormatUint(rand.Uint64(), 16)
	res, err := n.Exec(ctx, b.id, hutch.ExecRequest{Command: "echo " + b.nonce + " > /workspace/nonce"}, nil)
	c.answered("first exec", n, b, err, c.full()...)
	if err == nil && res.Success() {
		b.state = there
	}
}

func (c *chaos) check(ctx context.Context, n *breakable, b *modelBox) {
	res, err := n.Exec(ctx, b.id, hutch.ExecRequest{Command: "cat /workspace/nonce"}, nil)
	c.answered("exec", n, b, err, c.full()...)
	if said := strings.TrimSpace(string(res.Stdout)); err == nil && said != b.nonce {
		c.t.Errorf("%s through %s has %q %q, and not %q", b.id, n.name, said, res.Stderr, b.nonce)
	}
}

// full returns the kinds of error that are allowed when a sandbox sleeps and no node has room for it.
func (c *chaos) full() []hutch.Kind {
	if c.bucket == "" {
		return nil // nothing sleeps
	}
	return []hutch.Kind{hutch.Exhausted}
}

// sleep puts a sandbox to sleep, unless other clients use it now.
func (c *chaos) sleep(ctx context.Context, n *breakable, b *modelBox) {
	_, err := n.Hibernate(ctx, b.id, hutch.HibernateRequest{})
	c.answered("hibernate", n, b, err, hutch.Conflict)
}

func (c *chaos) destroy(ctx context.Context, n *breakable, b *modelBox) {
	fine := []hutch.Kind{}
	if b.state == unsure {
		fine = append(fine, hutch.NotFound)
	}
	_, err := n.Destroy(ctx, b.id, true)
	c.answered("destroy", n, b, err, fine...)
	switch {
	case err != nil && hutch.KindOf(err) != hutch.NotFound:
		b.state = unsure
	case b.state == unsure:
		c.mu.Lock()
		c.retired = append(c.retired, b.id)
		c.mu.Unlock()
		*b = modelBox{id: "box-" + strconv.FormatUint(rand.Uint64(), 36), state: absent}
	default:
		b.state = absent
	}
}

func (c *chaos) look(ctx context.Context, n *breakable, b *modelBox) {
	sb, err := n.Sandbox(ctx, b.id)
	c.answered("look", n, b, err, hutch.NotFound)
	if err == nil && sb.Status == hutch.Running {
		c.t.Errorf("%s was destroyed, and through %s it is %s", b.id, n.name, sb.Status)
	}
}

// share makes all clients create the same sandbox. All of them read what the first client wrote there.
func (c *chaos) share(ctx context.Context, n *breakable, client int) {
	b := &modelBox{id: "shared", state: "of all clients"}
	_, err := n.Create(ctx, hutch.CreateRequest{ID: b.id, Limits: hutch.Limits{Memory: chaosMemory}})
	c.answered("create", n, b, err, hutch.Exhausted)
	if err != nil {
		return
	}
	res, err := n.Exec(ctx, b.id, hutch.ExecRequest{Command: fmt.Sprintf("ln -s %d-%d /workspace/first 2>/dev/null; readlink /workspace/first", client, rand.Uint64())}, nil)
	c.answered("exec", n, b, err)
	if err != nil || !res.Success() {
		return
	}
	said := strings.TrimSpace(string(res.Stdout))
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.first == "" {
		c.first = said
	}
	if c.first != said {
		c.t.Errorf("the sandbox of all clients is there twice: it has %q, and through %s %q", c.first, n.name, said)
	}
}

// watchPromises checks, again and again, what must always be true in the database.
func (c *chaos) watchPromises(ctx context.Context) {
	for ctx.Err() == nil {
		c.checkPromises()
		select {
		case <-ctx.Done():
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func (c *chaos) checkPromises() {
	rows, err := c.database.Query(context.Background(), `
		SELECT n.id, n.memory, n.promised_memory, (SELECT coalesce(sum(h.memory), 0)::bigint FROM fleet_holders h WHERE h.node = n.id AND h.awake) FROM fleet_nodes n`)
	if err != nil {
		return // a failure of the database
	}
	var node string
	var memory, promised, held int64
	_, err = pgx.ForEachRow(rows, []any{&node, &memory, &promised, &held}, func() error {
		if promised > memory || promised != held {
			c.t.Errorf("the node %s has %d MiB, promised %d, and its sandboxes have %d", node, memory, promised, held)
		}
		return nil
	})
	if err != nil {
		c.t.Logf("the promises cannot be read: %v", err)
	}
}

// breakThings causes failures for a while, and then ends them all.
func (c *chaos) breakThings(during time.Duration) {
	r := rand.New(rand.NewPCG(c.seed, 1<<32))
	tick := time.NewTicker(250 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(during); time.Now().Before(end); <-tick.C {
		for _, n := range c.nodes {
			if n.undo != nil && time.Now().After(n.until) {
				n.undo()
				n.undo = nil
			}
		}
		if n := c.nodes[r.IntN(len(c.nodes))]; n.undo == nil && r.IntN(2) == 0 {
			last := time.Duration(r.IntN(5000)) * time.Millisecond
			if r.IntN(4) == 0 {
				last += 14 * time.Second // longer than a lease
			}
			n.until = time.Now().Add(last)
			f := failures[r.IntN(len(failures))]
			c.t.Logf("%s: %s for %v", n.name, f.name, last)
			n.undo = f.begin(c, n)
		}
	}
	c.heal()
}

func (c *chaos) heal() {
	for _, n := range c.nodes {
		if n.undo != nil {
			n.undo()
			n.undo = nil
		}
	}
}

// start starts a node that has ended. A node whose bucket is a folder does not start without the folder.
func (c *chaos) start(n *breakable) {
	if c.bucketBack != nil {
		c.bucketBack()
	}
	n.start(c.t)
}

// failures are the ways in which a node can fail. Each returns a function that ends the failure.
var failures = []struct {
	name  string
	begin func(*chaos, *breakable) (undo func())
}{
	{"the database is down", func(_ *chaos, n *breakable) func() { n.store.Cut(); return n.store.Heal }},
	{"the database says nothing", func(_ *chaos, n *breakable) func() { n.store.Hold(); return n.store.Heal }},
	{"the database is slow", func(_ *chaos, n *breakable) func() { n.store.Slow(50 * time.Millisecond); return n.store.Heal }},
	{"other nodes are refused", func(_ *chaos, n *breakable) func() { n.door.Cut(); return n.door.Heal }},
	{"other nodes hear nothing", func(_ *chaos, n *breakable) func() { n.door.Hold(); return n.door.Heal }},
	{"cut off from everything", func(_ *chaos, n *breakable) func() {
		n.door.Hold()
		n.store.Hold()
		return func() { n.door.Heal(); n.store.Heal() }
	}},
	{"paused", func(_ *chaos, n *breakable) func() {
		n.process.Signal(syscall.SIGSTOP)
		return func() { n.process.Signal(syscall.SIGCONT) }
	}},
	{"killed", func(c *chaos, n *breakable) func() {
		n.end(c.t, syscall.SIGKILL)
		return func() { c.start(n) }
	}},
	{"stopped", func(c *chaos, n *breakable) func() {
		n.end(c.t, syscall.SIGTERM)
		return func() { c.start(n) }
	}},
	{"the database's clock goes forward by an hour", func(c *chaos, n *breakable) func() { c.moveLeases("-1 hour"); return func() {} }},
	{"the database's clock goes back by an hour", func(c *chaos, n *breakable) func() { c.moveLeases("1 hour"); return func() {} }},
	{"the bucket is away", func(c *chaos, _ *breakable) func() {
		if c.bucket == "" {
			return func() {}
		}
		away := c.bucket + ".away"
		if _, err := os.Lstat(away); err == nil { // it is away already
			return func() {}
		}
		swap := func() {
			if err := unix.Renameat2(unix.AT_FDCWD, away, unix.AT_FDCWD, c.bucket, unix.RENAME_EXCHANGE); err != nil {
				c.t.Error(err)
			}
		}
		if err := os.WriteFile(away, nil, 0o600); err != nil {
			c.t.Error(err)
		}
		swap() // a file is in the place of the folder
		c.bucketBack = sync.OnceFunc(func() { swap(); os.Remove(away) })
		return c.bucketBack
	}},
	{"the database restarts", func(c *chaos, n *breakable) func() {
		c.database.Exec(context.Background(), "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()")
		return func() {}
	}},
}

// moveLeases makes leases look as they do after the clock of the database was set.
func (c *chaos) moveLeases(by string) {
	c.database.Exec(context.Background(), "UPDATE fleet_nodes SET lease_until = lease_until + $1::text::interval", by)
}

// converge checks that, after the last failure, all nodes give the same answers, and that these are what was promised.
func (c *chaos) converge() {
	c.t.Helper()
	for _, b := range c.boxes { // sandboxes that could not be destroyed without the database can be destroyed now
		if b.state == unsure {
			eventually(c.t, b.id+" is destroyed", func() bool {
				_, err := c.nodes[0].Destroy(c.t.Context(), b.id, true)
				return err == nil
			})
		}
	}
	boxes := append(c.boxes, &modelBox{id: "shared", state: unsure})
	for _, id := range c.retired {
		boxes = append(boxes, &modelBox{id: id, state: unsure})
	}
	for _, b := range boxes {
		var said []string
		eventually(c.t, "all nodes say the same of "+b.id, func() bool {
			said = nil
			for _, n := range c.nodes {
				what, ok := c.seen(n, b.id)
				if !ok {
					return false
				}
				said = append(said, what)
			}
			return said[0] == said[1] && said[1] == said[2]
		})
		if b.state == absent && said[0] != absent || b.state == there && said[0] != b.nonce {
			c.t.Errorf("%s is %s with %q, and all nodes say %q", b.id, b.state, b.nonce, said[0])
		}
	}
	c.checkPromises()
	eventually(c.t, "the directory and the records of sandboxes are the same", func() bool {
		var wrong int
		err := c.database.QueryRow(c.t.Context(), `SELECT count(*) FROM hutch.sandboxes s
			FULL JOIN fleet_holders h ON (s.owner, s.sandbox, s.node) = (h.owner, h.id, h.node)
			WHERE h.id IS NULL OR s.id IS NULL AND h.placed < now() - '7 minutes'::interval`).Scan(&wrong)
		return err == nil && wrong == 0
	})
	c.checkDisks()
}

// seen returns what a node reports about a sandbox: that it is absent, or the content of its file.
func (c *chaos) seen(n *breakable, id string) (what string, ok bool) {
	ctx, cancel := context.WithTimeout(c.t.Context(), time.Minute)
	defer cancel()
	res, err := n.Exec(ctx, id, hutch.ExecRequest{Command: "cat /workspace/nonce /workspace/first 2>/dev/null || true"}, nil)
	switch {
	case hutch.KindOf(err) == hutch.NotFound:
		return absent, true
	case err != nil:
		return "", false
	}
	if c.bucket != "" { // all of them together need more room than there is
		n.Hibernate(ctx, id, hutch.HibernateRequest{})
	}
	return strings.TrimSpace(string(res.Stdout)), true
}

// checkDisks checks that the disk of each node has what the node's records say: no sandbox is on two nodes, and nothing
// else is left.
func (c *chaos) checkDisks() {
	for _, n := range c.nodes {
		var recorded, found []string
		c.t.Cleanup(func() {
			if c.t.Failed() {
				c.t.Logf("%s has the records %v, and on disk %v", n.name, recorded, found)
			}
		})
		eventually(c.t, "the disk of "+n.name+" has what its records say", func() bool {
			rows, err := c.database.Query(c.t.Context(), "SELECT id FROM hutch.sandboxes WHERE node = $1 ORDER BY id", n.name)
			if err != nil {
				c.t.Fatal(err)
			}
			if recorded, err = pgx.CollectRows(rows, pgx.RowTo[string]); err != nil {
				c.t.Fatal(err)
			}
			found = nil
			for _, dir := range []string{"native", "files", "memory", "arrivals"} { // awake, asleep, or arriving
				entries, err := os.ReadDir(filepath.Join(n.data, "server", dir))
				if err != nil {
					c.t.Fatal(err)
				}
				for _, e := range entries {
					found = append(found, strings.TrimSuffix(e.Name(), ".tar"))
				}
			}
			slices.Sort(found)
			return slices.Equal(recorded, found)
		})
	}
}
