package fleet

import (
	"fmt"
	"strings"
	"testing"

	"hutch"
	"hutch/internal/travel"
)

type pairs = map[string]string

// labelled makes four nodes: n0 without labels, n1 with the label zone=a, n2 with zone=a, gpu=yes and the taint
// gpu=yes, and n3 with the row that a node of an older version writes.
func labelled(t *testing.T) *Directory {
	t.Helper()
	d := register(t, 4, 100)
	for _, n := range []hutch.Node{
		{ID: "n1", Labels: pairs{"zone": "a"}}, {ID: "n2", Labels: pairs{"zone": "a", "gpu": "yes"}, Taints: pairs{"gpu": "yes"}},
	} {
		n.Room = hutch.NodeRoom{Memory: 51200, CPU: 1 << 20, Sandboxes: 1 << 20}
		if _, err := d.begin(t.Context(), NodeInfo{Node: n}); err != nil {
			t.Fatal(err, hutch.AsError(err).Cause)
		}
	}
	if _, err := d.db.Exec(t.Context(), "UPDATE fleet_nodes SET labels = 'null' WHERE id = 'n3'"); err != nil {
		t.Fatal(err)
	}
	return live(t, d)
}

// wants returns a placement with a node selector and tolerations.
func wants(id string, selector, tolerations pairs) placement {
	p := at(id)
	p.About = About{NodeSelector: selector, Tolerations: tolerations}
	return p
}

func only(p placement, nodes ...string) placement {
	p.Only = nodes
	return p
}

// TestPlacedByLabels: a sandbox is placed only on nodes that have all labels of its node selector, and whose taints it
// tolerates.
func TestPlacedByLabels(t *testing.T) {
	t.Parallel()
	d := labelled(t)
	for name, c := range map[string]struct {
		selector, tolerations pairs
		on                    string
	}{
		"nothing":                {nil, nil, "n0 n1 n3"},
		"a label":                {pairs{"zone": "a"}, nil, "n1"},
		"a toleration":           {nil, pairs{"gpu": "yes"}, "n0 n1 n2 n3"},
		"both":                   {pairs{"zone": "a", "gpu": "yes"}, pairs{"gpu": "yes", "other": ""}, "n2"},
		"another value of taint": {pairs{"zone": "a"}, pairs{"gpu": "no"}, "n1"},
	} {
		seen := pairs{}
		for i := range 60 {
			node, _, err := d.place(t.Context(), wants(fmt.Sprintf("%d-%s", i, name), c.selector, c.tolerations))
			if err != nil {
				t.Fatal(name, err, hutch.AsError(err).Cause)
			}
			seen[node] = ""
			if err := d.free(t.Context(), node, Name{ID: fmt.Sprintf("%d-%s", i, name)}); err != nil {
				t.Fatal(err)
			}
		}
		if got := strings.NewReplacer("=", "", ",", " ").Replace(hutch.FormatNodeLabels(seen)); got != c.on {
			t.Errorf("%s: placed on %s, not on %s", name, got, c.on)
		}
	}
	n, err := d.find(t.Context(), "n2")
	if err != nil || hutch.FormatNodeLabels(n.Labels) != "gpu=yes,zone=a" || hutch.FormatNodeLabels(n.Taints) != "gpu=yes" {
		t.Errorf("the list has %+v %v", n, err)
	}
}

// TestNoNodeSuits: the error names what is missing, but not the labels and taints of the nodes.
func TestNoNodeSuits(t *testing.T) {
	t.Parallel()
	d := labelled(t)
	if _, err := d.CordonNode(t.Context(), "n1"); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		p    placement
		kind hutch.Kind
		want string
	}{
		{wants("x", pairs{"zone": "c"}, nil), hutch.Invalid, "has all labels of nodeSelector, zone=c,"},
		{wants("x", pairs{"gpu": "yes"}, nil), hutch.Invalid, "only taints that tolerations has"},
		{wants("x", pairs{"zone": "a"}, nil), hutch.Unavailable, "no node of the fleet with zone=a that can have the sandbox is ready"},
		{only(wants("x", pairs{"zone": "a"}, nil), "n0"), hutch.Invalid, "that has its snapshot, template or volumes has all labels"},
		{only(wants("x", pairs{"zone": "a"}, nil), "n9"), hutch.Unavailable, "no node of the fleet with zone=a that can have the sandbox is ready"},
		{only(wants("x", nil, nil), "n2"), hutch.Invalid, "a taint that the sandbox does not tolerate: give tolerations"},
	} {
		_, _, err := d.place(t.Context(), c.p)
		if hutch.KindOf(err) != c.kind || !strings.Contains(err.Error(), c.want) || !needsOtherNode(err) {
			t.Errorf("%v %v: %v", c.p.About, c.p.Only, err)
		}
		for _, label := range []string{"zone=a", "gpu=yes"} {
			if err != nil && strings.Contains(err.Error(), label) && !strings.Contains(hutch.FormatNodeLabels(c.p.About.NodeSelector), label) {
				t.Errorf("the error names a label of a node: %v", err)
			}
		}
	}
}

// TestMovesByLabels: when a sandbox or its snapshot moves, the new node has the labels that the sandbox asks for, and
// only taints that it tolerates.
func TestMovesByLabels(t *testing.T) {
	t.Parallel()
	d := labelled(t)
	for _, n := range []string{"n0", "n1", "n2", "n3"} {
		if err := d.setMachine(t.Context(), n, travel.Machine{Builds: pairs{"native": ""}, Snapshots: true}); err != nil {
			t.Fatal(err)
		}
	}
	tolerant, strict, free := asleepOf(t, d, wants("tolerant", pairs{"zone": "a"}, pairs{"gpu": "yes"})), asleepOf(t, d, wants("strict", pairs{"zone": "a"}, nil)), asleep(t, d, "free")
	if _, err := d.CordonNode(t.Context(), "n1"); err != nil {
		t.Fatal(err)
	}
	if to, err := d.nodeFor(t.Context(), tolerant.cargo(), "", ""); err != nil || to != "n2" {
		t.Errorf("one that tolerates the taint: %s %v", to, err)
	}
	if to, err := d.nodeFor(t.Context(), free.cargo(), "n2", ""); err != nil || to == "n2" {
		t.Errorf("one that does not ask: %s %v", to, err)
	}
	_, err := d.nodeFor(t.Context(), strict.cargo(), "", "")
	for _, node := range []string{"n0", "n2", "n3"} {
		if err == nil || !strings.Contains(err.Error(), node+unsuitableNode) {
			t.Errorf("one that no node suits, and %s: %v", node, err)
		}
	}
	s := kept(t, d, "n0", "snap")
	s.Image.Needs = travel.Needs{Runtime: "native"}
	want := wants("of-snap", pairs{"zone": "a"}, pairs{"gpu": "yes"})
	if to, err := d.nodeFor(t.Context(), s.cargo(&want), "n0", ""); err != nil || to != "n2" {
		t.Errorf("a snapshot for a sandbox: %s %v", to, err)
	}
	want.About.Tolerations = nil
	if _, err := d.nodeFor(t.Context(), s.cargo(&want), "n0", ""); hutch.KindOf(err) != hutch.Unavailable || !strings.Contains(err.Error(), "n2"+unsuitableNode) {
		t.Errorf("a snapshot for a sandbox that no node suits: %v", err)
	}
	onVolumes := wants("of-snap", pairs{"zone": "a"}, nil)
	onVolumes.Mounts, onVolumes.Only = "n0", []string{"n0"}
	nowhere := wants("of-snap", pairs{"zone": "c"}, nil)
	for want, p := range map[string]placement{"no node of the fleet has all labels": nowhere, "that has its snapshot, template or volumes has all labels": onVolumes} {
		if _, err := d.nodeFor(t.Context(), s.cargo(&p), "n0", ""); hutch.KindOf(err) != hutch.Invalid || !strings.Contains(err.Error(), want) {
			t.Errorf("a snapshot for a sandbox that could go nowhere: %v", err)
		}
	}
	if to, err := d.nodeFor(t.Context(), s.cargo(nil), "n2", ""); err != nil || to != "n2" {
		t.Errorf("a snapshot alone: %s %v", to, err)
	}
	die(t, d, "n1")
	if _, err := d.db.Exec(t.Context(), "UPDATE fleet_holders SET node = 'n1' WHERE id = 'tolerant'"); err != nil {
		t.Fatal(err)
	}
	if _, err := d.RemoveNode(t.Context(), "n1", false); err != nil {
		t.Fatal(err, hutch.AsError(err).Cause)
	}
	if h, ok, err := d.holder(t.Context(), tolerant.Name); err != nil || !ok || h.Node != "n2" || h.Here {
		t.Errorf("one of a removed node: %+v %v", h, err)
	}
}

// TestOldTables: the columns for taints and abilities are added to the tables of an older version.
func TestOldTables(t *testing.T) {
	t.Parallel()
	d := register(t, 1, 1)
	if _, err := d.db.Exec(t.Context(), "ALTER TABLE fleet_nodes DROP COLUMN taints, DROP COLUMN understands"); err != nil {
		t.Fatal(err)
	}
	again, err := OpenDirectory(t.Context(), d.db.Config().ConnString())
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	if list, err := again.List(t.Context()); err != nil || len(list) != 1 || len(list[0].Taints) != 0 {
		t.Errorf("%+v %v", list, err)
	}
}

// TestPlacedByAbilities: a sandbox that needs an ability goes only to nodes that have it now. A node that was
// downgraded has none, although its row still names the abilities of the newer version.
func TestPlacedByAbilities(t *testing.T) {
	t.Parallel()
	d := labelled(t)
	for _, n := range []string{"n0", "n1", "n2", "n3"} {
		if err := d.setMachine(t.Context(), n, travel.Machine{Builds: pairs{"native": ""}, Snapshots: true}); err != nil {
			t.Fatal(err)
		}
	}
	// This is what a node of an older version writes when it starts.
	if _, err := d.db.Exec(t.Context(), "UPDATE fleet_nodes SET epoch = epoch + 1 WHERE id IN ('n1', 'n3')"); err != nil {
		t.Fatal(err)
	}
	list, err := d.List(t.Context())
	for _, n := range list {
		if newer := n.ID == "n0" || n.ID == "n2"; n.lacks(abilities) == newer {
			t.Errorf("%s has the abilities %q", n.ID, n.abilities)
		}
	}
	if err != nil || len(list) != 4 {
		t.Errorf("%+v %v", list, err)
	}
	limited := wants("limited", nil, nil)
	limited.Needs = []string{knowsRegistries}
	for name, p := range map[string]placement{
		"a node selector": wants("selects", pairs{"zone": "a"}, nil), "registries": only(limited, "n3"),
	} {
		_, _, err := d.place(t.Context(), p)
		if hutch.KindOf(err) != hutch.Unavailable || !strings.Contains(err.Error(), "has an older version of Hutch, which would ignore") || !needsOtherNode(err) {
			t.Errorf("%s on an older node: %v", name, err)
		}
	}
	for i := range 20 {
		p := wants(fmt.Sprintf("tolerates-%d", i), nil, pairs{"other": ""})
		if node, _, err := d.place(t.Context(), p); err != nil || node != "n0" {
			t.Errorf("tolerations: on %s, %v", node, err)
		}
		p = limited
		p.ID = fmt.Sprintf("limited-%d", i)
		if node, _, err := d.place(t.Context(), p); err != nil || node != "n0" {
			t.Errorf("registries: on %s, %v", node, err)
		}
	}
	p := wants("sleeps", nil, pairs{"other": ""})
	h := asleepOf(t, d, p)
	if to, err := d.nodeFor(t.Context(), h.cargo(), "n3", ""); err != nil || to != "n0" {
		t.Errorf("it wakes on %s, %v", to, err)
	}
	if _, err := d.CordonNode(t.Context(), "n0"); err != nil {
		t.Fatal(err)
	}
	if _, err := d.nodeFor(t.Context(), h.cargo(), "", ""); err == nil || !strings.Contains(err.Error(), "n3: its version of Hutch would ignore nodeSelector and tolerations: upgrade it") {
		t.Errorf("only older nodes are left: %v", err)
	}
	s := kept(t, d, "n0", "snap")
	s.Image.Needs = travel.Needs{Runtime: "native"}
	if _, err := d.nodeFor(t.Context(), s.cargo(&limited), "", ""); err == nil || !strings.Contains(err.Error(), "n1: its version of Hutch would ignore the registries of a token: upgrade it") {
		t.Errorf("a snapshot for a sandbox: %v", err)
	}
}

// TestRemovedAmongVersions: a sandbox of a removed node goes to a node whose version knows tolerations, if there is
// one.
func TestRemovedAmongVersions(t *testing.T) {
	t.Parallel()
	d := live(t, register(t, 3, 100))
	if _, err := d.db.Exec(t.Context(), "UPDATE fleet_nodes SET epoch = epoch + 1 WHERE id = 'n1'"); err != nil {
		t.Fatal(err)
	}
	if _, err := d.db.Exec(t.Context(), "UPDATE fleet_nodes SET lease_until = now() + interval '2 hours' WHERE id = 'n1'"); err != nil { // so that it would be the first choice
		t.Fatal(err)
	}
	p := only(wants("sb", nil, pairs{"gpu": "yes"}), "n0")
	h := asleepOf(t, d, p)
	if _, err := d.RemoveNode(t.Context(), "n0", false); err != nil {
		t.Fatal(err, hutch.AsError(err).Cause)
	}
	if h, ok, err := d.holder(t.Context(), h.Name); err != nil || !ok || h.Node != "n2" {
		t.Errorf("it goes to %+v %v", h, err)
	}
}
