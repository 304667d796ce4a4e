package fleet

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"hutch"
	"hutch/internal/hutchtest"
	"hutch/internal/hutchtest/pgtest"
)

type pairs = map[string]string

// createdOn makes a sandbox, and fails if it is on another node.
func (n *node) createdOn(t *testing.T, on string, req hutch.CreateRequest) string {
	t.Helper()
	if req.Snapshot == "" {
		req.Limits = hutch.Limits{Memory: 64}
	}
	sb, err := n.Create(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	n.isOn(t, on, sb.ID)
	return sb.ID
}

func (n *node) isOn(t *testing.T, on, id string) {
	t.Helper()
	if !slices.ContainsFunc(n.heldBy(t, on), func(h held) bool { return h.SandboxID == id }) {
		t.Errorf("%s is not on %s", id, on)
	}
}

// TestLabels: sandboxes are created on nodes with the labels that they ask for and without taints that they do not
// tolerate, and move only to such nodes.
func TestLabels(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		hutchtest.Skip(t, "the runtime native needs root here")
	}
	bucket := "--fleet-bucket=" + hutchtest.Dir(t)
	all := newFleetOn(t, pgtest.New(t), map[string][]string{
		"a": {bucket}, "b": {bucket, "--node-label", "zone=b"},
		"c": {bucket, "--node-label", "zone=b,gpu=yes", "--node-taint", "gpu=yes"},
	})
	a, b := all[0], all[1]
	for _, name := range []string{"b", "c"} {
		eventually(t, "a sees "+name, func() bool { return a.nodes(t)[name].Alive })
	}
	strict := a.createdOn(t, "b", hutch.CreateRequest{NodeSelector: pairs{"zone": "b"}})
	tolerant := a.createdOn(t, "c", hutch.CreateRequest{NodeSelector: pairs{"gpu": "yes"}, Tolerations: pairs{"gpu": "yes"}})
	a.must(t, "node", "cordon", "a")
	free := b.createdOn(t, "b", hutch.CreateRequest{})
	a.must(t, "node", "uncordon", "a")
	forks, err := a.Fork(t.Context(), strict, hutch.ForkRequest{})
	if err != nil || len(forks) != 1 || forks[0].NodeSelector["zone"] != "b" {
		t.Fatalf("its copy: %+v %v", forks, err)
	}
	a.isOn(t, "b", forks[0].ID)

	for want, selector := range map[string]pairs{"zone=c": {"zone": "c"}, "only taints that tolerations has": {"gpu": "yes"}} {
		if _, err := a.Create(t.Context(), hutch.CreateRequest{NodeSelector: selector}); hutch.KindOf(err) != hutch.Invalid || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v", selector, err)
		}
	}
	ls := strings.Join(strings.Fields(a.must(t, "node", "ls")), " ")
	if !strings.Contains(ls, "TAINTS") || !strings.Contains(ls, "zone=b - c ") || !strings.Contains(ls, "gpu=yes,zone=b gpu=yes") {
		t.Errorf("the list: %s", ls)
	}

	// A snapshot follows its sandboxes to a node that they can use.
	on := placeOn(t, a, "a")
	a.sh(t, on, "echo kept > /workspace/file")
	s := a.snapshot(t, on, "a", "base")
	copied := a.createdOn(t, "b", hutch.CreateRequest{Snapshot: s.ID, NodeSelector: pairs{"zone": "b"}})
	if got := a.sh(t, copied, "cat /workspace/file"); got != "kept" {
		t.Errorf("its file: %q", got)
	}

	if out := a.must(t, "node", "drain", "b", "--wait", "1m"); !strings.Contains(out, "it still holds 3 sandboxes") || !strings.Contains(out, "its labels or taints do not match") {
		t.Errorf("drain says %s", out)
	}
	a.isOn(t, "b", strict)
	a.must(t, "node", "drain", "c", "--wait", "1s")
	a.isOn(t, "c", tolerant)
	a.isOn(t, "a", free)
	if got := a.sh(t, strict, "echo awake"); got != "awake" {
		t.Errorf("one that stays: %q", got)
	}
}

// TestLabelsOfOneServer: one server has labels, and no taints.
func TestLabelsOfOneServer(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		hutchtest.Skip(t, "the runtime native needs root here")
	}
	n := &node{name: "alone", data: filepath.Join(hutchtest.Dir(t), "data"), alone: true, args: []string{"--node-label", "zone=a"}}
	n.start(t)
	t.Cleanup(func() { n.end(t, syscall.SIGTERM) })
	sb, err := n.Create(t.Context(), hutch.CreateRequest{NodeSelector: pairs{"zone": "a"}, Tolerations: pairs{"gpu": "yes"}})
	if err != nil || sb.NodeSelector["zone"] != "a" || sb.Tolerations["gpu"] != "yes" {
		t.Fatalf("%+v %v", sb, err)
	}
	if _, err := n.Create(t.Context(), hutch.CreateRequest{ID: sb.ID, NodeSelector: pairs{"zone": "b"}}); err != nil {
		t.Errorf("a sandbox that exists: %v", err)
	}
	if _, err := n.Create(t.Context(), hutch.CreateRequest{NodeSelector: pairs{"zone": "b"}}); hutch.KindOf(err) != hutch.Invalid || !strings.Contains(err.Error(), "--node-label zone=b") {
		t.Errorf("a label that it does not have: %v", err)
	}
	if list, err := n.Nodes(t.Context()); err != nil || len(list.Nodes) != 1 || list.Nodes[0].Labels["zone"] != "a" {
		t.Errorf("%+v %v", list, err)
	}
	if _, err := n.Destroy(t.Context(), sb.ID, true); err != nil {
		t.Error(err)
	}
}

// TestLabelFlags: labels that no node can have, and taints that keep nothing away, are refused when a server starts.
func TestLabelFlags(t *testing.T) {
	for want, flags := range map[string][]string{
		"--node-label: \"a b\" is not a key":   {"--node-label", "a b=c"},
		"--node-taint: \"c d\" is not a value": {"--node-taint", "a=c d"},
		"give --fleet-listen too":              {"--node-taint", "a=b"},
	} {
		out, err := exec.Command(hutchtest.Program(t, "hutch"), append([]string{"serve", "--listen", "127.0.0.1:0", "--data", hutchtest.Dir(t)}, flags...)...).CombinedOutput()
		if err == nil || !strings.Contains(string(out), want) {
			t.Errorf("%v: %v %s", flags, err, out)
		}
	}
}
