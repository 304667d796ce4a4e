package fleet

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"hutch"
	"hutch/internal/verb"
)

// listing is a service that has only sandboxes to list.
type listing struct {
	hutch.Service
	list []hutch.Sandbox
}

func (l *listing) Sandboxes(context.Context, hutch.Filter) ([]hutch.Sandbox, error) {
	return l.list, nil
}

// wakingOn is a fleet as its node n0 sees it, without a bucket. The node serves, and holds the given sandboxes, which are asleep.
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

// TestReportWhileWaking: a report in the middle of a wake keeps the promise of the sandbox, and a report after a wake that failed frees it.
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

// TestLostAnswerToAWake: the directory has a sandbox as awake, but the answer was lost and the sandbox sleeps. The next report corrects the directory.
func TestLostAnswerToAWake(t *testing.T) {
	t.Parallel()
	d := live(t, register(t, 1, 1))
	f, _ := wakingOn(t, d, "a", "b")
	if _, err := d.waking(t.Context(), "n0", Name{ID: "a"}, false); err != nil {
		t.Fatal(err)
	}
	lost, err := pgxpool.New(t.Context(), "postgres://127.0.0.1:1/none")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(lost.Close)
	f.dir, f.carrier = &Directory{db: lost}, newCarrier(Travel{}, f.resident)
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

// TestDiffStaysOnFullNode: a sandbox that is to be compared with a snapshot of its node does not move to another node.
func TestDiffStaysOnFullNode(t *testing.T) {
	t.Parallel()
	f, _ := wakingOn(t, live(t, register(t, 1, 1)))
	f.carrier = newCarrier(Travel{}, f.resident) // it has no engine, so it can move nothing
	tries := 0
	err := f.resident.withRoom(t.Context(), verb.Call{Verb: "DiffSnapshot", Sandbox: "a"}, Name{ID: "a"}, func(context.Context) error {
		tries++
		return hutch.Errorf(hutch.Exhausted, "the node is full").With("limit", roomOfNode)
	})
	if !isFull(err) || err.Error() != "the node is full" || tries != 2 {
		t.Errorf("after %d tries: %v", tries, err)
	}
}
