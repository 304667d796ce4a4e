package fleet_test

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"hutch"
	"hutch/internal/caller"
	"hutch/internal/fleet"
	"hutch/internal/hutchtest/pgtest"
	"hutch/internal/hutchtest/plot"
)

var (
	scaleNodes     = flag.Int("scale-nodes", 10, "nodes of TestScale")
	scaleSandboxes = flag.Int("scale-sandboxes", 300, "sandboxes of TestScale")
	scalePlots     = flag.String("scale-plots", "", "the folder for the plot of TestScale; none by default")
)

// TestScale fills a fleet, wakes all its sandboxes at once, and loses a tenth of its nodes. The nodes are real except
// for their engines, which are tables in memory, so the figures are those of the fleet only. The figures in
// docs/decisions/fleet.md come from:
//
//	go test ./internal/fleet -run TestScale -v -scale-nodes 100 -scale-sandboxes 100000 -scale-plots "$PWD/docs/plots" -timeout 30m
func TestScale(t *testing.T) {
	nodes, count := *scaleNodes, *scaleSandboxes
	chart := plot.Chart{Name: "fleet-scale", Title: fmt.Sprintf("%d nodes, %d sandboxes: calls that ended in each second", nodes, count)}
	var links []*pgtest.Link
	here := make([]*memoryEngine, nodes)
	lost := max(1, nodes/10)
	began := time.Now()
	b := newBed(t, nodes, func(i int, o *fleet.Options) {
		here[i] = &memoryEngine{boxes: map[scaleName]hutch.Sandbox{}}
		o.Here, o.Previews = here[i], nil
		o.Room = hutch.NodeRoom{Memory: 512 * int64(2*count/nodes), CPU: 1e6, Sandboxes: int64(count)}
		if i >= nodes-lost { // the test can cut them off
			link := pgtest.NewLink(t, o.Identity.Store)
			links = append(links, link)
			o.Directory = openDirectory(t, link.URL)
		}
	})
	t.Logf("%d nodes have begun after %v", nodes, time.Since(began).Round(time.Millisecond))
	doors := b.nodes[:max(1, nodes/10)] // clients call only a few of the nodes

	ids := make([]string, count)
	for i := range ids {
		ids[i] = fmt.Sprintf("box-%d", i)
	}
	each(t, &chart, "create", doors, ids, func(n *member, id string) error {
		_, err := n.Create(t.Context(), hutch.CreateRequest{ID: id})
		return err
	})
	most, least := spread(t, b)
	t.Logf("%d sandboxes: the fullest node holds %d, the emptiest %d", count, most, least)

	var bytes int64
	if err := pgtest.Connect(t, b.store).QueryRow(t.Context(), "SELECT sum(pg_total_relation_size(c.oid)) FROM pg_class c WHERE relname LIKE 'fleet%' AND relkind = 'r'").Scan(&bytes); err != nil {
		t.Fatal(err)
	}
	t.Logf("the fleet's tables and their indexes have %d bytes for each sandbox", bytes/int64(count))

	for _, e := range here {
		e.setAll(hutch.Hibernated)
	}
	eventually(t, "nothing is promised to sandboxes that sleep", func() bool { return promisedTo(t, b) == 0 })
	each(t, &chart, "wake", doors, ids, func(n *member, id string) error {
		_, err := n.Exec(t.Context(), id, hutch.ExecRequest{Command: "true"}, nil)
		return err
	})
	began = time.Now()
	eventually(t, "the directory knows that all are awake", func() bool { return promisedTo(t, b) == int64(count) })
	t.Logf("the directory knew all that woke %v later", time.Since(began).Round(time.Millisecond))

	began = time.Now()
	for _, link := range links {
		link.Hold()
	}
	eventually(t, "the others know which nodes are away", func() bool {
		return !slices.ContainsFunc(doors, func(m *member) bool { return alive(m) != nodes-lost })
	})
	t.Logf("%d nodes were lost, and all knew it after %v", lost, time.Since(began).Round(time.Millisecond))
	began = time.Now()
	list, err := doors[0].Sandboxes(t.Context(), hutch.Filter{})
	if err != nil || len(list) != count {
		t.Fatalf("%d of %d sandboxes are listed, %v", len(list), count, err)
	}
	t.Logf("a list of all %d took %v", count, time.Since(began).Round(time.Millisecond))
	var gone []string
	for _, sb := range list {
		if sb.Status == hutch.Failed {
			gone = append(gone, sb.ID)
		}
	}
	began = time.Now()
	for _, n := range b.nodes[nodes-lost:] {
		if _, err := b.dir.RemoveNode(t.Context(), n.id.Node, false); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("%d nodes with %d sandboxes were removed in %v", lost, len(gone), time.Since(began).Round(time.Millisecond))
	each(t, &chart, "create what was lost", doors, gone, func(n *member, id string) error {
		_, err := n.Create(t.Context(), hutch.CreateRequest{ID: id})
		return err
	})
	if held := promisedTo(t, b); held != int64(count) {
		t.Errorf("%d of %d sandboxes are promised their memory", held, count)
	}
	for _, link := range links {
		link.Heal()
	}
	if *scalePlots != "" {
		if err := chart.Save(*scalePlots); err != nil {
			t.Error(err)
		}
	}
}

// each calls do for all ids, by 64 clients, prints how fast that was, and adds to the chart how many calls ended in each
// second.
func each(t *testing.T, chart *plot.Chart, what string, doors []*member, ids []string, do func(*member, string) error) {
	t.Helper()
	var next atomic.Int64
	var clients sync.WaitGroup
	times, ends := make([]time.Duration, len(ids)), make([]time.Duration, len(ids))
	began := time.Now()
	for range 64 {
		clients.Go(func() {
			for i := next.Add(1) - 1; int(i) < len(ids); i = next.Add(1) - 1 {
				start := time.Now()
				if err := do(doors[rand.IntN(len(doors))], ids[i]); err != nil {
					t.Errorf("%s %s: %v (%v)", what, ids[i], err, hutch.AsError(err).Cause)
				}
				times[i], ends[i] = time.Since(start), time.Since(began)
			}
		})
	}
	clients.Wait()
	took := time.Since(began)
	slices.Sort(times)
	if len(times) == 0 {
		return
	}
	t.Logf("%s: %d in %v, %.0f/s; p50 %v, p99 %v", what, len(ids), took.Round(time.Millisecond), float64(len(ids))/took.Seconds(),
		times[len(times)/2].Round(10*time.Microsecond), times[len(times)*99/100].Round(10*time.Microsecond))
	bySecond := make([]float64, int(took.Seconds())+1)
	for _, end := range ends {
		bySecond[int(end.Seconds())]++
	}
	chart.Lines = append(chart.Lines, plot.Line{Name: what, Y: bySecond})
	for len(chart.X) < len(bySecond) {
		chart.X = append(chart.X, len(chart.X))
	}
}

func spread(t *testing.T, b *bed) (most, least int64) {
	t.Helper()
	list, err := b.dir.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	most, least = list[0].Held, list[0].Held
	for _, n := range list {
		most, least = max(most, n.Held), min(least, n.Held)
		if n.Promised.Memory > n.Room.Memory {
			t.Errorf("the node %s has %d MiB and is promised %d", n.ID, n.Room.Memory, n.Promised.Memory)
		}
	}
	return most, least
}

func promisedTo(t *testing.T, b *bed) (sandboxes int64) {
	t.Helper()
	list, err := b.dir.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range list {
		sandboxes += n.Promised.Sandboxes
	}
	return sandboxes
}

func alive(m *member) (count int) {
	for _, n := range m.Nodes() {
		if n.Alive {
			count++
		}
	}
	return count
}

// memoryEngine is a table of sandboxes that do not run.
type memoryEngine struct {
	hutch.Service // for the methods that this test does not call

	mu    sync.Mutex
	boxes map[scaleName]hutch.Sandbox
}

type scaleName struct{ owner, id string }

func scaleNameOf(ctx context.Context, id string) scaleName {
	o, _ := caller.OwnerOf(ctx)
	return scaleName{o.ID, id}
}

// Create implements hutch.Service.
func (e *memoryEngine) Create(ctx context.Context, req hutch.CreateRequest) (hutch.Sandbox, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	name := scaleNameOf(ctx, req.ID)
	sb, ok := e.boxes[name]
	if !ok {
		sb = hutch.Sandbox{ID: req.ID, Owner: name.owner, Status: hutch.Running, Limits: hutch.Limits{Memory: 512, CPU: 1}, CreatedAt: time.Now().UTC(), Processes: []hutch.Process{}}
		e.boxes[name] = sb
	}
	return sb, nil
}

// Exec implements hutch.Service: it wakes a sandbox.
func (e *memoryEngine) Exec(ctx context.Context, id string, _ hutch.ExecRequest, _ func(hutch.Output) error) (hutch.ExecResult, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	name := scaleNameOf(ctx, id)
	sb, ok := e.boxes[name]
	if !ok {
		return hutch.ExecResult{}, hutch.Errorf(hutch.NotFound, "there is no sandbox %q", id)
	}
	sb.Status = hutch.Running
	e.boxes[name] = sb
	return hutch.ExecResult{}, nil
}

// Sandboxes implements hutch.Service.
func (e *memoryEngine) Sandboxes(ctx context.Context, filter hutch.Filter) (list []hutch.Sandbox, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if filter.ID != "" {
		if sb, ok := e.boxes[scaleNameOf(ctx, filter.ID)]; ok {
			list = append(list, sb)
		}
		return list, nil
	}
	return slices.Collect(maps.Values(e.boxes)), nil
}

// Snapshots implements hutch.Service: there are none.
func (e *memoryEngine) Snapshots(context.Context) ([]hutch.Snapshot, error) { return nil, nil }

func (e *memoryEngine) setAll(s hutch.Status) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for name, sb := range e.boxes {
		sb.Status = s
		e.boxes[name] = sb
	}
}
