package fleet

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"hutch"
	"hutch/internal/objects"
	"hutch/internal/travel"
	"hutch/internal/verb"
)

// listing is a service that can only list sandboxes.
type listing struct {
	hutch.Service
	list []hutch.Sandbox
}

func (l *listing) Sandboxes(context.Context, hutch.Filter) ([]hutch.Sandbox, error) {
	return l.list, nil
}

func (l *listing) Snapshots(context.Context) ([]hutch.Snapshot, error) { return nil, nil }

// wakingOn returns node n0 of a fleet without a bucket. The node serves, and has the given sandboxes, all asleep.
func wakingOn(t *testing.T, d *Directory, ids ...string) (*Fleet, *listing) {
	t.Helper()
	here := &listing{}
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	f := &Fleet{dir: d, log: log, node: &node{info: NodeInfo{Node: hutch.Node{ID: "n0"}}, until: sinceBoot() + time.Hour}}
	f.life, f.end = context.WithCancel(t.Context())
	t.Cleanup(func() {
		f.end()
		f.runs.Wait()
	})
	f.resident = newResident(here, f)
	f.resident.checked = time.Now()
	for _, id := range ids {
		asleep(t, d, id)
		here.list = append(here.list, hutch.Sandbox{ID: id, Status: hutch.Hibernated})
		f.resident.note(Name{ID: id}, false)
	}
	return f, here
}

// TestReportWhileWaking: a report in the middle of a wake keeps the sandbox's reservation, and a report after a failed
// wake frees it.
func TestReportWhileWaking(t *testing.T) {
	t.Parallel()
	d := live(t, register(t, 1, 1))
	f, here := wakingOn(t, d, "a", "b")
	done, err := f.Waking(t.Context(), "", "a")
	if err != nil {
		t.Fatal(err)
	}
	f.resident.report(t.Context())
	if _, err := f.Waking(t.Context(), "", "b"); !isFull(err) {
		t.Fatalf("two sandboxes wake on a node with memory for one: %v", err)
	}
	done() // it could not wake
	f.resident.report(t.Context())
	if done, err = f.Waking(t.Context(), "", "b"); err != nil {
		t.Fatalf("the memory of a sandbox that could not wake is not free: %v", err)
	}
	here.list[1].Status = hutch.Running
	f.resident.report(t.Context())
	done()
	f.resident.report(t.Context())
	if _, err := f.Waking(t.Context(), "", "a"); !isFull(err) {
		t.Fatalf("a sandbox that is awake has no promise: %v", err)
	}
	here.list[1].Status = hutch.Hibernated
	f.resident.report(t.Context())
	if _, err := f.Waking(t.Context(), "", "a"); err != nil {
		t.Fatal(err)
	}
}

// TestReportsAtOnce: it calls report while the node does so too, for the race detector.
func TestReportsAtOnce(t *testing.T) {
	t.Parallel()
	f, _ := wakingOn(t, live(t, register(t, 1, 1)), "a")
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() { f.resident.report(t.Context()) })
	}
	all.Wait()
	if f.resident.counted != 0 {
		t.Errorf("the directory knows of %d snapshots", f.resident.counted)
	}
}

// TestLostAnswerToAWake: the directory recorded a sandbox as awake, but the answer was lost and the sandbox still
// sleeps. The next report corrects the directory.
func TestLostAnswerToAWake(t *testing.T) {
	t.Parallel()
	d := live(t, register(t, 1, 1))
	f, _ := wakingOn(t, d, "a", "b")
	if _, err := d.reserveWake(t.Context(), "n0", Name{ID: "a"}, false); err != nil {
		t.Fatal(err)
	}
	lost, err := pgxpool.New(t.Context(), "postgres://127.0.0.1:1/none")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(lost.Close)
	f.dir, f.carrier = &Directory{db: lost}, newCarrier(Travel{Engine: sleeper{}}, f.resident)
	f.carrier.setKey(Name{ID: "a"}, "key of a")
	if _, err := f.Waking(t.Context(), "", "a"); hutch.KindOf(err) != hutch.Unavailable {
		t.Fatalf("it wakes without an answer: %v", err)
	}
	if key := f.carrier.keyOf(Name{ID: "a"}); key != "" {
		t.Errorf("its image is not sent again: the key is still %q", key)
	}
	f.dir, f.carrier = d, nil
	f.resident.report(t.Context())
	if _, err := f.Waking(t.Context(), "", "b"); err != nil {
		t.Errorf("a sandbox that sleeps keeps its promise: %v", err)
	}
}

// arriving is an engine with undecided arrivals, and without files.
type arriving struct {
	sleeper
	list []travel.Arrival
	bad  error // error for unreadable notes
}

func (a *arriving) Arrivals() ([]travel.Arrival, error) { return slices.Clone(a.list), a.bad }

func (a *arriving) Settle(ctx context.Context, one travel.Arrival, commit func(context.Context) error) error {
	err := commit(ctx)
	if !errors.Is(err, travel.ErrUndecided) {
		a.list = slices.DeleteFunc(a.list, func(other travel.Arrival) bool { return other == one })
	}
	return err
}

// TestUndecidedArrival: a node that does not know whether a sandbox has arrived asks the directory until it gets an
// answer. The sandbox is here if the directory has it here or has assigned it here, and elsewhere otherwise.
func TestUndecidedArrival(t *testing.T) {
	t.Parallel()
	d := live(t, register(t, 2, 100))
	f, _ := wakingOn(t, d)
	came := &arriving{}
	f.carrier = newCarrier(Travel{Bucket: objects.Folder(t.TempDir()), Engine: came}, f.resident)
	for _, id := range []string{"recorded", "assigned", "elsewhere"} {
		p := at(id)
		p.Only = []string{"n1"}
		h := asleepOf(t, d, p)
		if id != "elsewhere" {
			if err := d.handOver(t.Context(), "n1", h, "n0"); err != nil {
				t.Fatal(err)
			}
			h.Node, h.Here = "n0", false
		}
		if id == "recorded" {
			if err := d.arrived(t.Context(), h, "n0"); err != nil {
				t.Fatal(err)
			}
		}
		came.list = append(came.list, arrivalOf(h))
	}
	lost, err := pgxpool.New(t.Context(), "postgres://127.0.0.1:1/none")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(lost.Close)
	f.dir = &Directory{db: lost}
	f.carrier.settleAll(t.Context())
	if len(came.list) != 3 {
		t.Errorf("decided without an answer: %+v", came.list)
	}
	called := func(context.Context) error { t.Error("the call was made"); return nil }
	if err := f.resident.around(t.Context(), verb.Call{Verb: "Exec", Sandbox: "recorded"}, nil, called); hutch.KindOf(err) != hutch.Unavailable {
		t.Errorf("a call meanwhile: %v", err)
	}
	f.dir = d
	slow, err := d.db.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer slow.Rollback(context.Background())
	if _, err := slow.Exec(t.Context(), "SET LOCAL idle_in_transaction_session_timeout = 0"); err != nil {
		t.Fatal(err)
	}
	if _, err := slow.Exec(t.Context(), "SELECT 1 FROM fleet_holders FOR UPDATE"); err != nil {
		t.Fatal(err)
	}
	f.carrier.settleTime = 50 * time.Millisecond
	if err := f.carrier.settle(t.Context(), Name{ID: "assigned"}); !errors.Is(err, travel.ErrUndecided) || len(came.list) != 3 {
		t.Errorf("a database that does not answer in time: %v, %+v", err, came.list)
	}
	if err := slow.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	f.carrier.settleTime = time.Minute
	came.bad = travel.ErrBadNote // the unreadable note of another sandbox
	if err := f.carrier.settle(t.Context(), Name{ID: "not-coming"}); err != nil {
		t.Errorf("a note of another sandbox cannot be read: %v", err)
	}
	f.carrier.settleAll(t.Context())
	if len(came.list) != 0 {
		t.Errorf("not decided: %+v", came.list)
	}
	for id, want := range map[string]bool{"recorded": true, "assigned": true, "elsewhere": false} {
		h, ok, err := d.holder(t.Context(), Name{ID: id})
		if err != nil || !ok || !h.Here || (h.Node == "n0") != want || f.resident.has(h.Name) != want {
			t.Errorf("%s: %+v %v", id, h, err)
		}
	}
}

// TestClaimOfAnUndecidedArrival: a node that starts gives up its claims, except those to sandboxes whose arrivals are
// undecided. Without the claim, the files of the arrival would always be removed.
func TestClaimOfAnUndecidedArrival(t *testing.T) {
	t.Parallel()
	d := live(t, register(t, 2, 100))
	f, _ := wakingOn(t, d)
	came := &arriving{}
	f.carrier = newCarrier(Travel{Bucket: objects.Folder(t.TempDir()), Engine: came}, f.resident)
	var claimed []Holder
	for _, id := range []string{"undecided", "given-up"} {
		p := at(id)
		p.Only = []string{"n1"}
		claimed = append(claimed, asleepOf(t, d, p))
	}
	die(t, d, "n1")
	for _, h := range claimed {
		if err := d.claim(t.Context(), h, "n0"); err != nil {
			t.Fatal(err)
		}
	}
	came.list = append(came.list, arrivalOf(claimed[0]))
	slow, err := d.db.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer slow.Rollback(context.Background())
	if _, err := slow.Exec(t.Context(), "SELECT 1 FROM fleet_holders WHERE id = 'undecided' FOR UPDATE"); err != nil {
		t.Fatal(err)
	}
	f.carrier.settleTime = 50 * time.Millisecond
	if err := f.carrier.begin(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := slow.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if h, _, err := d.holder(t.Context(), claimed[1].Name); err != nil || h.Fetcher != "" {
		t.Errorf("the claim of an earlier process: %+v %v", h, err)
	}
	f.carrier.settleTime = time.Minute
	f.carrier.settleAll(t.Context())
	if h, _, err := d.holder(t.Context(), claimed[0].Name); err != nil || h.Node != "n0" || !h.Here || len(came.list) != 0 {
		t.Errorf("the arrival that was undecided: %+v %v, %+v", h, err, came.list)
	}
}

// notYet is an engine whose sandboxes cannot wake before a time.
type notYet struct {
	sleeper
	from  time.Time
	woken bool
}

func (*notYet) CameAwake() []travel.Arrival { return []travel.Arrival{{Sandbox: "a"}} }

func (j *notYet) Resume(context.Context, string) (hutch.Sandbox, error) {
	if time.Now().Before(j.from) {
		return hutch.Sandbox{}, hutch.Errorf(hutch.Unavailable, "this node is about to join its fleet")
	}
	j.woken = true
	return hutch.Sandbox{}, nil
}

// TestResumeBeforeTheFleet: a sandbox that was awake elsewhere wakes here, even if it arrived before this node had
// joined its fleet.
func TestResumeBeforeTheFleet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for after, want := range map[time.Duration]bool{0: true, 3 * time.Second: true, time.Hour: false} {
			f, _ := wakingOn(t, nil)
			j := &notYet{from: time.Now().Add(after)}
			f.carrier = newCarrier(Travel{Engine: j}, f.resident)
			if f.carrier.resume(t.Context(), Holder{Name: Name{ID: "a"}}); j.woken != want {
				t.Errorf("after %v: it is awake: %v", after, j.woken)
			}
		}
	})
}

// TestCameAwake: if the start of the engine has completed the arrival of a sandbox that was awake elsewhere, the
// sandbox wakes here.
func TestCameAwake(t *testing.T) {
	t.Parallel()
	f, _ := wakingOn(t, live(t, register(t, 1, 100)))
	j := &notYet{}
	f.carrier = newCarrier(Travel{Engine: j}, f.resident)
	if err := f.carrier.begin(t.Context()); err != nil {
		t.Fatal(err)
	}
	if f.runs.Wait(); !j.woken {
		t.Error("it sleeps")
	}
}

// TestLostAnswerToACarry: the directory recorded the arrival of a sandbox, but the answer was lost, so its files were
// removed here. It is fetched again. A sandbox that was destroyed is removed with its image.
func TestLostAnswerToACarry(t *testing.T) {
	t.Parallel()
	d := live(t, register(t, 1, 100))
	f, here := wakingOn(t, d, "here")
	bucket := objects.Folder(t.TempDir())
	came := &arriving{}
	f.carrier = newCarrier(Travel{Bucket: bucket, Engine: came}, f.resident)
	if _, err := d.db.Exec(t.Context(), "CREATE TABLE hutch.sandboxes (owner text, sandbox text, node text)"); err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"lost", "leaving", "destroyed", "kept"} {
		h := asleep(t, d, id)
		if id == "kept" { // its files are still here
			came.list = append(came.list, arrivalOf(h))
		}
		if err := bucket.Put(t.Context(), h.Image.Key, strings.NewReader("files")); err != nil {
			t.Fatal(err)
		}
		f.carrier.setKey(h.Name, h.Image.Key)
		if id == "destroyed" { // its record is deleted
			continue
		}
		if _, err := d.db.Exec(t.Context(), "INSERT INTO hutch.sandboxes VALUES ('', $1, 'n0')", id); err != nil {
			t.Fatal(err)
		}
	}
	f.resident.leaving[Name{ID: "leaving"}] = true
	if _, err := d.db.Exec(t.Context(), "UPDATE fleet_holders SET placed = now() - interval '1 hour'"); err != nil {
		t.Fatal(err)
	}
	list := here.list
	here.list = nil // for isGone, which asks for one id
	f.resident.compare(t.Context(), list)
	for id, want := range map[string]bool{"here": true, "lost": true, "kept": true, "leaving": false, "destroyed": false} {
		h, ok, err := d.holder(t.Context(), Name{ID: id})
		if err != nil || ok != want || ok && h.Here != (id == "here" || id == "kept") {
			t.Errorf("%s: %v %+v %v", id, ok, h, err)
		}
	}
	var node string
	if err := d.db.QueryRow(t.Context(), "SELECT node FROM hutch.sandboxes WHERE sandbox = 'lost'").Scan(&node); err != nil || node != "" {
		t.Errorf("the record is on the node %q, %v", node, err)
	}
	f.runs.Wait() // until the dropped objects are removed
	keys, err := bucket.List(t.Context(), "")
	if err != nil || len(keys) != 2 || keys[0] != "key of kept" || keys[1] != "key of lost" {
		t.Errorf("the bucket has %q, %v", keys, err)
	}
	if !f.resident.has(Name{ID: "kept"}) || len(came.list) != 0 {
		t.Error("a sandbox whose files are here is not here")
	}
	if list, err := d.toFetch(t.Context(), "n0"); err != nil || len(list) != 1 || list[0].ID != "lost" {
		t.Errorf("to be fetched: %+v %v", list, err)
	}
}

// TestReservedAfterUnfinishedRemoval: a create does not use the reservation of an earlier sandbox of the same id while
// the removal of that one is unanswered, because the removal can still take effect.
func TestReservedAfterUnfinishedRemoval(t *testing.T) {
	t.Parallel()
	d := live(t, register(t, 1, 100))
	f, _ := wakingOn(t, d)
	name := Name{ID: "one"}
	placedAt := func() time.Time {
		h, ok, err := d.holder(t.Context(), name)
		if err != nil || !ok {
			t.Fatalf("it has no place: %v", err)
		}
		return h.Placed
	}
	if _, _, err := d.place(t.Context(), at("one")); err != nil {
		t.Fatal(err)
	}
	before := placedAt()
	reserve := func() {
		if err := f.resident.keepReservation(t.Context(), name, hutch.CreateRequest{ID: "one"}); err != nil {
			t.Fatal(err)
		}
	}
	if reserve(); placedAt() != before {
		t.Error("without a removal, it is placed again")
	}
	f.resident.leaving[name] = true
	if reserve(); placedAt() == before {
		t.Error("it has the place of the earlier sandbox")
	}
}

// evicting is an engine that records what it removes.
type evicting struct {
	sleeper
	evicted []string
}

func (e *evicting) Evict(_ context.Context, _, id string) error {
	e.evicted = append(e.evicted, id)
	return nil
}

// Asleep acts as if, by the directory, the sandbox were not on this node.
func (e *evicting) Asleep(context.Context, string, string, func(context.Context, travel.Image, func(io.Writer) error) error) error {
	return errMoved
}

// TestOnlyHere: a sandbox that is here but missing in the directory is added again if its record belongs to this node.
// If it was destroyed elsewhere, or another node has it, it is removed here. A sandbox that is just arriving or leaving
// is not changed.
func TestOnlyHere(t *testing.T) {
	t.Parallel()
	d := live(t, register(t, 2, 100))
	f, here := wakingOn(t, d)
	engine := &evicting{}
	f.carrier = newCarrier(Travel{Bucket: objects.Folder(t.TempDir()), Engine: engine}, f.resident)
	if _, err := d.db.Exec(t.Context(), "CREATE TABLE hutch.sandboxes (owner text, sandbox text, node text)"); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ id, record, node string }{
		{"listed", "n0", "n0"}, {"lost", "n0", ""}, {"destroyed", "", ""}, {"destroyed just now", "n1", ""}, {"taken", "n1", "n1"}, {"coming", "n0", ""},
	} {
		here.list = append(here.list, hutch.Sandbox{ID: c.id, Status: hutch.Hibernated, Limits: hutch.Limits{Memory: 512, CPU: 1}})
		if c.id != "coming" {
			f.resident.note(Name{ID: c.id}, false)
		}
		if c.record != "" {
			if _, err := d.db.Exec(t.Context(), "INSERT INTO hutch.sandboxes VALUES ('', $1, $2)", c.id, c.record); err != nil {
				t.Fatal(err)
			}
		}
		if c.node != "" {
			p := at(c.id)
			p.Only = []string{c.node}
			asleepOf(t, d, p)
		}
	}
	f.resident.compare(t.Context(), here.list)
	f.runs.Wait()
	slices.Sort(engine.evicted)
	if want := []string{"destroyed", "destroyed just now", "taken"}; !slices.Equal(engine.evicted, want) {
		t.Errorf("removed here: %q, not %q", engine.evicted, want)
	}
	for id, want := range map[string]string{"listed": "n0", "lost": "n0", "destroyed": "", "destroyed just now": "", "taken": "n1", "coming": ""} {
		if h, _, err := d.holder(t.Context(), Name{ID: id}); err != nil || h.Node != want {
			t.Errorf("the directory has %s on %q, not %q: %v", id, h.Node, want, err)
		}
	}
	if f.resident.has(Name{ID: "taken"}) || !f.resident.has(Name{ID: "lost"}) {
		t.Error("this node has what is removed, or not what is added again")
	}

	// If writing a sleeping sandbox to the bucket fails for this reason, the node corrects that at once, and not at the
	// next comparison.
	if _, err := d.db.Exec(t.Context(), "DELETE FROM fleet_holders WHERE id = 'lost'"); err != nil {
		t.Fatal(err)
	}
	f.carrier.keepLater(t.Context(), here.list[1])
	if h, _, err := d.holder(t.Context(), Name{ID: "lost"}); err != nil || h.Node != "n0" {
		t.Errorf("the directory has it on %q: %v", h.Node, err)
	}
}

// TestDiffStaysOnFullNode: a sandbox that is to be compared with a snapshot of its node does not move to another node.
func TestDiffStaysOnFullNode(t *testing.T) {
	t.Parallel()
	f, _ := wakingOn(t, live(t, register(t, 1, 1)))
	f.carrier = newCarrier(Travel{Engine: sleeper{}}, f.resident) // its engine has no sandboxes, so it can move none
	tries := 0
	err := f.resident.withRoom(t.Context(), verb.Call{Verb: "DiffSnapshot", Sandbox: "a"}, Name{ID: "a"}, func(context.Context) error {
		tries++
		return hutch.Errorf(hutch.Exhausted, "the node is full").With("limit", roomOfNode)
	})
	if !isFull(err) || err.Error() != "the node is full" || tries != 2 {
		t.Errorf("after %d tries: %v", tries, err)
	}
}
