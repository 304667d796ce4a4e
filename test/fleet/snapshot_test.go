package fleet

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"hutch"
	"hutch/internal/hutchtest"
	"hutch/internal/hutchtest/s3"
)

// keptSnapshot is a snapshot of a node as `hutch node` shows it.
type keptSnapshot struct {
	SnapshotID, Stays string
	InBucket          bool
}

// snapshotsOf lists the snapshots that the directory has on a node.
func (n *node) snapshotsOf(t *testing.T, name string) []keptSnapshot {
	t.Helper()
	var answer struct{ Snapshots []keptSnapshot }
	if err := json.Unmarshal([]byte(n.must(t, "node", "uncordon", name, "--json")), &answer); err != nil {
		t.Fatal(err)
	}
	return answer.Snapshots
}

// snapshot makes a snapshot of a sandbox on a node, and returns when the bucket has it.
func (n *node) snapshot(t *testing.T, id, on, name string) hutch.Snapshot {
	t.Helper()
	s, err := n.Snapshot(t.Context(), id, hutch.SnapshotRequest{Name: name})
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "the bucket has "+s.ID, func() bool {
		return slices.ContainsFunc(n.snapshotsOf(t, on), func(k keptSnapshot) bool { return k.SnapshotID == s.ID && k.InBucket })
	})
	return s
}

// fromSnapshot makes a sandbox from a snapshot.
func (n *node) fromSnapshot(t *testing.T, snapshot string) string {
	t.Helper()
	sb, err := n.Create(t.Context(), hutch.CreateRequest{Snapshot: snapshot})
	if err != nil {
		t.Fatalf("a sandbox of %s through %s: %v\n%s", snapshot, n.name, err, n.said.String())
	}
	return sb.ID
}

// snapshotFolders returns the folders of snapshots on the disk of a node.
func snapshotFolders(t *testing.T, n *node) (all []string) {
	t.Helper()
	entries, err := os.ReadDir(filepath.Join(n.data, "server", "snapshots"))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		all = append(all, e.Name())
	}
	return all
}

func lists(t *testing.T, n *node, snapshot string) bool {
	t.Helper()
	list, err := n.Snapshots(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return slices.ContainsFunc(list, func(s hutch.Snapshot) bool { return s.ID == snapshot })
}

// TestSnapshotOutlivesItsNode: a snapshot with memory is used on another node after its own was killed, through two nodes at
// once. The node that comes back removes its copy, and a deleted snapshot is nowhere.
func TestSnapshotOutlivesItsNode(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		hutchtest.Skip(t, "the nodes of this test need root")
	}
	a, b, c := newFleet(t, "--runtime", "gvisor", "--fleet-bucket", s3.Start(t).URL("fleet"))
	id := placeOn(t, a, "c")
	a.sh(t, id, "echo kept > /workspace/file")
	a.python(t, id, "kept = list(range(1000))")
	s := a.snapshot(t, id, "c", "base")
	if !s.Memory {
		t.Fatalf("a snapshot without memory: %+v", s)
	}
	if _, err := a.Destroy(t.Context(), id, true); err != nil {
		t.Fatal(err)
	}
	c.end(t, syscall.SIGKILL)
	eventually(t, "c is away", func() bool { return !a.nodes(t)["c"].Alive })
	if !lists(t, b, s.ID) {
		t.Error("the snapshot is not listed while its node is away")
	}
	var made [4]string
	var all sync.WaitGroup
	for i := range made {
		from := []*node{a, b}[i%2]
		all.Go(func() {
			sb, err := from.Create(t.Context(), hutch.CreateRequest{Snapshot: "base"})
			if err != nil {
				t.Errorf("through %s: %v %v\n%s", from.name, err, hutch.AsError(err).Data, from.said.String())
			}
			made[i] = sb.ID
		})
	}
	all.Wait()
	if t.Failed() {
		return
	}
	for _, id := range made {
		if got := a.python(t, id, "print(sum(kept))"); got != "499500" {
			t.Errorf("Python's variables: %q", got)
		}
		if got := b.sh(t, id, "cat /workspace/file"); got != "kept" {
			t.Errorf("its file: %q", got)
		}
	}
	if n := len(snapshotFolders(t, a)) + len(snapshotFolders(t, b)); n != 1 {
		t.Errorf("%d nodes fetched it", n)
	}
	c.start(t)
	eventually(t, "c removes its copy", func() bool { return len(snapshotFolders(t, c)) == 0 })
	for _, n := range []*node{a, b, c} {
		if !lists(t, n, s.ID) {
			t.Errorf("%s does not list it", n.name)
		}
	}
	if err := c.DeleteSnapshot(t.Context(), "base"); err != nil {
		t.Fatal(err)
	}
	for _, n := range []*node{a, b, c} {
		if lists(t, n, s.ID) || len(snapshotFolders(t, n)) > 0 {
			t.Errorf("%s has a snapshot that was deleted", n.name)
		}
	}
}

// TestDrainSnapshots: the snapshots of a drained node are in the bucket, and are used, named, compared and deleted from
// there; a snapshot that cannot leave the node is named.
func TestDrainSnapshots(t *testing.T) {
	t.Parallel()
	bucket := hutchtest.Dir(t)
	a, b, c := newFleet(t, "--fleet-bucket", bucket)
	id := placeOn(t, a, "a")
	a.sh(t, id, "echo one > /workspace/file")
	s, err := a.Snapshot(t.Context(), id, hutch.SnapshotRequest{Name: "base"}) // not yet in the bucket
	if err != nil {
		t.Fatal(err)
	}
	a.sh(t, id, "echo two > /workspace/file")
	later := a.snapshot(t, id, "a", "later")
	if _, err := a.Destroy(t.Context(), id, true); err != nil {
		t.Fatal(err)
	}
	putBack := takeBucket(t, bucket)
	if out := a.must(t, "node", "drain", "a"); !strings.Contains(out, s.ID) || !strings.Contains(out, later.ID) || !strings.Contains(out, "not a directory") {
		t.Errorf("without a bucket, drain says %s", out)
	}
	if len(snapshotFolders(t, a)) != 2 {
		t.Errorf("without a bucket, the node has %v", snapshotFolders(t, a))
	}
	putBack()
	if out := a.must(t, "node", "drain", "a"); !strings.Contains(out, "it holds no sandboxes") {
		t.Errorf("drain says %s\n%s", out, a.said.String())
	}
	eventually(t, "the drained node removes its copies", func() bool { return snapshotFolders(t, a) == nil })
	if got := b.sh(t, b.fromSnapshot(t, "base"), "cat /workspace/file"); got != "one" {
		t.Errorf("through b: %q", got)
	}
	if got := c.sh(t, c.fromSnapshot(t, later.ID), "cat /workspace/file"); got != "two" {
		t.Errorf("through c: %q", got)
	}
	a.must(t, "node", "drain", "b") // the snapshot is on b or c now; another node can take it from either
	a.must(t, "node", "drain", "c")
	a.must(t, "node", "uncordon", "b")
	a.must(t, "node", "uncordon", "c")
	if _, err := b.TagSnapshot(t.Context(), "base", hutch.SnapshotTag{Name: "base:v2"}); err != nil {
		t.Error(err)
	}
	diff, err := b.DiffSnapshot(t.Context(), "base:v2", hutch.SnapshotDiffRequest{To: "later"})
	if err != nil || len(diff.Files) == 0 {
		t.Errorf("compared: %+v %v", diff, err)
	}
	for _, name := range []string{"base", "base:v2", "later"} {
		if err := c.DeleteSnapshot(t.Context(), name); err != nil {
			t.Error(err)
		}
	}
	for _, n := range []*node{a, b, c} {
		if lists(t, n, s.ID) || lists(t, n, later.ID) {
			t.Errorf("%s lists a snapshot that was deleted", n.name)
		}
	}
	eventually(t, "the bucket has no snapshot", func() bool {
		for path := range objects(t, bucket) {
			if strings.Contains(path, "snapshot-") {
				return false
			}
		}
		return true
	})
}

// TestBadSnapshots: a snapshot that was changed in the bucket or is lost there is refused, and nothing of it is used.
func TestBadSnapshots(t *testing.T) {
	t.Parallel()
	bucket := hutchtest.Dir(t)
	a, b, c := newFleet(t, "--fleet-bucket", bucket)
	id := placeOn(t, a, "c")
	a.sh(t, id, "echo secret-text > /workspace/file")
	s := a.snapshot(t, id, "c", "base")
	if _, err := a.Destroy(t.Context(), id, true); err != nil {
		t.Fatal(err)
	}
	c.end(t, syscall.SIGKILL)
	eventually(t, "c is away", func() bool { return !a.nodes(t)["c"].Alive && !b.nodes(t)["c"].Alive })
	var path string
	var good []byte
	for at, text := range objects(t, bucket) {
		if strings.Contains(at, "snapshot-") {
			path, good = at, text
		}
	}
	if path == "" || strings.Contains(string(good), "secret-text") {
		t.Fatalf("the bucket has %d bytes at %q", len(good), path)
	}
	create := func() error {
		_, err := a.Create(t.Context(), hutch.CreateRequest{Snapshot: "base"})
		return err
	}
	for name, forged := range map[string][]byte{"a bit is changed": flip(good, len(good)/2), "the end is cut off": good[:len(good)-20], "it is empty": nil, "it is longer": append(slices.Clone(good), 0)} {
		if err := os.WriteFile(path, forged, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := create(); hutch.KindOf(err) != hutch.Denied || !strings.Contains(fmt.Sprint(err), s.ID) || !strings.Contains(fmt.Sprint(err), "was changed since") {
			t.Errorf("%s: %v", name, err)
		}
	}
	os.Remove(path)
	if err := create(); hutch.KindOf(err) != hutch.Unavailable || !strings.Contains(fmt.Sprint(err), "has lost the snapshot") {
		t.Errorf("it is lost: %v", err)
	}
	if there := append(snapshotFolders(t, a), snapshotFolders(t, b)...); there != nil {
		t.Errorf("something of a forged snapshot is left: %v", there)
	}
	if list, err := a.Sandboxes(t.Context(), hutch.Filter{}); err != nil || len(list) > 0 {
		t.Errorf("sandboxes of a forged snapshot: %+v %v", list, err)
	}
	if err := os.WriteFile(path, good, 0o600); err != nil {
		t.Fatal(err)
	}
	if got := b.sh(t, b.fromSnapshot(t, "base"), "cat /workspace/file"); got != "secret-text" {
		t.Errorf("afterwards it has %q", got)
	}
	c.start(t)
	eventually(t, "c removes its copy", func() bool { return len(snapshotFolders(t, c)) == 0 })

	// A snapshot is deleted while its node is away: the node that comes back does not bring it back.
	gone := a.snapshot(t, placeOn(t, a, "c"), "c", "gone")
	c.end(t, syscall.SIGKILL)
	eventually(t, "c is away", func() bool { return !a.nodes(t)["c"].Alive })
	if err := a.DeleteSnapshot(t.Context(), "gone"); err != nil {
		t.Fatal(err)
	}
	c.start(t)
	eventually(t, "c removes what was deleted", func() bool { return len(snapshotFolders(t, c)) == 0 })
	if lists(t, b, gone.ID) {
		t.Error("a snapshot that was deleted is listed")
	}

	// The same for a snapshot that never reached the bucket.
	putBack := takeBucket(t, bucket)
	lost, err := a.Snapshot(t.Context(), placeOn(t, a, "c"), hutch.SnapshotRequest{Name: "lost"})
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "the directory has it", func() bool {
		return slices.ContainsFunc(a.snapshotsOf(t, "c"), func(k keptSnapshot) bool { return k.SnapshotID == lost.ID })
	})
	c.end(t, syscall.SIGKILL)
	eventually(t, "c is away", func() bool { return !a.nodes(t)["c"].Alive })
	if _, err := a.Create(t.Context(), hutch.CreateRequest{Snapshot: "lost"}); hutch.KindOf(err) != hutch.Unavailable || !strings.Contains(err.Error(), "the node c, which is away") {
		t.Errorf("a sandbox of a snapshot on a node that is away: %v", err)
	}
	if err := a.DeleteSnapshot(t.Context(), "lost"); err != nil {
		t.Errorf("deleted: %v", err)
	}
	putBack()
	c.start(t)
	eventually(t, "c removes what was deleted", func() bool { return len(snapshotFolders(t, c)) == 0 })
	if lists(t, b, lost.ID) {
		t.Error("a snapshot that was deleted is listed")
	}
}
