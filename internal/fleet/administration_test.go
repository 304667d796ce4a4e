package fleet_test

import (
	"strings"
	"testing"

	"hutch"
	"hutch/internal/fleet"
)

// TestAdministration: every node can list and change all nodes. A drain without a bucket reports for each sandbox why
// it stays.
func TestAdministration(t *testing.T) {
	t.Parallel()
	b := newBed(t, 3)
	nodes := b.nodes[1].Administration()
	b.only(t, "node-a")
	sb, err := b.nodes[2].Create(t.Context(), hutch.CreateRequest{Limits: hutch.Limits{Memory: 64}})
	if err != nil {
		t.Fatal(err)
	}
	list, err := nodes.Nodes(t.Context())
	if err != nil || !list.Fleet || len(list.Nodes) != 3 {
		t.Fatalf("%+v %v", list, err)
	}
	a, other := list.Nodes[0], list.Nodes[1]
	if a.ID != "node-a" || !a.Alive || a.State != hutch.NodeReady || a.Held != 1 || a.Promised.Memory != 64 || a.Started == nil || a.Started.Before(a.Joined) || a.Version != "test" || a.Sandboxes != nil {
		t.Errorf("%+v", a)
	}
	if other.State != hutch.NodeCordoned || other.Held != 0 {
		t.Errorf("%+v", other)
	}
	if n, err := nodes.DrainNode(t.Context(), "node-a"); err != nil || n.State != hutch.NodeDraining || n.Held != 1 {
		t.Errorf("a drain: %+v %v", n, err)
	}
	eventually(t, "the node says what stays", func() bool {
		a, err = nodes.Node(t.Context(), "node-a")
		return err == nil && a.Stuck == 1
	})
	if len(a.Sandboxes) != 1 || a.Sandboxes[0].SandboxID != sb.ID || !strings.Contains(a.Sandboxes[0].Stays, "--fleet-bucket") {
		t.Errorf("what stays: %+v", a.Sandboxes)
	}
	if n, err := nodes.UncordonNode(t.Context(), "node-a"); err != nil || n.State != hutch.NodeReady || n.Stuck != 0 {
		t.Errorf("a drain that is cancelled: %+v %v", n, err)
	}
	if _, err := nodes.RemoveNode(t.Context(), "node-a", false); hutch.KindOf(err) != hutch.Conflict {
		t.Errorf("a node that is used is removed: %v", err)
	}
	for what, err := range map[string]error{"read": second(nodes.Node(t.Context(), "none")), "cordoned": second(nodes.CordonNode(t.Context(), "none")), "removed": second(nodes.RemoveNode(t.Context(), "none", true))} {
		if hutch.KindOf(err) != hutch.NotFound {
			t.Errorf("an unknown node is %s: %v", what, err)
		}
	}
	if gone, err := nodes.RemoveNode(t.Context(), "node-a", true); err != nil || gone != (hutch.RemovedNode{Node: "node-a", Freed: 1}) {
		t.Errorf("by force: %+v %v", gone, err)
	}
	eventually(t, "a node that was removed administers no others", func() bool {
		return hutch.KindOf(second(b.nodes[0].Administration().Nodes(t.Context()))) == hutch.Denied
	})
	if _, err := nodes.RemoveNode(t.Context(), "node-c", false); err != nil {
		t.Error(err)
	}
	if _, err := nodes.RemoveNode(t.Context(), "node-b", false); hutch.KindOf(err) != hutch.Conflict || !strings.Contains(err.Error(), "only") {
		t.Errorf("the last node: %v", err)
	}
}

func second[T any](_ T, err error) error { return err }

// TestAlone: a server that is not a fleet is one node, which cannot be changed.
func TestAlone(t *testing.T) {
	t.Parallel()
	e := newEngine(t)
	nodes := fleet.Alone(hutch.Node{ID: "box", Version: "test", Room: hutch.NodeRoom{Memory: 1024}}, e)
	for range 2 {
		if _, err := e.Create(t.Context(), hutch.CreateRequest{Limits: hutch.Limits{Memory: 64, CPU: 2}}); err != nil {
			t.Fatal(err)
		}
	}
	list, err := nodes.Nodes(t.Context())
	if err != nil || list.Fleet || len(list.Nodes) != 1 {
		t.Fatalf("%+v %v", list, err)
	}
	if n := list.Nodes[0]; n.State != hutch.NodeReady || !n.Alive || n.Held != 2 || n.Promised != (hutch.NodeRoom{Memory: 128, CPU: 4, Sandboxes: 2}) || n.Sandboxes != nil {
		t.Errorf("%+v", n)
	}
	if n, err := nodes.Node(t.Context(), "box"); err != nil || len(n.Sandboxes) != 2 || !n.Sandboxes[0].Awake {
		t.Errorf("%+v %v", n, err)
	}
	if _, err := nodes.Node(t.Context(), "other"); hutch.KindOf(err) != hutch.NotFound {
		t.Error(err)
	}
	for _, change := range []func() error{
		func() error { return second(nodes.CordonNode(t.Context(), "box")) },
		func() error { return second(nodes.UncordonNode(t.Context(), "box")) },
		func() error { return second(nodes.DrainNode(t.Context(), "box")) },
		func() error { return second(nodes.RemoveNode(t.Context(), "box", true)) },
	} {
		if err := change(); hutch.KindOf(err) != hutch.Unsupported || !strings.Contains(err.Error(), "--fleet-listen") {
			t.Error(err)
		}
	}
}
