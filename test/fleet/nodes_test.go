package fleet

import (
	"fmt"
	"syscall"
	"testing"

	"hutch"
	"hutch/client"
	"hutch/internal/hutchtest"
)

// TestNodesOverREST: a node is cordoned, drained and removed through another one, over REST. The drain continues after its caller
// has gone, and each change is on record.
func TestNodesOverREST(t *testing.T) {
	t.Parallel()
	a, b, c := newFleet(t, "--fleet-bucket", hutchtest.Dir(t))
	id := placeOn(t, a, "a")
	a.sh(t, id, "echo kept > /workspace/file")
	if n, err := b.CordonNode(t.Context(), "a"); err != nil || n.State != hutch.NodeCordoned || n.Held != 1 {
		t.Fatalf("%+v %v", n, err)
	}
	if _, err := b.RemoveNode(t.Context(), "a", false); hutch.KindOf(err) != hutch.Conflict {
		t.Errorf("a node that is used is removed: %v", err)
	}
	if _, err := b.DrainNode(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the node is empty", func() bool {
		n, err := c.Node(t.Context(), "a")
		if err != nil || n.State != hutch.NodeDraining || len(n.Sandboxes) != int(n.Held) {
			t.Fatalf("%+v %v", n, err)
		}
		return n.Held == 0
	})
	if got := b.sh(t, id, "cat /workspace/file"); got != "kept" {
		t.Errorf("its file: %q", got)
	}
	a.end(t, syscall.SIGTERM)
	if _, err := b.RemoveNode(t.Context(), "a", false); err != nil {
		t.Error(err)
	}
	list, err := c.Nodes(t.Context())
	if err != nil || !list.Fleet || len(list.Nodes) != 2 || list.Nodes[0].ID != "b" {
		t.Errorf("%+v %v", list, err)
	}
	var seen []string
	err = b.Audit(t.Context(), client.AuditQuery{}, false, func(r client.AuditRecord) error {
		if r.Target == "a" {
			seen = append(seen, r.Verb+" "+r.Result)
		}
		return nil
	})
	if want := "[CordonNode ok RemoveNode conflict DrainNode ok RemoveNode ok]"; err != nil || fmt.Sprint(seen) != want {
		t.Errorf("on record: %v %v", seen, err)
	}
}
