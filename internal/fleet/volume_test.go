package fleet_test

import (
	"slices"
	"strings"
	"testing"

	"hutch"
	"hutch/internal/fleet"
)

// mount is a volume of a new sandbox.
func mount(name string) hutch.VolumeMount { return hutch.VolumeMount{Name: name, Path: "/" + name} }

func (m *member) createVolume(t *testing.T, name string) {
	t.Helper()
	if _, err := m.volumes.CreateVolume(t.Context(), hutch.VolumeRequest{Name: name}); err != nil {
		t.Fatal(err)
	}
}

// TestNodeOfVolumes: a sandbox with volumes is made on the node of the volumes, whichever node is called.
func TestNodeOfVolumes(t *testing.T) {
	t.Parallel()
	b := newBed(t, 3)
	b.nodes[1].createVolume(t, "one")
	b.nodes[1].createVolume(t, "two")
	b.nodes[2].createVolume(t, "three")
	for i, n := range b.nodes {
		sb, err := n.Create(t.Context(), hutch.CreateRequest{Volumes: []hutch.VolumeMount{mount("one"), mount("two")}})
		if err != nil || !has(t, b.nodes[1], sb.ID) {
			t.Fatalf("through node %d: %+v %v", i, sb, err)
		}
		if _, err := n.Destroy(t.Context(), sb.ID, true); err != nil {
			t.Fatal(err)
		}
		_, err = n.Create(t.Context(), hutch.CreateRequest{Volumes: []hutch.VolumeMount{mount("one"), mount("three")}})
		if hutch.KindOf(err) != hutch.Conflict || !strings.Contains(err.Error(), `"three" on the node node-c`) {
			t.Errorf("volumes of two nodes, through node %d: %v", i, err)
		}
		_, err = n.Create(t.Context(), hutch.CreateRequest{Volumes: []hutch.VolumeMount{mount("one"), mount("none")}})
		if hutch.KindOf(err) != hutch.NotFound {
			t.Errorf("a volume that no node has, through node %d: %v", i, err)
		}
	}
}

// TestVolumesOfOneName: if several other nodes have volumes of the requested name, the create is refused. If the called
// node has such a volume itself, it uses that.
func TestVolumesOfOneName(t *testing.T) {
	t.Parallel()
	b := newBed(t, 3)
	b.nodes[1].createVolume(t, "data")
	b.nodes[2].createVolume(t, "data")
	req := hutch.CreateRequest{ID: "box", Volumes: []hutch.VolumeMount{mount("data")}}
	if _, err := b.nodes[0].Create(t.Context(), req); hutch.KindOf(err) != hutch.Conflict || !strings.Contains(err.Error(), "node-b, node-c") {
		t.Errorf("through a node without them: %v", err)
	}
	if _, err := b.nodes[2].Create(t.Context(), req); err != nil || !has(t, b.nodes[2], "box") {
		t.Errorf("through a node with them: %v", err)
	}
	if sb, err := b.nodes[0].Create(t.Context(), req); err != nil || sb.ID != "box" {
		t.Errorf("one that exists: %+v %v", sb, err)
	}
}

// TestVolumeOfASilentNode: a volume whose node is away or does not answer is not reported as missing.
func TestVolumeOfASilentNode(t *testing.T) {
	t.Parallel()
	b := newBed(t, 3, func(i int, o *fleet.Options) {
		if i == 1 {
			o.Address = "127.0.0.1:1" // no process listens there
		}
	})
	a, c := b.nodes[0], b.nodes[2]
	c.createVolume(t, "data")
	refused := func(what, nodes string) {
		t.Helper()
		_, err := a.Create(t.Context(), hutch.CreateRequest{Volumes: []hutch.VolumeMount{mount("other")}})
		if hutch.KindOf(err) != hutch.Unavailable || !strings.Contains(err.Error(), "these nodes do not answer: "+nodes+".") {
			t.Errorf("%s: %v", what, err)
		}
	}
	refused("a silent node", "node-b")
	if err := c.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	eventually(t, "node-c is away", func() bool {
		return slices.ContainsFunc(a.Nodes(), func(n fleet.NodeInfo) bool { return n.ID == "node-c" && !n.Alive })
	})
	refused("and one that is away", "node-b, node-c")
}

// TestSnapshotComesToVolumes: if the snapshot and the volumes of a new sandbox are on different nodes, the sandbox is
// made on the node of the volumes, and the snapshot comes there through the bucket.
func TestSnapshotComesToVolumes(t *testing.T) {
	t.Parallel()
	b, _ := newBucketBed(t, 2, 100)
	s, home := b.made(t, "base")
	b.inBucket(t, home, s.ID)
	other := b.nodes[1-home]
	other.createVolume(t, "data")
	req := hutch.CreateRequest{ID: "box", Snapshot: "base", Volumes: []hutch.VolumeMount{mount("data")}}
	for i, n := range b.nodes { // the second call finds that sandbox
		sb, err := n.Create(t.Context(), req)
		if err != nil || !has(t, other, sb.ID) {
			t.Errorf("through node %d: %+v %v", i, sb, err)
		}
	}
	// A snapshot that only the bucket has also comes to the node of the volumes.
	if _, err := b.dir.DrainNode(t.Context(), other.id.Node); err != nil {
		t.Fatal(err)
	}
	b.nodes[home].LookForOldCopies()
	eventually(t, "the snapshot has left its node", func() bool { return b.on(t, s.ID) < 0 })
	if _, err := other.Destroy(t.Context(), "box", true); err != nil {
		t.Fatal(err)
	}
	if _, err := b.dir.UncordonNode(t.Context(), other.id.Node); err != nil {
		t.Fatal(err)
	}
	if sb, err := b.nodes[home].Create(t.Context(), req); err != nil || !has(t, other, sb.ID) {
		t.Errorf("of a snapshot that only the bucket has: %+v %v", sb, err)
	}
}

// TestSnapshotStaysFromVolumes: without a bucket, a snapshot and volumes on two nodes cannot be used together, and the
// error says so.
func TestSnapshotStaysFromVolumes(t *testing.T) {
	t.Parallel()
	b := newBed(t, 2)
	s, home := b.made(t, "base")
	b.nodes[1-home].createVolume(t, "data")
	for i, n := range b.nodes {
		_, err := n.Create(t.Context(), hutch.CreateRequest{Snapshot: s.ID, Volumes: []hutch.VolumeMount{mount("data")}})
		if hutch.KindOf(err) != hutch.Conflict || !strings.Contains(err.Error(), "the fleet has no bucket") || !strings.Contains(err.Error(), b.nodes[home].id.Node) {
			t.Errorf("through node %d: %v", i, err)
		}
	}
}
