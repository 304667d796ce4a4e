package fleet

import (
	"context"
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

// asleep places a sandbox that sleeps, and records that the bucket has it.
func asleep(t *testing.T, d *Directory, id string) Holder { return asleepOf(t, d, at(id)) }

func asleepOf(t *testing.T, d *Directory, p placement) Holder {
	t.Helper()
	node, _, err := d.place(t.Context(), p)
	name := p.Name
	if err == nil {
		err = d.noteAwake(t.Context(), node, []entry{{Name: name}})
	}
	if err == nil {
		err = d.keep(t.Context(), node, name, travel.Image{Key: "key of " + name.ID, Needs: travel.Needs{Runtime: "native"}})
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

// takeOver makes a node claim a sandbox of a dead node, and take it over.
func takeOver(t *testing.T, d *Directory, h Holder, to string) error {
	if err := d.claim(t.Context(), h, to); err != nil {
		return err
	}
	return d.arrived(t.Context(), h, to)
}

// TestTransit: if several nodes race for a sleeping sandbox, one gets it, and all others get an error.
func TestTransit(t *testing.T) {
	t.Parallel()
	d := live(t, register(t, 5, 100))
	for i := range 20 {
		h := asleep(t, d, fmt.Sprintf("sb-%d", i))
		if err := d.claim(t.Context(), h, "n0"); !errors.Is(err, errMoved) {
			t.Fatalf("claimed from a node that lives: %v", err)
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
		race(h.Node+" wakes it", func() error { _, err := d.reserveWake(t.Context(), h.Node, h.Name, false); return err })
		for n := range 5 {
			if to := fmt.Sprintf("n%d", n); to != h.Node {
				race(to, func() error { return takeOver(t, d, h, to) })
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
		if now.Awake != strings.Contains(won[0], "wakes") || !now.Here || now.Fetcher != "" || !now.Awake && now.Node != won[0] {
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
			if _, err := d.reserveWake(t.Context(), h.Node, h.Name, false); !errors.Is(err, errMoved) {
				t.Errorf("the node that was dead wakes it: %v", err)
			}
			if err := d.keep(t.Context(), h.Node, h.Name, *h.Image); !errors.Is(err, errMoved) {
				t.Errorf("the node that was dead writes it to the bucket: %v", err)
			}
		}
		live(t, d)
	}
}

// TestWokenIsPast: the image of a sandbox that has woken since is never used.
func TestWokenIsPast(t *testing.T) {
	t.Parallel()
	d := live(t, register(t, 2, 100))
	h := asleep(t, d, "sb")
	if old, err := d.reserveWake(t.Context(), h.Node, h.Name, false); err != nil || old != h.Image.Key {
		t.Fatal(old, err)
	}
	if err := d.noteAwake(t.Context(), h.Node, []entry{{Name: h.Name}}); err != nil { // it sleeps again, but the bucket does not have its new state yet
		t.Fatal(err)
	}
	die(t, d, h.Node)
	for _, to := range []string{"n0", "n1"} {
		if err := takeOver(t, d, h, to); !errors.Is(err, errMoved) {
			t.Errorf("%s takes the past: %v", to, err)
		}
	}
	// When a node is removed, the sandboxes that are only there are lost, and those in the bucket go to another node.
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

// TestOnlyInBucket: a node that is to fetch a sandbox does not free the sandbox's id or change its state before it has
// the sandbox.
func TestOnlyInBucket(t *testing.T) {
	t.Parallel()
	d := live(t, register(t, 2, 100))
	h := asleep(t, d, "sb")
	to := map[string]string{"n0": "n1", "n1": "n0"}[h.Node]
	err := d.handOver(t.Context(), h.Node, h, to)
	if err == nil {
		err = d.free(t.Context(), to, h.Name)
	}
	if err == nil {
		err = d.noteAwake(t.Context(), to, []entry{{Name: h.Name, Awake: true}})
	}
	if err != nil {
		t.Fatal(err)
	}
	now, ok, err := d.holder(t.Context(), h.Name)
	if err != nil || !ok || now.Node != to || now.Here || now.Awake || now.Image == nil {
		t.Errorf("%+v %v %v", now, ok, err)
	}
	// If that node dies, another node is to fetch the sandbox.
	if err := d.take(t.Context(), now, h.Node); !errors.Is(err, errMoved) {
		t.Errorf("taken from a node that lives: %v", err)
	}
	die(t, d, to)
	if err := d.take(t.Context(), now, h.Node); err != nil {
		t.Error(err)
	}
	if list, err := d.toFetch(t.Context(), h.Node); err != nil || len(list) != 1 {
		t.Errorf("to be fetched: %+v %v", list, err)
	}
}

// TestReturnsInTime: if a node returns before another node has read the whole image of its sandbox, it has the sandbox
// as before.
func TestReturnsInTime(t *testing.T) {
	t.Parallel()
	d := live(t, register(t, 3, 100))
	h := asleep(t, d, "sb")
	others := slices.DeleteFunc([]string{"n0", "n1", "n2"}, func(n string) bool { return n == h.Node })
	find := func() Holder {
		t.Helper()
		now, ok, err := d.holder(t.Context(), h.Name)
		if err != nil || !ok {
			t.Fatal(ok, err)
		}
		return now
	}
	die(t, d, h.Node)
	if err := d.claim(t.Context(), h, others[0]); err != nil {
		t.Fatal(err)
	}
	if err := d.claim(t.Context(), h, others[1]); !errors.Is(err, errMoved) {
		t.Errorf("claimed twice: %v", err)
	}
	now := find()
	if now.Node != h.Node || !now.Here || !now.Away || !now.comesTo(others[0]) || now.comesTo(others[1]) || now.comesTo(h.Node) {
		t.Errorf("while it is fetched: %+v", now)
	}
	if err := d.arrived(t.Context(), now, others[1]); !errors.Is(err, errMoved) {
		t.Errorf("it came to a node that has not claimed it: %v", err)
	}
	live(t, d)
	if err := d.arrived(t.Context(), now, others[0]); !errors.Is(err, errMoved) {
		t.Errorf("taken over from a node that is back: %v", err)
	}
	if now = find(); now.Node != h.Node || now.Away || now.comesTo(others[0]) {
		t.Errorf("its node is back: %+v", now)
	}
	if err := d.dropClaims(t.Context(), h.Node); err != nil {
		t.Fatal(err)
	}
	die(t, d, h.Node)
	if err := d.arrived(t.Context(), now, others[0]); !errors.Is(err, errMoved) {
		t.Errorf("taken over after its node was back: %v", err)
	}
	// If a node dies while it fetches a sandbox, another node can fetch it.
	if err := d.claim(t.Context(), find(), others[0]); err != nil {
		t.Fatal(err)
	}
	if err := d.claim(t.Context(), find(), others[1]); err != nil {
		t.Fatal(err)
	}
	if err := d.arrived(t.Context(), find(), others[1]); err != nil {
		t.Fatal(err)
	}
	if now = find(); now.Node != others[1] || !now.Here || now.Fetcher != "" || now.Image == nil || now.Image.Key != h.Image.Key {
		t.Errorf("afterwards: %+v", now)
	}
}

// claimer is a carrier on n0 that can be asked to fetch.
func claimer(t *testing.T, d *Directory) *carrier {
	t.Helper()
	f, _ := wakingOn(t, d)
	f.carrier = newCarrier(Travel{Engine: sleeper{}}, f.resident)
	return f.carrier
}

// sleeper is an engine without sandboxes.
type sleeper struct{ Sleepers }

func (sleeper) Arrivals() ([]travel.Arrival, error) { return nil, nil }
func (sleeper) CameAwake() []travel.Arrival         { return nil }

func (sleeper) Machine(context.Context) travel.Machine {
	return travel.Machine{Builds: map[string]string{"native": ""}, Claims: true}
}

// claimedSandbox is a sandbox of a dead node, which n0 is to fetch.
func claimedSandbox(t *testing.T, d *Directory) Holder {
	t.Helper()
	p := at("sb")
	p.Only = []string{"n1"}
	h := asleepOf(t, d, p)
	die(t, d, h.Node)
	if err := d.claim(t.Context(), h, "n0"); err != nil {
		t.Fatal(err)
	}
	h, _, err := d.holder(t.Context(), h.Name)
	if err != nil || h.Fetcher != "n0" {
		t.Fatal(h, err)
	}
	return h
}

// TestEndOfAClaim: a node that ends gives up its claims and records the reason, and a node that starts has no claims.
func TestEndOfAClaim(t *testing.T) {
	t.Parallel()
	d := live(t, register(t, 2, 100))
	h, c := claimedSandbox(t, d), claimer(t, d)
	ended, end := context.WithCancel(t.Context())
	end()
	if err := c.notFetched(ended, h, undecided(errors.New("no answer"))); hutch.KindOf(err) != hutch.Unavailable {
		t.Error(err)
	}
	if now, _, err := d.holder(t.Context(), h.Name); err != nil || now.Fetcher != "n0" {
		t.Errorf("while it is not known whether it is here: %+v %v", now, err)
	}
	if err := c.notFetched(ended, h, travel.ErrForged); hutch.KindOf(err) != hutch.Denied {
		t.Error(err)
	}
	now, _, err := d.holder(t.Context(), h.Name)
	if err != nil || now.Fetcher != "" || now.Stays != travel.ErrForged.Message {
		t.Errorf("after a fetch that failed: %+v %v", now, err)
	}
	if err := d.claim(t.Context(), now, "n0"); err != nil {
		t.Fatal(err)
	}
	if err := c.begin(t.Context()); err != nil {
		t.Fatal(err)
	}
	if now, _, err = d.holder(t.Context(), h.Name); err != nil || now.Fetcher != "" {
		t.Errorf("after a restart: %+v %v", now, err)
	}
}

// TestLateVerdict: if a node's image is found bad after the node has returned, the node writes the image again. A newer
// image does not count as bad.
func TestLateVerdict(t *testing.T) {
	t.Parallel()
	d := live(t, register(t, 1, 100))
	c := claimer(t, d)
	f := c.r.f
	state := func(s hutch.NodeState) {
		f.node.nodes = map[string]NodeInfo{"n0": {Node: hutch.Node{ID: "n0", State: s, Alive: true}}}
	}
	state(hutch.NodeReady)
	old := asleep(t, d, "sb")
	newer := *old.Image
	newer.Key = "newer"
	if err := d.keep(t.Context(), "n0", old.Name, newer); err != nil {
		t.Fatal(err)
	}
	c.setKey(old.Name, newer.Key)
	find := func() Holder {
		t.Helper()
		h, _, err := d.holder(t.Context(), old.Name)
		if err != nil {
			t.Fatal(err)
		}
		return h
	}
	c.noteLost(t.Context(), old, travel.ErrForged)
	if h := find(); h.Stays != "" {
		t.Errorf("the verdict on an older image: %+v", h)
	}
	c.noteLost(t.Context(), find(), travel.ErrForged)
	if h := find(); h.Stays != travel.ErrForged.Message {
		t.Errorf("the verdict on its image: %+v", h)
	}
	here := []hutch.Sandbox{{ID: old.ID, Owner: old.Owner}}
	state(hutch.NodeDraining)
	if f.resident.compare(t.Context(), here); c.keyOf(old.Name) != newer.Key {
		t.Error("a drained node writes again what cannot leave")
	}
	state(hutch.NodeReady)
	if f.resident.compare(t.Context(), here); c.keyOf(old.Name) != "" {
		t.Error("a bad image is not written again")
	}
}

// TestFetcherIsReady: the claims of a drained or cordoned node go to another node.
func TestFetcherIsReady(t *testing.T) {
	t.Parallel()
	d := live(t, register(t, 3, 100))
	h, c := claimedSandbox(t, d), claimer(t, d)
	for _, n := range []string{"n0", "n2"} {
		if err := d.setMachine(t.Context(), n, c.Engine.Machine(t.Context())); err != nil {
			t.Fatal(err)
		}
	}
	for _, state := range []hutch.NodeState{hutch.NodeReady, hutch.NodeCordoned, hutch.NodeDraining} {
		if err := d.SetState(t.Context(), "n0", state); err != nil {
			t.Fatal(err)
		}
		c.r.f.node.nodes = map[string]NodeInfo{"n0": {Node: hutch.Node{ID: "n0", State: state, Alive: true}}}
		want := "n2"
		if state == hutch.NodeReady {
			want = "n0"
		}
		h := h
		if to, err := c.fetcherOf(t.Context(), &h, "n0"); err != nil || to != want {
			t.Errorf("n0 is %s, and the fetcher is %s: %v", state, to, err)
		}
		if _, err := d.db.Exec(t.Context(), "UPDATE fleet_holders SET fetcher = 'n0'"); err != nil {
			t.Fatal(err)
		}
	}
}

// TestReplacedAlone: when the only node of a fleet is replaced, its successor is to fetch the sandboxes in the bucket,
// and no others.
func TestReplacedAlone(t *testing.T) {
	t.Parallel()
	d := live(t, register(t, 1, 100))
	kept := asleep(t, d, "kept")
	if _, _, err := d.place(t.Context(), at("awake")); err != nil {
		t.Fatal(err)
	}
	die(t, d, "n0")
	for range 2 { // the second replacement is of a node that has fetched nothing
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

// TestLanding: the error says for each node why it cannot take the sandbox.
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
	if to, err := d.nodeFor(t.Context(), h.cargo(), "", ""); err != nil || to != "n2" {
		t.Errorf("%s %v", to, err)
	}
	h.Away = true // as if its node were dead
	if _, err := d.nodeFor(t.Context(), h.cargo(), "", ""); err == nil || !strings.Contains(err.Error(), "n2: its version of Hutch takes nothing over") {
		t.Errorf("from a dead node to an older version: %v", err)
	}
	h.Away = false
	if err := d.setMachine(t.Context(), "n2", travel.Machine{Builds: map[string]string{"native": ""}}); err != nil {
		t.Fatal(err)
	}
	if _, err := d.db.Exec(t.Context(), "UPDATE fleet_nodes SET promised_memory = memory WHERE id = 'n2'"); err != nil {
		t.Fatal(err)
	}
	_, err := d.nodeFor(t.Context(), h.cargo(), "", "")
	for _, want := range []string{"n0: it has no --fleet-bucket", "n1: it does not have the runtime native", "n2: it has no room", "stays in the bucket"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the error does not say %q: %v", want, err)
		}
	}
}

// TestAbandon: a sandbox of a dead node can be destroyed when only its checkpoint is left, even while a node fetches
// it.
func TestAbandon(t *testing.T) {
	t.Parallel()
	d := live(t, register(t, 2, 100))
	node, _, err := d.place(t.Context(), at("sb"))
	if err != nil {
		t.Fatal(err)
	}
	find := func() Holder {
		t.Helper()
		h, _, err := d.holder(t.Context(), Name{ID: "sb"})
		if err != nil {
			t.Fatal(err)
		}
		return h
	}
	img := travel.Image{Key: "one", Needs: travel.Needs{Runtime: "gvisor"}, Checkpoint: time.Now()}
	if err := d.keepCheckpoint(t.Context(), node, Name{ID: "sb"}, find().Placed, "", img); err != nil {
		t.Fatal(err)
	}
	other := map[string]string{"n0": "n1", "n1": "n0"}[node]
	refused := func(when string) {
		t.Helper()
		if err := d.abandon(t.Context(), find(), other); !errors.Is(err, errMoved) {
			t.Errorf("it is destroyed %s: %v", when, err)
		}
	}
	refused("on a node that lives")
	die(t, d, node)
	refused("on a node that may restart")
	if _, err := d.db.Exec(t.Context(), "UPDATE fleet_nodes SET lease_until = now() - interval '2 minutes' WHERE id = $1", node); err != nil {
		t.Fatal(err)
	}
	if err := d.claim(t.Context(), find(), other); err != nil {
		t.Fatal(err)
	}
	h := find()
	live(t, d)
	if err := d.abandon(t.Context(), h, other); !errors.Is(err, errMoved) {
		t.Errorf("it is destroyed on a node that is back: %v", err)
	}
	if _, err := d.db.Exec(t.Context(), "UPDATE fleet_nodes SET lease_until = now() - interval '2 minutes' WHERE id = $1", node); err != nil {
		t.Fatal(err)
	}
	if err := d.abandon(t.Context(), h, other); err != nil {
		t.Fatalf("it cannot be destroyed: %v", err)
	}
	nodes, err := d.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range nodes {
		if n.Promised != (hutch.NodeRoom{}) {
			t.Errorf("%s promises %+v to a sandbox that is destroyed", n.ID, n.Promised)
		}
	}
}

// TestCheckpoint: a sandbox that was awake continues from its newest checkpoint on one other node, but only after its
// own node has been away for long.
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
	if err := d.claim(t.Context(), find(), others[0]); !errors.Is(err, errMoved) {
		t.Errorf("claimed from a node that may restart: %v", err)
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
			if err := takeOver(t, d, h, to); err == nil {
				won.Store(to, true)
			} else if !errors.Is(err, errMoved) {
				t.Error(err)
			}
		})
	}
	all.Wait()
	h = find()
	if _, ok := won.Load(h.Node); !ok || h.Awake || !h.Here || h.Image == nil || h.Image.Key != "two" || h.Image.Checkpoint.IsZero() || h.Checkpoint != nil {
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
	if old, err := d.reserveWake(t.Context(), h.Node, name, true); err != nil || old != "two" {
		t.Errorf("waking: %q %v", old, err)
	}
	if h = find(); h.Image != nil || h.Checkpoint == nil || h.Checkpoint.Key != "two" || !h.Awake {
		t.Errorf("its image is its checkpoint: %+v", h)
	}
	if keys, err := d.dropCheckpoints(t.Context(), h.Node); err != nil || len(keys) != 1 || find().Checkpoint != nil {
		t.Errorf("without checkpoints: %v %v", keys, err)
	}
}
