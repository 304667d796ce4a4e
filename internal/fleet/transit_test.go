package fleet

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"hutch"
	"hutch/internal/travel"
)

// asleep places a sandbox, and notes that the bucket has it.
func asleep(t *testing.T, d *Directory, id string) Holder {
	t.Helper()
	node, _, err := d.place(t.Context(), at(id))
	name := Name{ID: id}
	if err == nil {
		err = d.awake(t.Context(), node, []entry{{Name: name}})
	}
	if err == nil {
		err = d.keep(t.Context(), node, name, travel.Image{Key: "key of " + id, Needs: travel.Needs{Runtime: "native"}})
	}
	h, ok, failed := d.holder(t.Context(), name)
	if err = errors.Join(err, failed); err != nil || !ok || h.Image == nil {
		t.Fatal(h, err)
	}
	return h
}

func die(t *testing.T, d *Directory, node string) {
	t.Helper()
	if _, err := d.db.Exec(t.Context(), "UPDATE fleet_nodes SET lease_until = now() - interval '1 second' WHERE id = $1", node); err != nil {
		t.Fatal(err)
	}
}

// live gives all nodes a lease that outlasts a slow test.
func live(t *testing.T, d *Directory) *Directory {
	t.Helper()
	if _, err := d.db.Exec(t.Context(), "UPDATE fleet_nodes SET lease_until = now() + interval '1 hour'"); err != nil {
		t.Fatal(err)
	}
	return d
}

// TestTransit: if several nodes race for a sleeping sandbox, one gets it, and all others know that they did not.
func TestTransit(t *testing.T) {
	t.Parallel()
	d := live(t, register(t, 5, 100))
	for i := range 20 {
		h := asleep(t, d, fmt.Sprintf("sb-%d", i))
		if err := d.take(t.Context(), h, "n0"); !errors.Is(err, errMoved) {
			t.Fatalf("taken from a node that lives: %v", err)
		}
		die(t, d, h.Node)
		var mu sync.Mutex
		var won []string
		var all sync.WaitGroup
		race := func(who string, act func() error) {
			all.Go(func() {
				err := act()
				mu.Lock()
				defer mu.Unlock()
				if err == nil {
					won = append(won, who)
				} else if !errors.Is(err, errMoved) {
					t.Errorf("%s: %v %v", who, err, hutch.AsError(err).Cause)
				}
			})
		}
		race(h.Node+" wakes it", func() error { _, err := d.waking(t.Context(), h.Node, h.Name, false); return err })
		for n := range 5 {
			if to := fmt.Sprintf("n%d", n); to != h.Node {
				race(to, func() error { return d.take(t.Context(), h, to) })
			}
		}
		all.Wait()
		if len(won) != 1 {
			t.Fatalf("%v have the sandbox", won)
		}
		now, _, err := d.holder(t.Context(), h.Name)
		if err != nil {
			t.Fatal(err)
		}
		if now.Awake != strings.Contains(won[0], "wakes") || now.Here != now.Awake || !now.Awake && now.Node != won[0] {
			t.Errorf("%s won, and the directory has %+v", won[0], now)
		}
		if !now.Awake {
			if err := d.arrived(t.Context(), h, h.Node); !errors.Is(err, errMoved) {
				t.Errorf("it came to a node that does not have it: %v", err)
			}
			if err := d.arrived(t.Context(), h, now.Node); err != nil {
				t.Error(err)
			}
			if err := d.arrived(t.Context(), h, now.Node); err != nil {
				t.Errorf("its answer was lost, and the node asks again: %v", err)
			}
			if _, err := d.waking(t.Context(), h.Node, h.Name, false); !errors.Is(err, errMoved) {
				t.Errorf("the node that was dead wakes it: %v", err)
			}
			if err := d.keep(t.Context(), h.Node, h.Name, *h.Image); !errors.Is(err, errMoved) {
				t.Errorf("the node that was dead writes it to the bucket: %v", err)
			}
		}
		live(t, d)
	}
}

// TestWokenIsPast: what the bucket has of a sandbox that woke since is never taken.
func TestWokenIsPast(t *testing.T) {
	t.Parallel()
	d := live(t, register(t, 2, 100))
	h := asleep(t, d, "sb")
	if old, err := d.waking(t.Context(), h.Node, h.Name, false); err != nil || old != h.Image.Key {
		t.Fatal(old, err)
	}
	if err := d.awake(t.Context(), h.Node, []entry{{Name: h.Name}}); err != nil { // it sleeps again, and the bucket does not have it yet
		t.Fatal(err)
	}
	die(t, d, h.Node)
	for _, to := range []string{"n0", "n1"} {
		if err := d.take(t.Context(), h, to); !errors.Is(err, errMoved) {
			t.Errorf("%s takes the past: %v", to, err)
		}
	}
	// A node that is removed loses what is only there, and what the bucket has is another's.
	kept := asleep(t, d, "kept")
	die(t, d, kept.Node)
	freed, err := d.RemoveNode(t.Context(), kept.Node, false)
	if err != nil {
		t.Fatal(err)
	}
	now, ok, err := d.holder(t.Context(), kept.Name)
	if err != nil || !ok || now.Node == kept.Node || now.Here {
		t.Errorf("after %d were freed: %+v %v %v", freed.Freed, now, ok, err)
	}
}

// TestOnlyInBucket: a node that is to fetch a sandbox, and does not have it yet, neither frees its id nor changes its state.
func TestOnlyInBucket(t *testing.T) {
	t.Parallel()
	d := live(t, register(t, 2, 100))
	h := asleep(t, d, "sb")
	die(t, d, h.Node)
	to := map[string]string{"n0": "n1", "n1": "n0"}[h.Node]
	err := d.take(t.Context(), h, to)
	if err == nil {
		err = d.free(t.Context(), to, h.Name)
	}
	if err == nil {
		err = d.awake(t.Context(), to, []entry{{Name: h.Name, Awake: true}})
	}
	if err != nil {
		t.Fatal(err)
	}
	now, ok, err := d.holder(t.Context(), h.Name)
	if err != nil || !ok || now.Node != to || now.Here || now.Awake || now.Image == nil {
		t.Errorf("%+v %v %v", now, ok, err)
	}
}

// TestReplacedAlone: the only node of a fleet, when it is replaced, is to fetch what the bucket has of it, and nothing else.
func TestReplacedAlone(t *testing.T) {
	t.Parallel()
	d := live(t, register(t, 1, 100))
	kept := asleep(t, d, "kept")
	if _, _, err := d.place(t.Context(), at("awake")); err != nil {
		t.Fatal(err)
	}
	die(t, d, "n0")
	for range 2 { // the second one replaces a node that has fetched nothing
		if err := d.enter(t.Context(), Entry{Node: "n0", Replace: true}, "another"); err != nil {
			t.Fatal(err)
		}
		list, err := d.toFetch(t.Context(), "n0")
		if err != nil || len(list) != 1 || list[0].Name != kept.Name || list[0].Image.Key != kept.Image.Key {
			t.Errorf("it is to fetch %+v, %v", list, err)
		}
		if held, err := d.Held(t.Context(), "n0"); err != nil || len(held) != 0 {
			t.Errorf("it has %+v, %v", held, err)
		}
	}
}

// TestLanding: the answer names for each node why it cannot be the one.
func TestLanding(t *testing.T) {
	t.Parallel()
	d := live(t, register(t, 4, 1))
	if err := d.SetState(t.Context(), "n3", hutch.NodeCordoned); err != nil {
		t.Fatal(err)
	}
	h := asleep(t, d, "sb")
	list := []string{"n0", "n1", "n2"}
	machines := map[string]travel.Machine{list[0]: {}, list[1]: {Builds: map[string]string{"docker": ""}}, list[2]: {Builds: map[string]string{"native": ""}}}
	for n, m := range machines {
		if err := d.setMachine(t.Context(), n, m); err != nil {
			t.Fatal(err)
		}
	}
	if to, err := d.nodeForWake(t.Context(), h, "", ""); err != nil || to != "n2" {
		t.Errorf("%s %v", to, err)
	}
	if err := d.setMachine(t.Context(), "n2", travel.Machine{Builds: map[string]string{"native": ""}}); err != nil {
		t.Fatal(err)
	}
	if _, err := d.db.Exec(t.Context(), "UPDATE fleet_nodes SET promised_memory = memory WHERE id = 'n2'"); err != nil {
		t.Fatal(err)
	}
	_, err := d.nodeForWake(t.Context(), h, "", "")
	for _, want := range []string{"n0: it has no --fleet-bucket", "n1: it does not have the runtime native", "n2: it has no room", "stays in the bucket"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the error does not say %q: %v", want, err)
		}
	}
}

// TestCheckpoint: what was awake on a node continues from its newest checkpoint on one other node, and not before its own has been away for long.
func TestCheckpoint(t *testing.T) {
	t.Parallel()
	d := live(t, register(t, 3, 100))
	name := Name{ID: "sb"}
	node, _, err := d.place(t.Context(), at("sb"))
	if err != nil {
		t.Fatal(err)
	}
	find := func() Holder {
		t.Helper()
		h, ok, err := d.holder(t.Context(), name)
		if err != nil || !ok {
			t.Fatal(ok, err)
		}
		return h
	}
	image := func(key string) travel.Image {
		return travel.Image{Key: key, Needs: travel.Needs{Runtime: "gvisor"}, Checkpoint: time.Now()}
	}
	placed := find().Placed
	if err := d.keepCheckpoint(t.Context(), node, name, placed, "", image("one")); err != nil {
		t.Fatal(err)
	}
	if err := d.keepCheckpoint(t.Context(), node, name, placed, "one", image("two")); err != nil {
		t.Fatal(err)
	}
	if err := d.keepCheckpoint(t.Context(), node, name, placed, "one", image("three")); !errors.Is(err, errMoved) {
		t.Errorf("over a newer one: %v", err)
	}
	if err := d.keepCheckpoint(t.Context(), node, name, placed.Add(-time.Hour), "two", image("three")); !errors.Is(err, errMoved) {
		t.Errorf("of an earlier sandbox with that id: %v", err)
	}
	if keys, err := d.images(t.Context()); err != nil || len(keys) != 1 || !keys["two"] {
		t.Errorf("the bucket has to keep %v %v", keys, err)
	}
	others := slices.DeleteFunc([]string{"n0", "n1", "n2"}, func(n string) bool { return n == node })
	die(t, d, node)
	if h := find(); h.Away || h.Checkpoint == nil {
		t.Errorf("a node that has just died: %+v", h)
	}
	if err := d.take(t.Context(), find(), others[0]); !errors.Is(err, errMoved) {
		t.Errorf("taken from a node that may restart: %v", err)
	}
	if _, err := d.db.Exec(t.Context(), "UPDATE fleet_nodes SET lease_until = now() - interval '2 minutes' WHERE id = $1", node); err != nil {
		t.Fatal(err)
	}
	h := find()
	if list, err := d.orphans(t.Context(), time.Hour); err != nil || len(list) != 1 || !h.Away {
		t.Errorf("orphans: %+v %v", list, err)
	}
	var won sync.Map
	var all sync.WaitGroup
	for _, to := range others {
		all.Go(func() {
			if err := d.take(t.Context(), h, to); err == nil {
				won.Store(to, true)
			} else if !errors.Is(err, errMoved) {
				t.Error(err)
			}
		})
	}
	all.Wait()
	h = find()
	if _, ok := won.Load(h.Node); !ok || h.Awake || h.Here || h.Image == nil || h.Image.Key != "two" || h.Image.Checkpoint.IsZero() || h.Checkpoint != nil {
		t.Errorf("afterwards: %+v", h)
	}
	won.Range(func(to, _ any) bool {
		if to != h.Node {
			t.Errorf("%s and %s have it", to, h.Node)
		}
		return true
	})
	live(t, d)
	if err := d.keepCheckpoint(t.Context(), node, name, placed, "two", image("three")); !errors.Is(err, errMoved) {
		t.Errorf("a checkpoint of the node that was away: %v", err)
	}
	nodes, err := d.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range nodes {
		if n.Promised != (hutch.NodeRoom{}) {
			t.Errorf("%s promises %+v to a sandbox that sleeps", n.ID, n.Promised)
		}
	}
	if err := d.arrived(t.Context(), h, h.Node); err != nil {
		t.Fatal(err)
	}
	if old, err := d.waking(t.Context(), h.Node, name, true); err != nil || old != "two" {
		t.Errorf("waking: %q %v", old, err)
	}
	if h = find(); h.Image != nil || h.Checkpoint == nil || h.Checkpoint.Key != "two" || !h.Awake {
		t.Errorf("its image is its checkpoint: %+v", h)
	}
	if keys, err := d.dropCheckpoints(t.Context(), h.Node); err != nil || len(keys) != 1 || find().Checkpoint != nil {
		t.Errorf("without checkpoints: %v %v", keys, err)
	}
}
