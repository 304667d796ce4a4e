package fleet

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"hutch"
	"hutch/internal/hutchtest"
	"hutch/internal/hutchtest/pgtest"
)

// counting writes a number to a file, one more each time.
const counting = `i=0; while :; do i=$((i+1)); echo $i > /workspace/.n; mv /workspace/.n /workspace/n; sleep 0.05; done`

func (n *node) counted(t *testing.T, id string) int {
	t.Helper()
	i, err := strconv.Atoi(n.shSoon(t, id, "cat /workspace/n"))
	if err != nil {
		t.Fatal(err)
	}
	return i
}

// newImage waits until the bucket has new images, and none of the present ones.
func newImage(t *testing.T, bucket string) {
	t.Helper()
	before := slices.Collect(maps.Keys(objects(t, bucket)))
	eventually(t, "the bucket has only new images", func() bool {
		now := slices.Collect(maps.Keys(objects(t, bucket)))
		return len(now) > 0 && !slices.ContainsFunc(now, func(path string) bool { return slices.Contains(before, path) })
	})
}

// TestCheckpoints: what ran on a node that fails continues on another node from its last checkpoint, and never exists
// twice.
func TestCheckpoints(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		hutchtest.Skip(t, "the nodes of this test need root")
	}
	bucket := hutchtest.Dir(t)
	store := pgtest.New(t)
	db, err := pgxpool.New(t.Context(), store)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(db.Close)
	flags := []string{"--runtime", "gvisor", "--quiet=false", "--fleet-bucket", bucket, "--checkpoint-every", "1s"}
	all := newFleetOn(t, store, map[string][]string{"a": flags, "b": flags, "c": flags})
	a, b, c := all[0], all[1], all[2]
	longAway := func() { // makes c look as if it were away for an hour
		t.Helper()
		eventually(t, "c is away", func() bool { return !a.nodes(t)["c"].Alive })
		if _, err := db.Exec(t.Context(), "UPDATE fleet_nodes SET lease_until = lease_until - interval '1 hour' WHERE id = 'c'"); err != nil {
			t.Fatal(err)
		}
	}
	places := func() []string {
		t.Helper()
		list, err := filepath.Glob(filepath.Join(c.data, "server", "gvisor", "*"))
		if err != nil {
			t.Fatal(err)
		}
		return list
	}
	for _, fail := range []struct {
		name        string
		begin, back func()
	}{
		{"killed", func() { c.end(t, syscall.SIGKILL) }, func() { c.start(t) }},
		{"paused", func() { c.process.Signal(syscall.SIGSTOP) }, func() { c.process.Signal(syscall.SIGCONT) }},
	} {
		id := placeOn(t, a, "c")
		if _, err := b.StartProcess(t.Context(), id, hutch.ProcessRequest{Command: counting}); err != nil {
			t.Fatal(err)
		}
		eventually(t, "it counts", func() bool { return b.sh(t, id, "cat /workspace/n 2>/dev/null || echo 0") > "1" })
		newImage(t, bucket)
		least := b.counted(t, id)
		newImage(t, bucket)
		newImage(t, bucket) // the first image can have been begun before

		if len(places()) == 0 {
			t.Fatal("c has no sandbox")
		}
		fail.begin()
		eventually(t, "c is away", func() bool { return !a.nodes(t)["c"].Alive })
		eventually(t, "the reason names the checkpoint", func() bool {
			sb, err := a.Sandbox(t.Context(), id)
			return err == nil && sb.Status == hutch.Failed && strings.Contains(sb.Reason, "checkpoint of ")
		})
		if _, err := a.Exec(t.Context(), id, hutch.ExecRequest{Command: "true"}, nil); hutch.KindOf(err) != hutch.Unavailable || !strings.Contains(err.Error(), "from its checkpoint of ") {
			t.Errorf("%s: a call at once: %v", fail.name, err)
		}
		longAway()
		eventually(t, "it runs on another node by itself", func() bool {
			sb, err := a.Sandbox(t.Context(), id)
			return err == nil && sb.Status == hutch.Running && strings.Contains(sb.Reason, "it continues from its checkpoint of ")
		})
		if got := a.counted(t, id); got < least {
			t.Errorf("%s: it counts from %d, and the checkpoint was after %d", fail.name, got, least)
		}
		eventually(t, "its timeline says so", func() (found bool) { // b learns a moment later than a where it is
			err := b.Timeline(t.Context(), id, hutch.TimelineQuery{}, func(e hutch.TimelineEntry) error {
				found = found || e.Event == "Woken" && strings.Contains(e.Target, "it continues from its checkpoint of ")
				return nil
			})
			if err != nil && hutch.KindOf(err) != hutch.Unavailable {
				t.Fatalf("%s: its timeline: %v", fail.name, err)
			}
			return found
		})
		before := a.counted(t, id)
		eventually(t, "it continues counting", func() bool { return b.counted(t, id) > before })

		fail.back()
		eventually(t, "c is back", func() bool { return a.nodes(t)["c"].Alive })
		eventually(t, "c does not have it", func() bool { return len(places()) == 0 })
		for _, n := range all {
			if list, err := n.Sandboxes(t.Context(), hutch.Filter{}); err != nil || len(list) != 1 || list[0].ID != id || list[0].Status != hutch.Running {
				t.Errorf("%s: %s lists %+v %v", fail.name, n.name, list, err)
			}
		}
		before = c.counted(t, id)
		eventually(t, "it continues counting", func() bool { return c.counted(t, id) > before })
		if _, err := a.Destroy(t.Context(), id, true); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the bucket is empty", func() bool { return len(objects(t, bucket)) == 0 })
	}
}

// TestIdleCheckpoints: a sandbox in which nothing runs is saved once, until it is used again.
func TestIdleCheckpoints(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		hutchtest.Skip(t, "the nodes of this test need root")
	}
	bucket := hutchtest.Dir(t)
	a, _, _ := newFleet(t, "--runtime", "gvisor", "--quiet=false", "--fleet-bucket", bucket, "--checkpoint-every", "1s")
	a.must(t, "node", "cordon", "b")
	a.must(t, "node", "cordon", "c")
	idle, busy := placeOn(t, a, "a"), placeOn(t, a, "a")
	if _, err := a.StartProcess(t.Context(), busy, hutch.ProcessRequest{Command: counting}); err != nil {
		t.Fatal(err)
	}
	made := func(id string) int { return strings.Count(a.said.String(), "msg=checkpoint sandbox="+id) }
	for range 2 {
		before := made(idle)
		a.sh(t, idle, "true")
		eventually(t, "what was used is saved", func() bool { return made(idle) > before })
		saved, then := made(idle), made(busy)
		eventually(t, "a sandbox that works is saved again and again", func() bool { return made(busy) >= then+3 })
		if now := made(idle); now > saved+1 { // one more, if it was used while it was saved
			t.Errorf("an idle sandbox was saved %d times more", now-saved)
		}
	}
	for line := range strings.Lines(a.said.String()) {
		if strings.Contains(line, "msg=checkpoint") {
			t.Log(strings.TrimSpace(line))
		}
	}
}

// TestCheckpointFlags: a server does not start with flags that cannot work, and says what to do.
func TestCheckpointFlags(t *testing.T) {
	bucket := hutchtest.Dir(t)
	for want, flags := range map[string][]string{
		"--fleet-bucket":  {"--checkpoint-every", "1m"},
		"give 1s or more": {"--checkpoint-every", "10ms", "--fleet-bucket", bucket},
		"is not a time":   {"--checkpoint-every", "often", "--fleet-bucket", bucket},
	} {
		out, err := exec.Command(hutchtest.Program(t, "hutch"), append([]string{"serve", "--listen", "127.0.0.1:0", "--data", hutchtest.Dir(t)}, flags...)...).CombinedOutput()
		if err == nil || !strings.Contains(string(out), want) {
			t.Errorf("%v: %v %s", flags, err, out)
		}
	}
}
