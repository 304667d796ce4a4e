package fleet

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"hutch"
	"hutch/internal/hutchtest"
	"hutch/internal/hutchtest/pgtest"
	"hutch/internal/hutchtest/s3"
)

// held is a sandbox of a node as `hutch node` shows it.
type held struct {
	SandboxID, Stays string
	Awake, InBucket  bool
}

// heldBy lists what is on a node.
func (n *node) heldBy(t *testing.T, name string) (list []held) {
	t.Helper()
	var answer struct{ Sandboxes []held }
	if err := json.Unmarshal([]byte(n.must(t, "node", "uncordon", name, "--json")), &answer); err != nil {
		t.Fatal(err)
	}
	return answer.Sandboxes
}

// sleeps puts a sandbox to sleep, and returns when the bucket has it.
func (n *node) sleeps(t *testing.T, id, on string) {
	t.Helper()
	if _, err := n.Hibernate(t.Context(), id, hutch.HibernateRequest{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the bucket has "+id, func() bool {
		return slices.ContainsFunc(n.heldBy(t, on), func(h held) bool { return h.SandboxID == id && h.InBucket })
	})
}

func (n *node) sh(t *testing.T, id, command string) string {
	t.Helper()
	res, err := n.Exec(t.Context(), id, hutch.ExecRequest{Command: command}, nil)
	if err != nil {
		t.Fatalf("%s: %v\n%s", command, err, n.said.String())
	}
	return strings.TrimSpace(string(res.Stdout))
}

// shSoon is sh, once the node has noticed that another node is away.
func (n *node) shSoon(t *testing.T, id, command string) (got string) {
	t.Helper()
	eventually(t, n.name+" answers for "+id, func() bool {
		res, err := n.Exec(t.Context(), id, hutch.ExecRequest{Command: command}, nil)
		if got = strings.TrimSpace(string(res.Stdout)); err != nil && hutch.KindOf(err) != hutch.Unavailable {
			t.Fatal(err)
		}
		return err == nil
	})
	return got
}

func (n *node) python(t *testing.T, id, code string) string {
	t.Helper()
	res, err := n.RunCode(t.Context(), id, hutch.RunRequest{Language: "python", Code: code}, nil)
	if err != nil {
		t.Fatalf("%s: %v\n%s", code, err, n.said.String())
	}
	return strings.TrimSpace(string(res.Stdout))
}

// copies returns what the nodes have on disk of sandboxes that sleep.
func copies(t *testing.T, nodes ...*node) (there []string) {
	t.Helper()
	for _, n := range nodes {
		for _, dir := range []string{"memory", "files"} {
			entries, err := os.ReadDir(filepath.Join(n.data, "server", dir))
			if err != nil {
				t.Fatal(err)
			}
			for range entries {
				there = append(there, n.name)
			}
		}
	}
	return there
}

// TestDrain: a node is emptied, and what it had continues elsewhere as if nothing had happened.
func TestDrain(t *testing.T) {
	t.Parallel()
	t.Run("gvisor", func(t *testing.T) {
		if os.Geteuid() != 0 {
			hutchtest.Skip(t, "the nodes of this test need root")
		}
		a, b, c := newFleet(t, "--runtime", "gvisor", "--fleet-bucket", s3.Start(t).URL("fleet"))
		id := placeOn(t, a, "a")
		a.python(t, id, "kept = list(range(1000)); blob = bytearray(30 << 20)")
		if _, err := a.StartProcess(t.Context(), id, hutch.ProcessRequest{Command: "exec sleep 876543"}); err != nil {
			t.Fatal(err)
		}
		drained(t, a, b, c, id)
		if got := b.python(t, id, "print(sum(kept), len(blob))"); got != "499500 31457280" {
			t.Errorf("Python's variables: %q", got)
		}
		if got := c.sh(t, id, "pgrep -fc 'sleep 87654[3]'"); got != "1" {
			t.Errorf("%s processes run on", got)
		}
	})
	t.Run("native", func(t *testing.T) {
		a, b, c := newFleet(t, "--fleet-bucket", hutchtest.Dir(t))
		id := placeOn(t, a, "a")
		drained(t, a, b, c, id)
	})
}

func drained(t *testing.T, a, b, c *node, id string) {
	t.Helper()
	a.sh(t, id, "umask 077; echo kept > /workspace/file; ln -s file /workspace/link; truncate -s 100M /workspace/holes")
	rules := hutch.HeaderRules{{Host: "api.example.com", Headers: map[string]hutch.HiddenValue{"Authorization": "Bearer a-hidden-value"}}}
	proxy := &hutch.NetworkProxy{Address: "proxy.example.com:1080", Username: "ann", Password: "a-hidden-value"}
	if _, err := a.SetNetwork(t.Context(), id, hutch.Network{Headers: rules, Proxy: proxy}); err != nil {
		t.Fatal(err)
	}
	if out := a.must(t, "node", "drain", "a"); !strings.Contains(out, "it holds no sandboxes") {
		t.Fatalf("drain says %s\n%s", out, a.said.String())
	}
	if n := a.nodes(t)["a"]; n.Held != 0 || n.State != "draining" {
		t.Errorf("a node that is drained: %+v", n)
	}
	eventually(t, "a removes its copy, in the background", func() bool { return copies(t, a) == nil })
	a.end(t, syscall.SIGTERM)
	list, err := b.Sandboxes(t.Context(), hutch.Filter{})
	if err != nil || len(list) != 1 || list[0].ID != id || list[0].Status != hutch.Hibernated && list[0].Status != hutch.Stopped {
		t.Errorf("the list meanwhile: %+v %v", list, err)
	}
	if got := c.sh(t, id, "cat /workspace/link; stat -c %a /workspace/file; stat -c %s /workspace/holes"); got != "kept\n600\n104857600" {
		t.Errorf("its files: %q", got)
	}
	// Another node can decrypt the hidden values of its network; otherwise there would be an error.
	if state, err := b.Network(t.Context(), id); err != nil || len(state.Network.Headers) != 1 || state.Network.Proxy == nil || state.Unavailable != "" {
		t.Errorf("its network: %+v %v", state, err)
	}
	if list, err = b.Sandboxes(t.Context(), hutch.Filter{}); err != nil || len(list) != 1 || list[0].Status != hutch.Running {
		t.Errorf("the list afterwards: %+v %v", list, err)
	}
}

// TestSleepOnExit: what was awake on a node that ends can be used elsewhere at once.
func TestSleepOnExit(t *testing.T) {
	t.Parallel()
	a, b, c := newFleet(t, "--sleep-on-exit", "--fleet-bucket", hutchtest.Dir(t))
	id := placeOn(t, a, "c")
	b.sh(t, id, "echo one > /workspace/file")
	c.end(t, syscall.SIGTERM)
	if got := b.shSoon(t, id, "cat /workspace/file; echo two >> /workspace/file"); got != "one" {
		t.Errorf("what was awake on c has %q", got)
	}
	c.start(t)
	if got := c.shSoon(t, id, "cat /workspace/file"); got != "one\ntwo" {
		t.Errorf("through c, after it came back: %q", got)
	}
	eventually(t, "c removes the copy that is old", func() bool { return len(copies(t, c)) == 0 })
}

// TestTakeOver: what sleeps on a node that dies, or is away for long, can be used elsewhere. When the node comes back,
// it no longer has it.
func TestTakeOver(t *testing.T) {
	t.Parallel()
	bucket := hutchtest.Dir(t)
	a, b, c := newFleet(t, "--fleet-bucket", bucket)

	// A node that is killed.
	id := placeOn(t, a, "c")
	b.sh(t, id, "echo one > /workspace/file")
	b.sleeps(t, id, "c")
	awake := placeOn(t, a, "c")
	c.end(t, syscall.SIGKILL)
	eventually(t, "c is away", func() bool { return !a.nodes(t)["c"].Alive })
	if got := a.shSoon(t, id, "cat /workspace/file; echo two >> /workspace/file"); got != "one" {
		t.Errorf("what slept on c has %q", got)
	}
	if _, err := b.Exec(t.Context(), awake, hutch.ExecRequest{Command: "true"}, nil); hutch.KindOf(err) != hutch.Unavailable {
		t.Errorf("what was awake on c: %v", err)
	}
	c.start(t)
	eventually(t, "c is back", func() bool { return a.nodes(t)["c"].Alive })
	if got := c.shSoon(t, id, "cat /workspace/file"); got != "one\ntwo" {
		t.Errorf("through c, after it came back: %q", got)
	}
	for _, n := range []*node{a, b, c} {
		list, err := n.Sandboxes(t.Context(), hutch.Filter{})
		if err != nil || len(list) != 2 {
			t.Errorf("%s lists %+v %v", n.name, list, err)
		}
	}
	if there := copies(t, c); there != nil {
		t.Errorf("c has the copy that is old")
	}

	if _, err := b.Destroy(t.Context(), awake, true); err != nil { // so that the next sandbox fits on c
		t.Fatal(err)
	}

	// A node that is paused, and continues with all that it had.
	other := placeOn(t, b, "c")
	b.sh(t, other, "echo one > /workspace/file")
	b.sleeps(t, other, "c")
	c.process.Signal(syscall.SIGSTOP)
	eventually(t, "c is away", func() bool { return !a.nodes(t)["c"].Alive })
	if got := b.shSoon(t, other, "cat /workspace/file; echo two >> /workspace/file"); got != "one" {
		t.Errorf("what slept on c has %q", got)
	}
	c.process.Signal(syscall.SIGCONT)
	eventually(t, "c knows that it does not have it", func() bool {
		res, err := c.Exec(t.Context(), other, hutch.ExecRequest{Command: "cat /workspace/file"}, nil)
		if err == nil && string(res.Stdout) != "one\ntwo\n" {
			t.Fatalf("c answers with %q", res.Stdout)
		}
		return err == nil
	})
	eventually(t, "c removes the copy that is old", func() bool { return copies(t, c) == nil })
}

// TestBadBucket: what was changed in the bucket is refused. If the bucket does not accept a sandbox, it stays where it
// is.
func TestBadBucket(t *testing.T) {
	t.Parallel()
	bucket := hutchtest.Dir(t)
	a, b, c := newFleet(t, "--fleet-bucket", bucket)
	id := placeOn(t, a, "c")
	b.sh(t, id, "echo one > /workspace/file")
	b.sleeps(t, id, "c")
	old := objects(t, bucket)
	b.sh(t, id, "echo two > /workspace/file")
	b.sleeps(t, id, "c")
	var path string
	var good []byte
	eventually(t, "the bucket has one image", func() bool {
		all := objects(t, bucket)
		for path, good = range all {
		}
		return len(all) == 1
	})
	if bytes.Contains(good, []byte("two")) {
		t.Error("a file can be read in the bucket")
	}
	c.end(t, syscall.SIGKILL)
	eventually(t, "a knows that c is away", func() bool {
		list, err := a.Sandboxes(t.Context(), hutch.Filter{})
		return err == nil && len(list) == 1 && list[0].Status == hutch.Stopped && strings.Contains(list[0].Reason, "bucket")
	})
	for name, forged := range map[string][]byte{
		"a bit is changed": flip(good, len(good)/2), "the end is cut off": good[:len(good)-20], "it is empty": nil, "it is longer": append(slices.Clone(good), 0),
		"it is older": func() []byte {
			for _, b := range old {
				return b
			}
			return nil
		}(),
	} {
		if err := os.WriteFile(path, forged, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := a.Exec(t.Context(), id, hutch.ExecRequest{Command: "true"}, nil); hutch.KindOf(err) != hutch.Denied || !strings.Contains(err.Error(), "was changed since") {
			t.Errorf("%s: %v", name, err)
		}
	}
	os.Remove(path)
	if _, err := a.Exec(t.Context(), id, hutch.ExecRequest{Command: "true"}, nil); hutch.KindOf(err) != hutch.Unavailable || !strings.Contains(err.Error(), "has lost") {
		t.Errorf("an image that is gone: %v", err)
	}
	if err := os.Mkdir(path, 0o700); err != nil { // a folder cannot be read as an image
		t.Fatal(err)
	}
	if _, err := a.Exec(t.Context(), id, hutch.ExecRequest{Command: "true"}, nil); hutch.KindOf(err) != hutch.Unavailable || !strings.Contains(err.Error(), "could not be fetched") {
		t.Errorf("a bucket that cannot be read: %v", err)
	}
	os.Remove(path)
	if there := copies(t, a, b); there != nil {
		t.Errorf("something of a forged image is on %v", there)
	}
	if sb, err := b.Sandbox(t.Context(), id); err != nil || sb.Status != hutch.Failed || !strings.Contains(sb.Reason, "has lost") {
		t.Errorf("it is shown as %+v %v", sb, err)
	}
	if err := os.WriteFile(path, good, 0o600); err != nil {
		t.Fatal(err)
	}
	if got := a.sh(t, id, "cat /workspace/file"); got != "two" {
		t.Errorf("afterwards it has %q", got)
	}

	// An image that is lost for good: its sandbox is destroyed, and its id is free.
	b.must(t, "node", "cordon", "b")
	gone := placeOn(t, b, "a")
	b.must(t, "node", "uncordon", "b")
	b.sleeps(t, gone, "a")
	a.end(t, syscall.SIGKILL)
	eventually(t, "a is away", func() bool { return !b.nodes(t)["a"].Alive })
	for path := range objects(t, bucket) {
		os.Remove(path)
	}
	eventually(t, "a call says that it is lost", func() bool {
		_, err := b.Exec(t.Context(), gone, hutch.ExecRequest{Command: "true"}, nil)
		return hutch.KindOf(err) == hutch.Unavailable && strings.Contains(err.Error(), "has lost")
	})
	if sb, err := b.Sandbox(t.Context(), gone); err != nil || sb.Status != hutch.Failed || !strings.Contains(sb.Reason, "has lost") {
		t.Errorf("it is shown as %+v %v", sb, err)
	}
	if _, err := b.Destroy(t.Context(), gone, false); err != nil {
		t.Errorf("destroy it: %v", err)
	}
	if list, err := b.Sandboxes(t.Context(), hutch.Filter{}); err != nil || slices.ContainsFunc(list, func(sb hutch.Sandbox) bool { return sb.ID == gone }) {
		t.Errorf("afterwards: %+v %v", list, err)
	}
	a.start(t)
	if _, err := b.Create(t.Context(), hutch.CreateRequest{ID: gone, Limits: hutch.Limits{Memory: 64}}); err != nil {
		t.Errorf("its id is not free: %v", err)
	}
	if _, err := b.Destroy(t.Context(), gone, true); err != nil {
		t.Error(err)
	}

	// A bucket that accepts nothing: the sandbox stays, with an error that says why.
	stays := placeOn(t, a, "b")
	a.sh(t, stays, "echo here > /workspace/file")
	putBack := takeBucket(t, bucket)
	if out := a.must(t, "node", "drain", "b"); !strings.Contains(out, stays) || !strings.Contains(out, "not a directory") {
		t.Errorf("drain says %s", out)
	}
	if got := a.sh(t, stays, "cat /workspace/file"); got != "here" {
		t.Errorf("it has %q", got)
	}
	putBack()
	if out := a.must(t, "node", "drain", "b"); !strings.Contains(out, "it holds no sandboxes") {
		t.Errorf("drain says %s", out)
	}
	a.must(t, "node", "uncordon", "b")
}

// takeBucket puts a file in the place of a bucket's folder, until putBack is called or the test ends.
func takeBucket(t *testing.T, bucket string) (putBack func()) {
	t.Helper()
	away := bucket + ".away"
	if err := os.Rename(bucket, away); err != nil {
		t.Fatal(err)
	}
	putBack = sync.OnceFunc(func() {
		if err := errors.Join(os.Remove(bucket), os.Rename(away, bucket)); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(putBack)
	if err := os.WriteFile(bucket, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	return putBack
}

// TestDamagedWhileAway: while a node is away, the bucket's object is damaged, and another node tries to take the
// sandbox over. The node that returns has its sandbox as before, and writes it to the bucket again.
func TestDamagedWhileAway(t *testing.T) {
	t.Parallel()
	bucket := hutchtest.Dir(t)
	a, b, c := newFleet(t, "--fleet-bucket", bucket)
	id := placeOn(t, a, "c")
	for _, away := range []struct {
		name        string
		begin, back func()
	}{
		{"killed", func() { c.end(t, syscall.SIGKILL) }, func() { c.start(t) }},
		{"paused", func() { c.process.Signal(syscall.SIGSTOP) }, func() { c.process.Signal(syscall.SIGCONT) }},
	} {
		b.sh(t, id, "echo "+away.name+" > /workspace/file")
		b.sleeps(t, id, "c")
		away.begin()
		eventually(t, "a knows that c is away", func() bool { return !a.nodes(t)["c"].Alive })
		damaged := damage(t, bucket)
		eventually(t, away.name+": a refuses the damaged image", func() bool {
			_, err := a.Exec(t.Context(), id, hutch.ExecRequest{Command: "true"}, nil)
			return hutch.KindOf(err) == hutch.Denied && strings.Contains(err.Error(), "was changed since")
		})
		away.back()
		eventually(t, "c is back", func() bool { return a.nodes(t)["c"].Alive })
		eventually(t, away.name+": c writes it to the bucket again", func() bool {
			for path := range objects(t, bucket) {
				if !slices.Contains(damaged, path) {
					return true
				}
			}
			return false
		})
		if sb, err := b.Sandbox(t.Context(), id); err != nil || !sb.Status.Sleeps() {
			t.Errorf("%s: afterwards: %+v %v", away.name, sb, err)
		}
		if got := b.shSoon(t, id, "cat /workspace/file"); got != away.name {
			t.Errorf("%s: it has %q", away.name, got)
		}
		if n := a.nodes(t)["c"]; n.Held != 1 {
			t.Errorf("%s: c holds %d sandboxes", away.name, n.Held)
		}
	}
}

// damage changes each image in a bucket that is a folder, and returns their paths.
func damage(t *testing.T, bucket string) (paths []string) {
	t.Helper()
	for path, good := range objects(t, bucket) {
		if err := os.WriteFile(path, flip(good, len(good)/2), 0o600); err != nil {
			t.Fatal(err)
		}
		paths = append(paths, path)
	}
	return paths
}

// objects returns the images in a bucket that is a folder, by their paths. It leaves out programs and the claim of the
// fleet.
func objects(t *testing.T, dir string) map[string][]byte {
	t.Helper()
	all := map[string][]byte{}
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() || strings.HasPrefix(d.Name(), "claim") || strings.HasPrefix(d.Name(), "build-") {
			return err
		}
		text, err := os.ReadFile(path)
		if err == nil {
			all[path] = text
		}
		return nil // it can be gone again
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func flip(b []byte, at int) []byte {
	b = slices.Clone(b)
	b[at] ^= 1
	return b
}

// TestWakeTimes prints how long a sandbox with a Python of 30 MB takes to wake on the node where it slept, and on another.
func TestWakeTimes(t *testing.T) {
	if testing.Short() || os.Getenv("HUTCH_FIGURES") == "" {
		t.Skip("set HUTCH_FIGURES=1 for figures")
	}
	a, b, _ := newFleet(t, "--runtime", "gvisor", "--quiet=false", "--fleet-bucket", hutchtest.Dir(t))
	a.must(t, "node", "cordon", "c")
	id := placeOn(t, a, "a")
	a.python(t, id, "import random; kept = random.randbytes(30 << 20)")
	figures := 0
	for on, from := a, b; !t.Failed() && t.Context().Err() == nil; on, from = from, on {
		on.sleeps(t, id, on.name)
		began := time.Now()
		on.python(t, id, "1")
		same := time.Since(began)
		fetched := strings.Count(from.said.String(), "fetched a sandbox")
		on.must(t, "node", "drain", on.name)
		early := strings.Count(from.said.String(), "fetched a sandbox") > fetched
		began = time.Now()
		from.python(t, id, "1")
		lines := strings.Split(from.said.String(), "\n")
		for _, line := range slices.Backward(lines) {
			if strings.Contains(line, "fetched a sandbox") {
				t.Log(line)
				break
			}
		}
		t.Logf("woke on the same node in %v, on another in %v (fetched before: %v)", same, time.Since(began), early)
		on.must(t, "node", "uncordon", on.name)
		if figures++; figures == 8 {
			return
		}
	}
}

// TestKilledWhileItArrives: a node is killed after it has reported to the database that a sandbox arrived, and starts
// again before the database has committed that. Meanwhile the bucket loses the image. The sandbox is on that node, and
// on no other.
func TestKilledWhileItArrives(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		hutchtest.Skip(t, "the runtime native needs root here")
	}
	database, bucket := pgtest.New(t), hutchtest.Dir(t)
	named, err := url.Parse(database)
	if err != nil {
		t.Fatal(err)
	}
	named.RawQuery = url.Values{"application_name": {"node-b"}}.Encode()
	flags := []string{"--fleet-bucket", bucket}
	all := newFleetOn(t, database, map[string][]string{"a": flags, "b": append([]string{"--store", named.String()}, flags...), "c": flags})
	a, b, c := all[0], all[1], all[2]
	id := placeOn(t, a, "a")
	a.sh(t, id, "echo kept > /workspace/file")
	a.must(t, "node", "cordon", "c")

	// Only the commit of the statement that records an arrival waits for a lock of the test.
	held, other := pgtest.Connect(t, database), pgtest.Connect(t, database)
	if _, err := held.Exec(t.Context(), `
		CREATE FUNCTION hutch.wait() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_advisory_xact_lock(19, 19); RETURN NULL; END $$;
		CREATE CONSTRAINT TRIGGER wait AFTER UPDATE ON hutch.fleet_holders DEFERRABLE INITIALLY DEFERRED FOR EACH ROW
			WHEN (NEW.here AND NOT OLD.here) EXECUTE FUNCTION hutch.wait();
		SELECT pg_advisory_lock(19, 19)`); err != nil {
		t.Fatal(err)
	}
	// waits reports whether a connection of b waits for a lock.
	waits := func(condition string) (ok bool, err error) {
		err = other.QueryRow(t.Context(), "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE application_name = 'node-b' AND wait_event_type = 'Lock' AND "+condition+")").Scan(&ok)
		return ok, err
	}
	drained := make(chan error, 1)
	go func() {
		_, err := a.hutch(t, "node", "drain", "a")
		drained <- err
	}()
	eventually(t, "b says that it came", func() bool {
		ok, err := waits("lower(query) = 'commit'")
		if err != nil {
			t.Fatal(err)
		}
		return ok
	})
	b.end(t, syscall.SIGKILL)
	for path := range objects(t, bucket) {
		os.Remove(path)
	}
	released := make(chan bool)
	go func() { // once b has looked for its sandboxes, it waits for the tables of the fleet
		defer close(released)
		for limit := time.Now().Add(2 * time.Minute); time.Now().Before(limit); time.Sleep(20 * time.Millisecond) {
			if ok, err := waits("lower(query) <> 'commit'"); ok || err != nil {
				break
			}
		}
		held.Exec(t.Context(), "SELECT pg_advisory_unlock(19, 19)")
	}()
	b.start(t)
	<-released
	if err := <-drained; err != nil {
		t.Error(err)
	}
	if got := c.shSoon(t, id, "cat /workspace/file"); got != "kept" {
		t.Errorf("its file: %q", got)
	}
	a.isOn(t, "b", id)
	if there := copies(t, a, c); there != nil {
		t.Errorf("copies are on %v", there)
	}
	if notes, err := os.ReadDir(filepath.Join(b.data, "server", "arrivals")); err != nil || len(notes) != 0 {
		t.Errorf("notes that are left: %v %v", notes, err)
	}
}
