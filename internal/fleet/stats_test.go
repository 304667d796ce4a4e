package fleet_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"hutch"
	"hutch/internal/fleet"
)

// follower follows the use of sandboxes on all nodes.
type follower struct {
	mu      sync.Mutex
	status  map[string]hutch.Status
	reports []hutch.StatsReport
	ends    map[string]int
}

func follow(t *testing.T, accounts hutch.Accounts) *follower {
	t.Helper()
	f := &follower{status: map[string]hutch.Status{}, ends: map[string]int{}}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- accounts.Stats(ctx, hutch.StatsRequest{Follow: true, Interval: 60}, func(r hutch.StatsReport) error {
			f.mu.Lock()
			defer f.mu.Unlock()
			f.reports = append(f.reports, r)
			for _, s := range r.Sandboxes {
				if f.status[s.SandboxID] = s.Status; s.Status == hutch.Destroyed {
					f.ends[s.SandboxID]++
				}
			}
			return nil
		})
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
	return f
}

func (f *follower) is(id string, want hutch.Status) func() bool {
	return func() bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		return f.status[id] == want
	}
}

// TestStats: a follower on one node sees the sandboxes of all nodes at once, also of a node that is added later. The
// end of a sandbox is reported once. The sandboxes of a node that goes away are reported as failed.
func TestStats(t *testing.T) {
	t.Parallel()
	b := newBed(t, 2)
	a, c := b.nodes[0], b.nodes[1]
	made := 0
	onNode := func(n *member) string {
		t.Helper()
		for {
			made++
			id := fmt.Sprintf("box-%d", made)
			if _, err := a.Create(t.Context(), hutch.CreateRequest{ID: id}); err != nil {
				t.Fatal(err)
			}
			if _, err := n.engine.Sandbox(t.Context(), id); err == nil {
				return id
			}
		}
	}
	here, there := onNode(a), onNode(c)
	f := follow(t, a.Accounts(a.engine))
	eventually(t, "the first report", func() bool { return f.is(here, hutch.Running)() && f.is(there, hutch.Running)() })
	f.mu.Lock()
	if first := f.reports[0]; !first.Full || len(first.Sandboxes) != made {
		t.Errorf("the first report is %+v", first)
	}
	f.mu.Unlock()

	later := onNode(c)
	eventually(t, "what begins on the other node", f.is(later, hutch.Running))
	if _, err := a.Destroy(t.Context(), there, true); err != nil {
		t.Fatal(err)
	}
	eventually(t, "what ends on the other node", f.is(there, hutch.Destroyed))

	id, err := b.join(t, "late")
	if err != nil {
		t.Fatal(err)
	}
	late := b.begin(t, id, func(*fleet.Options) {})
	eventually(t, "the new node is known", func() bool { return len(a.Nodes()) == 3 })
	young := onNode(late)
	eventually(t, "what begins on a new node", f.is(young, hutch.Running))

	if err := c.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	eventually(t, "what was on a node that is away", f.is(later, hutch.Failed))
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.ends[there] != 1 || len(f.ends) != 1 {
		t.Errorf("the ends are %v", f.ends)
	}
	for i, r := range f.reports {
		if r.Full != (i == 0) {
			t.Errorf("report %d is full: %v", i, r.Full)
		}
	}
}
