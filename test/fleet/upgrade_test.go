package fleet

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"hutch"
	"hutch/internal/hutchtest"
)

// versionOf makes programs that the runtimes take for another version of Hutch, because their content differs.
func versionOf(t *testing.T, difference string) (dir string) {
	t.Helper()
	dir = hutchtest.Dir(t)
	for _, name := range []string{"hutch", "hutch-agent", "hutch-gofer", "hutch-runsc"} {
		program, err := os.ReadFile(hutchtest.Program(t, name))
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name), append(program, difference...), 0o755)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func (n *node) builds(t *testing.T) int {
	t.Helper()
	list, err := filepath.Glob(filepath.Join(n.data, "server/builds/p*c*-*"))
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}

// started makes a sandbox with a variable of Python.
func started(t *testing.T, n *node) (id string) {
	t.Helper()
	sb, err := n.Create(t.Context(), hutch.CreateRequest{Runtime: "gvisor", Limits: hutch.Limits{Memory: 128}})
	if err != nil {
		t.Fatal(err)
	}
	n.python(t, sb.ID, "kept = 1")
	return sb.ID
}

// TestUpgrade: what an older version of Hutch put to sleep continues with its memory under a newer version, any number
// of times. So do snapshots. The kept programs are removed when nothing needs them.
func TestUpgrade(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		hutchtest.Skip(t, "the servers of this test need root")
	}
	n := &node{name: "alone", data: hutchtest.Dir(t), alone: true, args: []string{"--runtime", "gvisor"}, programs: versionOf(t, "old")}
	n.start(t)
	id, other := started(t, n), started(t, n)
	snap, err := n.Snapshot(t.Context(), id, hutch.SnapshotRequest{})
	if err != nil {
		t.Fatal(err)
	}
	upgrade := func(to string, flags ...string) {
		t.Helper()
		n.end(t, syscall.SIGTERM)
		if err := os.RemoveAll(n.programs); err != nil {
			t.Fatal(err)
		}
		n.programs, n.args = versionOf(t, to), append([]string{"--runtime", "gvisor"}, flags...)
		n.start(t)
	}
	asleep := func(ids ...string) {
		t.Helper()
		for _, id := range ids {
			if v, err := n.Hibernate(t.Context(), id, hutch.HibernateRequest{}); err != nil || v.Status != hutch.Hibernated {
				t.Fatalf("%+v %v", v, err)
			}
		}
	}
	asleep(id, other)
	for i, to := range []string{"new", "newer"} {
		upgrade(to)
		if got := n.python(t, id, "kept += 1; print(kept)"); got != fmt.Sprint(i+2) {
			t.Errorf("after the upgrade to the %s version, Python has %q", to, got)
		}
		copied, err := n.Create(t.Context(), hutch.CreateRequest{Snapshot: snap.ID})
		if err != nil {
			t.Fatal(err)
		}
		if got := n.python(t, copied.ID, "print(kept)"); got != "1" {
			t.Errorf("after the upgrade to the %s version, a copy of the snapshot has %q", to, got)
		}
		if _, err := n.Destroy(t.Context(), copied.ID, true); err != nil {
			t.Fatal(err)
		}
		if got := n.builds(t); got != 2 { // the old one and its own
			t.Errorf("the %s version keeps %d builds", to, got)
		}
		asleep(id)
	}
	upgrade("newest", "--old-builds=false")
	n.sh(t, id, "true")
	if v, err := n.Sandbox(t.Context(), id); err != nil || !strings.Contains(v.Reason, "--old-builds=false") {
		t.Errorf("with its files only, it says %+v %v", v, err)
	}
	for _, sb := range []string{id, other} {
		if _, err := n.Destroy(t.Context(), sb, true); err != nil {
			t.Fatal(err)
		}
	}
	if err := n.DeleteSnapshot(t.Context(), snap.ID); err != nil {
		t.Fatal(err)
	}
	n.end(t, syscall.SIGTERM)
	n.start(t)
	if got := n.builds(t); got != 1 {
		t.Errorf("%d builds are kept, and nothing needs the old ones", got)
	}
	n.end(t, syscall.SIGTERM)
}

// TestRollingUpgrade: a sandbox that slept on a node of the older version wakes with its memory on a node of the newer
// version, and the other way round. The node fetches the programs from the bucket. Programs that were changed in the
// bucket never run.
func TestRollingUpgrade(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		hutchtest.Skip(t, "the nodes of this test need root")
	}
	bucket := hutchtest.Dir(t)
	a, b, c := newFleet(t, "--runtime", "gvisor", "--fleet-bucket", bucket)
	b.end(t, syscall.SIGTERM)
	b.programs = versionOf(t, "new")
	b.start(t)
	id := placeOn(t, a, "a")
	a.python(t, id, "kept = 1")
	a.sleeps(t, id, "a")
	list, err := filepath.Glob(filepath.Join(bucket, "*/build-*"))
	if err != nil || len(list) != 1 {
		t.Fatalf("the programs in the bucket: %v %v", list, err)
	}
	path := list[0]
	good, err := os.ReadFile(path)
	if err == nil {
		err = os.WriteFile(path, flip(good, len(good)/2), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	a.must(t, "node", "cordon", "c")
	a.must(t, "node", "drain", "a")
	if _, err := c.Exec(t.Context(), id, hutch.ExecRequest{Command: "true"}, nil); hutch.KindOf(err) != hutch.Unavailable || !strings.Contains(err.Error(), "programs could not be fetched") {
		t.Errorf("with changed programs in the bucket: %v", err)
	}
	if got := b.builds(t); got != 1 {
		t.Errorf("changed programs are kept: %d builds", got)
	}
	if err := os.WriteFile(path, good, 0o600); err != nil {
		t.Fatal(err)
	}
	if got := c.python(t, id, "kept += 1; print(kept)"); got != "2" {
		t.Errorf("on the newer node, Python has %q", got)
	}
	if got := b.builds(t); got != 2 {
		t.Errorf("the newer node has %d builds", got)
	}
	a.must(t, "node", "uncordon", "a")
	a.must(t, "node", "drain", "b")
	if got := c.python(t, id, "kept += 1; print(kept)"); got != "3" {
		t.Errorf("back on the older node, Python has %q", got)
	}
}
