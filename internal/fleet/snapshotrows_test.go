package fleet

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"hutch"
	"hutch/internal/caller"
	"hutch/internal/travel"
)

// kept records that a node and the bucket have a snapshot.
func kept(t *testing.T, d *Directory, node, id string) snapshotRow {
	t.Helper()
	_, err := d.recordSnapshot(t.Context(), node, hutch.Snapshot{ID: id, Owner: "ada", Name: id, Names: []string{id}})
	if err == nil {
		err = d.keepSnapshot(t.Context(), node, id, travel.Image{Key: "key of " + id, Needs: travel.Needs{Runtime: "gvisor", Build: "build of " + id}})
	}
	rows, failed := d.snapshotsOf(t.Context(), node)
	if err = errors.Join(err, failed); err != nil || len(rows) != 1 {
		t.Fatal(rows, err)
	}
	return rows[0]
}

// TestClaimSnapshot: if several nodes race for a snapshot whose node is away, one gets it. The directory lists
// the copy of the node that was away as one to remove, and does not let that node change the snapshot.
func TestClaimSnapshot(t *testing.T) {
	t.Parallel()
	d := live(t, register(t, 4, 100))
	s := kept(t, d, "n0", "snap")
	if err := d.claimSnapshot(t.Context(), s, "n1", false); !errors.Is(err, errMoved) {
		t.Errorf("claimed from a node that lives: %v", err)
	}
	die(t, d, "n0")
	var mu sync.Mutex
	var won []string
	var all sync.WaitGroup
	for i := 1; i < 4; i++ {
		all.Go(func() {
			to := fmt.Sprintf("n%d", i)
			err := d.claimSnapshot(t.Context(), s, to, false)
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				won = append(won, to)
			} else if !errors.Is(err, errMoved) {
				t.Errorf("%s: %v", to, err)
			}
		})
	}
	all.Wait()
	if len(won) != 1 {
		t.Fatalf("%v have it", won)
	}
	live(t, d)
	if deleted, list, err := d.copies(t.Context(), "n0"); err != nil || len(deleted) > 0 || len(list) != 1 || list[0].Record.ID != "snap" {
		t.Errorf("the node that was away has old copies of %v %+v %v", deleted, list, err)
	}
	if _, err := d.recordSnapshot(t.Context(), "n0", s.Record); !errors.Is(err, errMoved) {
		t.Errorf("the node that was away names it: %v", err)
	}
	if key, err := d.forgetSnapshot(t.Context(), "n0", "snap"); err != nil || key != "" {
		t.Errorf("the node that was away deletes it: %q %v", key, err)
	}
	if mine, err := d.hasSnapshot(t.Context(), won[0], "snap", s.Image.Key); err != nil || !mine {
		t.Errorf("it came to %s: %v %v", won[0], mine, err)
	}
	if keys, err := d.images(t.Context()); err != nil || !keys[s.Image.Key] {
		t.Errorf("the bucket has to keep %v %v", keys, err)
	}
	if builds, err := d.builds(t.Context()); err != nil || !builds["build of snap"] {
		t.Errorf("the bucket has to keep the builds %v %v", builds, err)
	}
}

// TestClaimedWhileFetched: if another node has claimed a snapshot while a node fetched it, the first node has an old
// copy.
func TestClaimedWhileFetched(t *testing.T) {
	t.Parallel()
	d := live(t, register(t, 3, 100))
	s := kept(t, d, "n0", "snap")
	for i := range 2 { // n1 gets full before it has fetched the snapshot
		if err := d.claimSnapshot(t.Context(), s, fmt.Sprintf("n%d", i+1), true); err != nil {
			t.Fatal(err)
		}
		s.Node = fmt.Sprintf("n%d", i+1)
	}
	if mine, err := d.hasSnapshot(t.Context(), "n1", "snap", s.Image.Key); err != nil || mine {
		t.Errorf("it came to n1: %v %v", mine, err)
	}
	if mine, err := d.hasSnapshot(t.Context(), "n2", "snap", s.Image.Key); err != nil || !mine {
		t.Errorf("it came to n2: %v %v", mine, err)
	}
	if err := d.isCopy(t.Context(), "n1", "snap"); err != nil {
		t.Errorf("n1 has no old copy: %v", err)
	}
	if err := d.deleteSnapshot(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	for _, node := range []string{"n1", "n2"} {
		if _, err := d.hasSnapshot(t.Context(), node, "snap", s.Image.Key); !errors.Is(err, errMoved) {
			t.Errorf("it came to %s after it was deleted: %v", node, err)
		}
	}
}

// TestRemovedNodeOfSnapshots: when a node is removed, only those of its snapshots are lost that are not in the bucket.
// A live node with such snapshots is not removed.
func TestRemovedNodeOfSnapshots(t *testing.T) {
	t.Parallel()
	d := live(t, register(t, 2, 100))
	s := kept(t, d, "n0", "snap")
	if _, err := d.recordSnapshot(t.Context(), "n0", hutch.Snapshot{ID: "only-here", Owner: "ada"}); err != nil {
		t.Fatal(err)
	}
	if _, err := d.RemoveNode(t.Context(), "n0", false); hutch.KindOf(err) != hutch.Conflict {
		t.Errorf("a live node with a snapshot that is only there was removed: %v", err)
	}
	die(t, d, "n0")
	if list, err := d.snapshotsLost(t.Context(), nil); err != nil || len(list) != 1 || list[0].Record.ID != "only-here" {
		t.Errorf("lost for now: %+v %v", list, err)
	}
	if _, err := d.RemoveNode(t.Context(), "n0", false); err != nil {
		t.Fatal(err)
	}
	owner, other := "ada", "bob"
	list, err := d.snapshotsInBucket(t.Context(), &owner)
	if err != nil || len(list) != 1 || list[0].Node != "" || list[0].Image.Key != s.Image.Key {
		t.Errorf("afterwards: %+v %v", list, err)
	}
	if list, err := d.snapshotsInBucket(t.Context(), &other); err != nil || len(list) > 0 {
		t.Errorf("another owner sees %+v %v", list, err)
	}
	if err := d.claimSnapshot(t.Context(), list[0], "n1", false); err != nil {
		t.Error(err)
	}
}

// TestOnlyCopy: if a snapshot is neither in the bucket nor on a live node, the files of any node count as the snapshot,
// even if the directory names another node. This happens when the database was restored to an earlier state.
func TestOnlyCopy(t *testing.T) {
	t.Parallel()
	d := live(t, register(t, 2, 100))
	v := hutch.Snapshot{ID: "snap", Owner: "ada"}
	if _, err := d.recordSnapshot(t.Context(), "n0", v); err != nil {
		t.Fatal(err)
	}
	// While the snapshot's node is alive, the snapshot belongs to that node, and the files on n1 are not marked as an
	// old copy.
	if _, err := d.recordSnapshot(t.Context(), "n1", v); !errors.Is(err, errMoved) {
		t.Errorf("recorded over a node that lives: %v", err)
	}
	if err := d.markCopy(t.Context(), "n1", "snap"); err != nil {
		t.Fatal(err)
	}
	if deleted, list, err := d.copies(t.Context(), "n1"); err != nil || len(deleted)+len(list) > 0 {
		t.Errorf("a copy of what the bucket does not have: %v %+v %v", deleted, list, err)
	}
	die(t, d, "n0")
	if _, err := d.recordSnapshot(t.Context(), "n1", v); err != nil {
		t.Errorf("recorded after the death of its node: %v", err)
	}
	if rows, err := d.snapshotsOf(t.Context(), "n1"); err != nil || len(rows) != 1 {
		t.Errorf("n1 has %+v %v", rows, err)
	}
	// Once the bucket has the snapshot, the files of another node are an old copy.
	if err := d.keepSnapshot(t.Context(), "n1", "snap", travel.Image{Key: "key"}); err != nil {
		t.Fatal(err)
	}
	die(t, d, "n1")
	if _, err := d.recordSnapshot(t.Context(), "n0", v); !errors.Is(err, errMoved) {
		t.Errorf("recorded although the bucket has it: %v", err)
	}
	if err := d.markCopy(t.Context(), "n0", "snap"); err != nil {
		t.Fatal(err)
	}
	if deleted, list, err := d.copies(t.Context(), "n0"); err != nil || len(deleted) > 0 || len(list) != 1 {
		t.Errorf("old copies: %v %+v %v", deleted, list, err)
	}
}

// TestDeletedStaysDeleted: a node does not bring back a snapshot that was deleted while it had an old copy, whether it was
// away or has just released it.
func TestDeletedStaysDeleted(t *testing.T) {
	t.Parallel()
	d := live(t, register(t, 2, 100))
	s := kept(t, d, "n0", "snap")
	if err := d.leaveSnapshot(t.Context(), "n0", "snap", s.Image.Key); err != nil { // as if the answer were lost, so its files stay
		t.Fatal(err)
	}
	if err := d.leaveSnapshot(t.Context(), "n0", "snap", s.Image.Key); !errors.Is(err, errMoved) {
		t.Errorf("released twice: %v", err)
	}
	s.Node = ""
	if err := d.deleteSnapshot(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	if _, err := d.recordSnapshot(t.Context(), "n0", s.Record); !errors.Is(err, errMoved) {
		t.Errorf("the deleted snapshot is recorded: %v", err)
	}
	if deleted, list, err := d.copies(t.Context(), "n0"); err != nil || len(deleted) != 1 || len(list) > 0 {
		t.Errorf("the node is to remove %v %+v %v", deleted, list, err)
	}
	if err := d.isCopy(t.Context(), "n0", "snap"); err != nil {
		t.Error(err)
	}
	if err := d.copyRemoved(t.Context(), "n0", "snap"); err != nil {
		t.Fatal(err)
	}
	if err := d.isCopy(t.Context(), "n0", "snap"); !errors.Is(err, errMoved) {
		t.Errorf("after it was removed: %v", err)
	}
}

// TestRenamedWhileAway: a name that was removed while the snapshot's node was away stays removed when the node is back.
func TestRenamedWhileAway(t *testing.T) {
	t.Parallel()
	d := live(t, register(t, 1, 100))
	s := kept(t, d, "n0", "snap")
	s.Record.Names = []string{"snap", "snap:v2"}
	if _, err := d.recordSnapshot(t.Context(), "n0", s.Record); err != nil {
		t.Fatal(err)
	}
	die(t, d, "n0")
	v := s.Record
	v.Names = []string{"snap"}
	if err := d.renameSnapshot(t.Context(), s, v); err != nil {
		t.Fatal(err)
	}
	if err := d.renameSnapshot(t.Context(), s, v); !errors.Is(err, errMoved) {
		t.Errorf("renamed with names that it does not have any more: %v", err)
	}
	live(t, d)
	if _, err := d.recordSnapshot(t.Context(), "n0", s.Record); !errors.Is(err, errMoved) {
		t.Errorf("the node that was away records the old names: %v", err)
	}
	rows, err := d.snapshotsInBucket(t.Context(), nil)
	if err != nil || len(rows) != 1 || len(rows[0].Record.Names) != 1 || rows[0].Node != "" {
		t.Errorf("the directory has %+v %v", rows, err)
	}
}

// TestNodeForSnapshot: a snapshot is never assigned to a node that cannot fetch it, because that node has no bucket or
// an older version.
func TestNodeForSnapshot(t *testing.T) {
	t.Parallel()
	d := live(t, register(t, 4, 100))
	s := kept(t, d, "n0", "snap")
	s.Image.Needs = travel.Needs{Runtime: "native"}
	builds := map[string]string{"native": ""}
	for node, m := range map[string]travel.Machine{"n1": {Snapshots: true}, "n2": {Builds: builds}, "n3": {Builds: builds, Snapshots: true}} {
		if err := d.setMachine(t.Context(), node, m); err != nil {
			t.Fatal(err)
		}
	}
	if to, err := d.nodeFor(t.Context(), s.cargo(nil), "n2", "n0"); err != nil || to != "n3" {
		t.Errorf("it comes to %q %v", to, err)
	}
	die(t, d, "n3")
	_, err := d.nodeFor(t.Context(), s.cargo(nil), "n2", "n0")
	if hutch.KindOf(err) != hutch.Unavailable || !strings.Contains(err.Error(), "n1: it has no --fleet-bucket") || !strings.Contains(err.Error(), "n2: its version of Hutch fetches no snapshots") {
		t.Errorf("without a node for it: %v", err)
	}
}

// TestOwnBeforeShared: a name means the caller's own snapshot, even if a snapshot that another owner shares is listed
// first.
func TestOwnBeforeShared(t *testing.T) {
	t.Parallel()
	all := []snapshotOn{
		{Snapshot: hutch.Snapshot{ID: "snap-1", Owner: "eve", Name: "base", Shared: true}, node: "n0"},
		{Snapshot: hutch.Snapshot{ID: "snap-2", Owner: "ada", Name: "base"}, node: "n1"},
		{Snapshot: hutch.Snapshot{ID: "snap-3", Owner: "ada", Name: "base"}, node: "n2"},
	}
	var rows []snapshotRow
	for _, s := range all {
		rows = append(rows, snapshotRow{Record: s.Snapshot, Node: s.node})
	}
	for owner, want := range map[string]int{"ada": 1, "eve": 0, "bob": 0} {
		ctx := caller.WithOwner(t.Context(), caller.Owner{ID: owner})
		if i, j := indexSnapshot(ctx, all, "base"), indexSnapshot(ctx, rows, "base"); i != want || j != want {
			t.Errorf("for %s it is number %d, and number %d of the directory's rows", owner, i, j)
		}
		if i := indexSnapshot(ctx, all, "snap-3"); i != 2 {
			t.Errorf("by id, for %s it is number %d", owner, i)
		}
	}
	if i := indexSnapshot(t.Context(), all, "base"); i != 0 { // the server owns all
		t.Errorf("for the server it is number %d", i)
	}
}
