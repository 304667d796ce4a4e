package fleet

import (
	"slices"
	"strings"
	"syscall"
	"testing"

	"hutch"
	"hutch/client"
	"hutch/internal/hutchtest"
)

// TestDeletedOwner: what an owner has on other nodes is deleted with the owner. A node that was away does not bring its
// snapshots back, whether the bucket has them or not.
func TestDeletedOwner(t *testing.T) {
	t.Parallel()
	bucket := hutchtest.Dir(t)
	a, b, c := newFleet(t, "--fleet-bucket", bucket)
	minted, err := a.CreateToken(t.Context(), hutch.TokenRequest{Name: "ada"})
	if err != nil {
		t.Fatal(err)
	}
	ada := &node{name: "ada", Client: client.New(a.url, minted.Secret), data: a.data}
	on, away := placeOn(t, ada, "b"), placeOn(t, ada, "c")
	if _, err := ada.Snapshot(t.Context(), on, hutch.SnapshotRequest{Name: "live"}); err != nil {
		t.Fatal(err)
	}
	inBucket, err := ada.Snapshot(t.Context(), away, hutch.SnapshotRequest{Name: "kept"})
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "the bucket has it", func() bool {
		return slices.ContainsFunc(a.snapshotsOf(t, "c"), func(k keptSnapshot) bool { return k.SnapshotID == inBucket.ID && k.InBucket })
	})
	putBack := takeBucket(t, bucket)
	lost, err := ada.Snapshot(t.Context(), away, hutch.SnapshotRequest{Name: "lost"})
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "the directory has it", func() bool {
		return slices.ContainsFunc(a.snapshotsOf(t, "c"), func(k keptSnapshot) bool { return k.SnapshotID == lost.ID })
	})
	if _, err := ada.Destroy(t.Context(), away, true); err != nil {
		t.Fatal(err)
	}
	c.end(t, syscall.SIGKILL)
	eventually(t, "c is away", func() bool { return !a.nodes(t)["c"].Alive })
	putBack()
	if _, err := a.RevokeToken(t.Context(), minted.ID); err != nil {
		t.Fatal(err)
	}
	eventually(t, "a knows that c is away, and deletes the owner's data", func() bool {
		left, err := a.DeleteOwner(t.Context(), minted.ID)
		if err != nil && hutch.KindOf(err) != hutch.Unavailable || left.Sandboxes+left.Snapshots > 0 {
			t.Fatalf("left %+v, %v", left, err)
		}
		return err == nil
	})
	if there := snapshotFolders(t, b); there != nil {
		t.Errorf("b has %v", there)
	}
	c.start(t)
	eventually(t, "c removes what was deleted", func() bool { return len(snapshotFolders(t, c)) == 0 })
	for _, n := range []*node{a, b, c} {
		if list, err := n.Snapshots(t.Context()); err != nil || len(list) > 0 {
			t.Errorf("%s lists %+v, %v", n.name, list, err)
		}
		if list, err := n.Sandboxes(t.Context(), hutch.Filter{}); err != nil || len(list) > 0 {
			t.Errorf("%s lists %+v, %v", n.name, list, err)
		}
	}
	eventually(t, "the bucket has nothing of it", func() bool { return len(objects(t, bucket)) == 0 })
}

// TestDeletedOwnerWithoutBucket: without a bucket, the other nodes do not know the snapshots of a node that is away,
// and the answer to the deletion says so.
func TestDeletedOwnerWithoutBucket(t *testing.T) {
	t.Parallel()
	a, _, c := newFleet(t)
	minted, err := a.CreateToken(t.Context(), hutch.TokenRequest{Name: "ada"})
	if err != nil {
		t.Fatal(err)
	}
	c.end(t, syscall.SIGTERM)
	eventually(t, "c is away", func() bool { return !a.nodes(t)["c"].Alive })
	if _, err := a.RevokeToken(t.Context(), minted.ID); err != nil {
		t.Fatal(err)
	}
	if _, err := a.DeleteOwner(t.Context(), minted.ID); hutch.KindOf(err) != hutch.Unavailable || !strings.Contains(err.Error(), "the node c is away") {
		t.Errorf("while a node is away: %v", err)
	}
	c.start(t)
	eventually(t, "it is deleted when the node is back", func() bool {
		_, err := a.DeleteOwner(t.Context(), minted.ID)
		return err == nil
	})
}
