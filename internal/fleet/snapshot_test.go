package fleet_test

import (
	"context"
	"io"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"hutch"
	"hutch/internal/caller"
	"hutch/internal/engine"
	"hutch/internal/fleet"
	"hutch/internal/objects"
)

// gated is a bucket whose reads and writes of snapshots can be made to wait.
type gated struct {
	objects.Store
	gets, puts atomic.Pointer[gate]
}

// gate reports on come when a call has come, and lets the call pass when open is closed.
type gate struct{ come, open chan struct{} }

func newGate() *gate { return &gate{make(chan struct{}), make(chan struct{})} }

func (g *gated) wait(ctx context.Context, at *atomic.Pointer[gate], key string) {
	if gate := at.Load(); gate != nil && strings.Contains(key, "snapshot-") && at.CompareAndSwap(gate, nil) {
		close(gate.come)
		select {
		case <-gate.open:
		case <-ctx.Done():
		}
	}
}

func (g *gated) Get(ctx context.Context, key string) (io.ReadCloser, error) {
	g.wait(ctx, &g.gets, key)
	return g.Store.Get(ctx, key)
}

func (g *gated) Put(ctx context.Context, key string, r io.Reader) error {
	g.wait(ctx, &g.puts, key)
	return g.Store.Put(ctx, key, r)
}

// newBucketBed makes a fleet with a bucket, whose nodes each have capacity for room awake sandboxes.
func newBucketBed(t *testing.T, nodes int, room int64, change ...func(i int, o *fleet.Options)) (*bed, *gated) {
	t.Helper()
	bucket := &gated{Store: objects.Folder(t.TempDir())}
	return newBed(t, nodes, append(change, func(_ int, o *fleet.Options) {
		o.Room.Sandboxes = room
		o.Travel = &fleet.Travel{Bucket: bucket, Key: make([]byte, 32), Engine: o.Here.(*engine.Engine)}
	})...), bucket
}

// on returns the index of the node whose disk has a snapshot, or -1.
func (b *bed) on(t *testing.T, snapshot string) int {
	t.Helper()
	return slices.IndexFunc(b.nodes, func(m *member) bool {
		list, err := m.engine.Snapshots(t.Context())
		if err != nil {
			t.Error(err)
		}
		return slices.ContainsFunc(list, func(s hutch.Snapshot) bool { return s.ID == snapshot })
	})
}

// made makes a sandbox and a snapshot of it.
func (b *bed) made(t *testing.T, name string) (s hutch.Snapshot, node int) {
	t.Helper()
	sb, err := b.nodes[0].Create(t.Context(), hutch.CreateRequest{})
	if err == nil {
		s, err = b.nodes[0].Snapshot(t.Context(), sb.ID, hutch.SnapshotRequest{Name: name})
	}
	if err != nil {
		t.Fatal(err)
	}
	return s, b.on(t, s.ID)
}

// inBucket waits until the bucket has a snapshot of a node.
func (b *bed) inBucket(t *testing.T, node int, snapshot string) {
	t.Helper()
	eventually(t, "the bucket has the snapshot", func() bool {
		list, err := b.dir.KeptSnapshots(t.Context(), b.nodes[node].id.Node)
		return err == nil && slices.ContainsFunc(list, func(s fleet.KeptSnapshot) bool { return s.ID == snapshot && s.InBucket })
	})
}

// TestSnapshotOfAFullNode: when the node of a snapshot is full, a sandbox from the snapshot is made on another node.
func TestSnapshotOfAFullNode(t *testing.T) {
	t.Parallel()
	b, _ := newBucketBed(t, 2, 2)
	s, home := b.made(t, "base")
	b.inBucket(t, home, s.ID)
	for i := range 3 { // one beside the snapshot's origin, and two on the other node
		sb, err := b.nodes[i%2].Create(t.Context(), hutch.CreateRequest{Snapshot: "base"})
		if err != nil {
			t.Fatalf("sandbox %d: %v", i, err)
		}
		if !has(t, b.nodes[home], sb.ID) && i == 0 || has(t, b.nodes[home], sb.ID) && i > 0 {
			t.Errorf("sandbox %d is on another node", i)
		}
	}
	if _, err := b.nodes[0].Create(t.Context(), hutch.CreateRequest{Snapshot: "base"}); hutch.KindOf(err) != hutch.Exhausted {
		t.Errorf("in a full fleet: %v", err)
	}
	for i, n := range b.nodes {
		list, err := n.Snapshots(t.Context())
		if err != nil || len(list) != 1 || list[0].ID != s.ID || list[0].Name != "base" {
			t.Errorf("node %d lists %+v %v", i, list, err)
		}
	}
	// Deleting the snapshot ignores the old copy on the first node.
	if err := b.nodes[home].DeleteSnapshot(t.Context(), "base"); err != nil {
		t.Fatal(err)
	}
	for i, n := range b.nodes {
		if list, err := n.Snapshots(t.Context()); err != nil || len(list) > 0 {
			t.Errorf("node %d lists %+v %v", i, list, err)
		}
	}
}

func has(t *testing.T, m *member, id string) bool {
	t.Helper()
	list, err := m.engine.Sandboxes(t.Context(), hutch.Filter{ID: id})
	if err != nil {
		t.Error(err)
	}
	return len(list) > 0
}

// drainedSnapshot returns a snapshot that only the bucket has, and a node that is not drained.
func drainedSnapshot(t *testing.T, b *bed) (s hutch.Snapshot, other *member) {
	t.Helper()
	s, home := b.made(t, "base")
	if _, err := b.dir.DrainNode(t.Context(), b.nodes[home].id.Node); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the snapshot has left its node", func() bool { return b.on(t, s.ID) < 0 })
	return s, b.nodes[1-home]
}

// TestNodesCountSnapshots: the list of nodes has the number of snapshots on each, with and without a bucket.
func TestNodesCountSnapshots(t *testing.T) {
	t.Parallel()
	counts := func(b *bed) [2]int64 {
		t.Helper()
		list, err := b.dir.Nodes(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return [2]int64{list.Nodes[0].Snapshots, list.Nodes[1].Snapshots}
	}
	with, _ := newBucketBed(t, 2, 100)
	for what, b := range map[string]*bed{"with a bucket": with, "without": newBed(t, 2)} {
		_, home := b.made(t, "base")
		want := [2]int64{}
		want[home]++
		eventually(t, what+", it is counted", func() bool { return counts(b) == want })
		if n, err := b.dir.Node(t.Context(), b.nodes[home].id.Node); err != nil || n.Snapshots != 1 {
			t.Errorf("%s: %+v %v", what, n, err)
		}
		if err := b.nodes[0].DeleteSnapshot(t.Context(), "base"); err != nil {
			t.Fatal(err)
		}
		eventually(t, what+", it is not counted", func() bool { return counts(b) == [2]int64{} })
	}
}

// TestDeletedWhileFetched: a snapshot that is deleted while a node fetches it is nowhere afterwards.
func TestDeletedWhileFetched(t *testing.T) {
	t.Parallel()
	b, bucket := newBucketBed(t, 2, 100)
	s, other := drainedSnapshot(t, b)
	gate := newGate()
	bucket.gets.Store(gate)
	failed := make(chan error, 1)
	go func() {
		_, err := other.Create(t.Context(), hutch.CreateRequest{Snapshot: "base"})
		failed <- err
	}()
	<-gate.come
	for _, n := range b.nodes {
		if list, err := n.Snapshots(t.Context()); err != nil || len(list) != 1 {
			t.Errorf("while it is fetched: %+v %v", list, err)
		}
	}
	if err := other.DeleteSnapshot(t.Context(), s.ID); err != nil {
		t.Errorf("deleted: %v", err)
	}
	close(gate.open)
	if err := <-failed; hutch.KindOf(err) != hutch.NotFound || !strings.Contains(err.Error(), "was deleted while") {
		t.Errorf("a sandbox of it: %v", err)
	}
	for _, n := range b.nodes {
		if list, err := n.Snapshots(t.Context()); err != nil || len(list) > 0 {
			t.Errorf("afterwards: %+v %v", list, err)
		}
	}
	if at := b.on(t, s.ID); at >= 0 {
		t.Errorf("node %d has it", at)
	}
	eventually(t, "the bucket does not have it", func() bool {
		keys, err := bucket.List(t.Context(), "")
		return err == nil && !slices.ContainsFunc(keys, func(k string) bool { return strings.Contains(k, "snapshot-") })
	})
}

type imageVerbs = hutch.Images

// snapshotImages is a hutch.Images that can only make images from the snapshots of its node.
type snapshotImages struct {
	imageVerbs
	e *engine.Engine
}

func (i snapshotImages) CommitSnapshot(ctx context.Context, snapshot string, req hutch.CommitRequest) (hutch.Image, error) {
	list, err := i.e.Snapshots(ctx)
	if err == nil && !slices.ContainsFunc(list, func(s hutch.Snapshot) bool { return s.IsCalled(snapshot) }) {
		err = hutch.Errorf(hutch.NotFound, "there is no snapshot %q", snapshot)
	}
	return hutch.Image{ID: req.Name}, err
}

// TestCommittedWhileFetched: a commit of a snapshot that a node is still fetching, called on any node, waits until that
// node has the snapshot.
func TestCommittedWhileFetched(t *testing.T) {
	t.Parallel()
	b, bucket := newBucketBed(t, 2, 100)
	_, other := drainedSnapshot(t, b)
	gate := newGate()
	bucket.gets.Store(gate)
	failed := make(chan error, 1+len(b.nodes))
	go func() {
		_, err := other.Create(t.Context(), hutch.CreateRequest{Snapshot: "base"})
		failed <- err
	}()
	<-gate.come
	for _, n := range b.nodes {
		go func() {
			_, err := n.Images(snapshotImages{e: n.engine}).CommitSnapshot(t.Context(), "base", hutch.CommitRequest{Name: "localhost/kept"})
			failed <- err
		}()
	}
	select {
	case err := <-failed:
		t.Errorf("while it is fetched: %v", err)
		failed <- nil
	case <-time.After(200 * time.Millisecond):
	}
	close(gate.open)
	for range cap(failed) {
		if err := <-failed; err != nil {
			t.Error(err)
		}
	}
}

// TestDeletedWhileWritten: if a snapshot is deleted while it is written to the bucket, its object is removed.
func TestDeletedWhileWritten(t *testing.T) {
	t.Parallel()
	b, bucket := newBucketBed(t, 1, 100)
	gate := newGate()
	bucket.puts.Store(gate)
	_, _ = b.made(t, "base")
	<-gate.come
	if err := b.nodes[0].DeleteSnapshot(t.Context(), "base"); err != nil {
		t.Fatal(err)
	}
	close(gate.open)
	eventually(t, "the bucket does not have it", func() bool {
		keys, err := bucket.List(t.Context(), "")
		return err == nil && !slices.ContainsFunc(keys, func(k string) bool { return strings.Contains(k, "snapshot-") })
	})
	if list, err := b.dir.KeptSnapshots(t.Context(), b.nodes[0].id.Node); err != nil || len(list) > 0 {
		t.Errorf("the directory has %+v %v", list, err)
	}
}

// TestSnapshotsInTheBucketCount: snapshots on no node count for the names and limits of their owner.
func TestSnapshotsInTheBucketCount(t *testing.T) {
	t.Parallel()
	b, _ := newBucketBed(t, 2, 100)
	s, other := drainedSnapshot(t, b)
	sb, err := other.Create(t.Context(), hutch.CreateRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := other.Snapshot(t.Context(), sb.ID, hutch.SnapshotRequest{Name: "base"}); hutch.KindOf(err) != hutch.Conflict {
		t.Errorf("a second snapshot of that name: %v", err)
	}
	if err := b.dir.Resize(t.Context(), s.ID, 20<<30); err != nil {
		t.Fatal(err)
	}
	if _, err := other.Snapshot(t.Context(), sb.ID, hutch.SnapshotRequest{}); hutch.KindOf(err) != hutch.Exhausted {
		t.Errorf("a snapshot beyond the limit: %v", err)
	}
}

// TestSnapshotsWaitAtTheEnd: a node that ends and puts its sandboxes to sleep waits until its snapshots are in the bucket.
func TestSnapshotsWaitAtTheEnd(t *testing.T) {
	t.Parallel()
	b, bucket := newBucketBed(t, 1, 100)
	gate := newGate()
	bucket.puts.Store(gate)
	s, _ := b.made(t, "base")
	<-gate.come
	ended := make(chan error, 1)
	go func() { ended <- b.nodes[0].Sleep(t.Context(), func(context.Context) error { return nil }) }()
	select {
	case <-ended:
		t.Error("it did not wait")
	case <-time.After(200 * time.Millisecond):
	}
	close(gate.open)
	if err := <-ended; err != nil {
		t.Error(err)
	}
	list, err := b.dir.KeptSnapshots(t.Context(), b.nodes[0].id.Node)
	if err != nil || len(list) != 1 || list[0].ID != s.ID || !list[0].InBucket {
		t.Errorf("the directory has %+v %v", list, err)
	}
}

// TestBadObjectKeepsTheCopy: if the bucket has lost a snapshot before another node could fetch it, the node that had it
// before keeps its copy, and writes it to the bucket again.
func TestBadObjectKeepsTheCopy(t *testing.T) {
	t.Parallel()
	b, bucket := newBucketBed(t, 2, 1)
	s, home := b.made(t, "base") // the snapshot's node is full
	b.inBucket(t, home, s.ID)
	if !slices.ContainsFunc(snapshotKeys(t, bucket), func(key string) bool { return bucket.Delete(t.Context(), key) == nil }) {
		t.Fatal("the bucket has no snapshot")
	}
	if _, err := b.nodes[0].Create(t.Context(), hutch.CreateRequest{Snapshot: "base"}); hutch.KindOf(err) != hutch.Unavailable || !strings.Contains(err.Error(), "has lost the snapshot") {
		t.Fatalf("a sandbox of a snapshot that is lost: %v", err)
	}
	b.nodes[home].LookForOldCopies()
	eventually(t, "the bucket has the snapshot again", func() bool {
		key, err := b.dir.KeyOfSnapshot(t.Context(), s.ID)
		return err == nil && slices.Contains(snapshotKeys(t, bucket), key)
	})
	if at := b.on(t, s.ID); at != home {
		t.Errorf("node %d has it, and not %d", at, home)
	}
	sb, err := b.nodes[0].Create(t.Context(), hutch.CreateRequest{Snapshot: "base"})
	if err != nil || !has(t, b.nodes[1-home], sb.ID) {
		t.Errorf("a sandbox on the other node: %+v %v", sb, err)
	}
	b.nodes[home].LookForOldCopies()
	eventually(t, "the old copy is removed", func() bool { return b.on(t, s.ID) == 1-home })
}

// snapshotKeys are the keys of the snapshots in a bucket.
func snapshotKeys(t *testing.T, bucket objects.Store) []string {
	t.Helper()
	keys, err := bucket.List(t.Context(), "")
	if err != nil {
		t.Error(err)
	}
	return slices.DeleteFunc(keys, func(key string) bool { return !strings.Contains(key, "snapshot-") })
}

// TestMovedWhileFetched: if a node gets full while it fetches a snapshot, another node takes the snapshot for the next
// sandbox, and the first sandbox is still made.
func TestMovedWhileFetched(t *testing.T) {
	t.Parallel()
	b, bucket := newBucketBed(t, 3, 1)
	s, home := b.made(t, "base")
	b.inBucket(t, home, s.ID)
	other := b.nodes[(home+1)%3]
	gate := newGate()
	bucket.gets.Store(gate)
	type answer struct {
		id  string
		err error
	}
	first := make(chan answer, 1)
	go func() {
		sb, err := other.Create(t.Context(), hutch.CreateRequest{Snapshot: "base"}) // the snapshot's node is full
		first <- answer{sb.ID, err}
	}()
	<-gate.come
	second, err := other.Create(t.Context(), hutch.CreateRequest{Snapshot: "base"})
	if err != nil || !has(t, b.nodes[(home+2)%3], second.ID) {
		t.Errorf("the second sandbox: %+v %v", second, err)
	}
	close(gate.open)
	if a := <-first; a.err != nil || !has(t, other, a.id) {
		t.Errorf("the first sandbox: %v", a.err)
	}
	for i, n := range b.nodes {
		if list, err := n.Snapshots(t.Context()); err != nil || len(list) != 1 {
			t.Errorf("node %d lists %+v %v", i, list, err)
		}
	}
}

// TestOwnSnapshotInTheBucket: on every node, a caller's own snapshot comes before a shared one of the same name, even
// if only the bucket has the caller's.
func TestOwnSnapshotInTheBucket(t *testing.T) {
	t.Parallel()
	b, _ := newBucketBed(t, 2, 100)
	ada, eve := caller.WithOwner(t.Context(), caller.Owner{ID: "ada"}), caller.WithOwner(t.Context(), caller.Owner{ID: "eve"})
	snapshot := func(ctx context.Context, at *member, req hutch.SnapshotRequest) (s hutch.Snapshot, home int) {
		t.Helper()
		sb, err := at.engine.Create(ctx, hutch.CreateRequest{ID: hutch.NewID("sb")})
		if err == nil {
			s, err = at.engine.Snapshot(ctx, sb.ID, req)
		}
		if err != nil {
			t.Fatal(err)
		}
		return s, b.on(t, s.ID)
	}
	own, home := snapshot(ada, b.nodes[0], hutch.SnapshotRequest{Name: "base"})
	b.inBucket(t, home, own.ID)
	if _, err := b.dir.DrainNode(t.Context(), b.nodes[home].id.Node); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the snapshot has left its node", func() bool { return b.on(t, own.ID) < 0 })
	shared, _ := snapshot(eve, b.nodes[1], hutch.SnapshotRequest{Name: "base", Shared: true})
	for i, n := range b.nodes {
		sb, err := n.Create(ada, hutch.CreateRequest{Snapshot: "base"})
		if err != nil || sb.Snapshot != own.ID {
			t.Errorf("through node %d the sandbox is of %q, and not of %q: %v", i, sb.Snapshot, own.ID, err)
		}
	}
	if err := b.nodes[1].DeleteSnapshot(ada, "base"); err != nil {
		t.Errorf("deleted: %v", err)
	}
	if list, err := b.nodes[0].Snapshots(ada); err != nil || len(list) != 1 || list[0].ID != shared.ID {
		t.Errorf("afterwards: %+v %v", list, err)
	}
}

// TestSharedSnapshotStays: taints and volumes make a snapshot move to another node if its owner calls, but not if it is
// only shared with the caller.
func TestSharedSnapshotStays(t *testing.T) {
	t.Parallel()
	b, _ := newBucketBed(t, 2, 100, func(i int, o *fleet.Options) {
		if i == 0 {
			o.Taints = map[string]string{"gpu": "yes"}
		}
	})
	ada, eve := caller.WithOwner(t.Context(), caller.Owner{ID: "ada"}), caller.WithOwner(t.Context(), caller.Owner{ID: "eve"})
	sb, err := b.nodes[0].engine.Create(ada, hutch.CreateRequest{ID: "origin"})
	var s hutch.Snapshot
	if err == nil {
		s, err = b.nodes[0].engine.Snapshot(ada, sb.ID, hutch.SnapshotRequest{Name: "base", Shared: true})
	}
	if err == nil {
		_, err = b.nodes[1].volumes.CreateVolume(eve, hutch.VolumeRequest{Name: "data"})
	}
	if err != nil {
		t.Fatal(err)
	}
	b.inBucket(t, 0, s.ID)
	tolerant := hutch.CreateRequest{Snapshot: s.ID, Tolerations: map[string]string{"gpu": "yes"}}
	for i, n := range b.nodes {
		_, err := n.Create(eve, hutch.CreateRequest{Snapshot: s.ID})
		if hutch.KindOf(err) != hutch.Invalid || !strings.Contains(err.Error(), "a snapshot that is shared with you stays on its node: give tolerations") {
			t.Errorf("for another owner, through node %d: %v", i, err)
		}
		_, err = n.Create(eve, hutch.CreateRequest{Snapshot: s.ID, Volumes: []hutch.VolumeMount{mount("data")}})
		if hutch.KindOf(err) != hutch.Conflict || !strings.Contains(err.Error(), "only a sandbox of its owner makes it come there") {
			t.Errorf("with volumes of another owner, through node %d: %v", i, err)
		}
		if sb, err := n.Create(eve, tolerant); err != nil || b.with(eve, t, sb.ID) != 0 {
			t.Errorf("on its node, through node %d: %+v %v", i, sb, err)
		}
	}
	if sb, err := b.nodes[0].Create(ada, hutch.CreateRequest{Snapshot: s.ID}); err != nil || b.with(ada, t, sb.ID) != 1 {
		t.Errorf("for its owner: %+v %v", sb, err)
	}
}

// TestSharedSnapshotOfAFullNode: from a full node, a snapshot also moves for a caller with whom it is shared.
func TestSharedSnapshotOfAFullNode(t *testing.T) {
	t.Parallel()
	b, _ := newBucketBed(t, 2, 1)
	ada, eve := caller.WithOwner(t.Context(), caller.Owner{ID: "ada"}), caller.WithOwner(t.Context(), caller.Owner{ID: "eve"})
	sb, err := b.nodes[0].Create(ada, hutch.CreateRequest{})
	var s hutch.Snapshot
	if err == nil {
		s, err = b.nodes[0].Snapshot(ada, sb.ID, hutch.SnapshotRequest{Name: "base", Shared: true})
	}
	if err != nil {
		t.Fatal(err)
	}
	home := b.on(t, s.ID)
	b.inBucket(t, home, s.ID)
	if sb, err := b.nodes[home].Create(eve, hutch.CreateRequest{Snapshot: s.ID}); err != nil || b.with(eve, t, sb.ID) != 1-home {
		t.Errorf("for another owner: %+v %v", sb, err)
	}
}

// with returns the index of the node with a sandbox, or -1.
func (b *bed) with(ctx context.Context, t *testing.T, id string) int {
	t.Helper()
	return slices.IndexFunc(b.nodes, func(m *member) bool {
		list, err := m.engine.Sandboxes(ctx, hutch.Filter{ID: id})
		if err != nil {
			t.Error(err)
		}
		return len(list) > 0
	})
}

// TestExistingSandboxOfAMovedSnapshot: a create with the id of an existing sandbox returns it, on whichever node its snapshot
// is now, and does not move the snapshot.
func TestExistingSandboxOfAMovedSnapshot(t *testing.T) {
	t.Parallel()
	b, _ := newBucketBed(t, 2, 2)
	s, home := b.made(t, "base")
	b.inBucket(t, home, s.ID)
	var ids []string
	for range 2 { // one beside the snapshot's origin; then the node is full
		sb, err := b.nodes[0].Create(t.Context(), hutch.CreateRequest{Snapshot: "base"})
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, sb.ID)
	}
	existing := func() {
		t.Helper()
		for i, n := range b.nodes {
			if sb, err := n.Create(t.Context(), hutch.CreateRequest{ID: ids[0], Snapshot: "base"}); err != nil || sb.ID != ids[0] || !has(t, b.nodes[home], ids[0]) {
				t.Errorf("through node %d: %+v %v", i, sb, err)
			}
		}
	}
	existing()
	b.nodes[home].LookForOldCopies()
	eventually(t, "the old copy is removed", func() bool {
		list, err := b.nodes[home].engine.Snapshots(t.Context())
		return err == nil && len(list) == 0
	})
	existing()
	if _, err := b.dir.DrainNode(t.Context(), b.nodes[1-home].id.Node); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the snapshot is on no node", func() bool { return b.on(t, s.ID) < 0 })
	existing()
	if at := b.on(t, s.ID); at >= 0 {
		t.Errorf("node %d has fetched it", at)
	}
}
