package fleet

import (
	"context"
	"slices"
	"sync"
	"time"

	"hutch"
	"hutch/internal/delay"
)

// Accounts returns the use of the sandboxes of all nodes.
func (f *Fleet) Accounts(here hutch.Accounts) hutch.Accounts { return accounts{f, here} }

type accounts struct {
	f    *Fleet
	here hutch.Accounts
}

// on returns the accounts of a node, which can be this one.
func (a accounts) on(s hutch.Service) hutch.Accounts {
	if p, ok := s.(*peer); ok {
		return p
	}
	return a.here
}

// Usage implements hutch.Accounts.
func (a accounts) Usage(ctx context.Context) (hutch.UsageReport, error) {
	all, err := gather(ctx, a.f, func(s hutch.Service, ctx context.Context) (hutch.UsageReport, error) {
		return a.on(s).Usage(ctx)
	}, func(_ string, r hutch.UsageReport) []hutch.UsageReport { return []hutch.UsageReport{r} })
	sum := hutch.UsageReport{Sandboxes: []hutch.Usage{}, Owners: []hutch.Usage{}}
	for _, r := range all {
		sum.Sandboxes = append(sum.Sandboxes, r.Sandboxes...)
		for _, u := range r.Owners {
			if i := slices.IndexFunc(sum.Owners, func(o hutch.Usage) bool { return o.Owner == u.Owner }); i >= 0 {
				sum.Owners[i] = sum.Owners[i].Add(u)
			} else {
				sum.Owners = append(sum.Owners, u)
			}
		}
	}
	return sum, err
}

// UsageHistory implements hutch.Accounts. All nodes keep the history in the same store.
func (a accounts) UsageHistory(ctx context.Context, q hutch.UsageQuery) ([]hutch.Usage, error) {
	return a.here.UsageHistory(ctx, q)
}

// Stats implements hutch.Accounts. The first report has the sandboxes of all nodes. Each later report has the changes
// of one node.
func (a accounts) Stats(ctx context.Context, req hutch.StatsRequest, out func(hutch.StatsReport) error) error {
	known := statsOfNodes{}
	once := hutch.StatsRequest{Interval: req.Interval}
	all, err := gather(ctx, a.f, func(s hutch.Service, ctx context.Context) (list []hutch.Stats, err error) {
		err = a.on(s).Stats(ctx, once, func(r hutch.StatsReport) error { list = append(list, r.Sandboxes...); return nil })
		return list, err
	}, func(node string, list []hutch.Stats) []hutch.Stats { return known.changes(node, true, list) })
	if err != nil {
		return err
	}
	slices.SortStableFunc(all, func(x, y hutch.Stats) int { return x.CreatedAt.Compare(y.CreatedAt) })
	if all == nil {
		all = []hutch.Stats{}
	}
	if err := out(hutch.StatsReport{Time: time.Now().UTC(), Full: true, Sandboxes: all}); err != nil || !req.Follow {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	f := &statsFollower{accounts: a, req: req, out: out, end: cancel, known: known, following: map[string]context.CancelFunc{}}
	var nodes sync.WaitGroup
	nodes.Go(func() { cancel(plain(a.here.Stats(ctx, req, f.from(ctx, a.f.node.info.ID)))) })
	nodes.Go(func() { f.followOthers(ctx) })
	nodes.Wait()
	return context.Cause(ctx)
}

// statsFollower joins the reports of all nodes for a caller.
type statsFollower struct {
	accounts
	req hutch.StatsRequest
	out func(hutch.StatsReport) error
	end context.CancelCauseFunc

	mu        sync.Mutex
	known     statsOfNodes
	following map[string]context.CancelFunc // functions that end the streams of the other nodes
}

// eachNode is how often a follower looks for nodes to follow: new ones, and those whose stream has ended.
const eachNode = time.Second

// followOthers follows the other nodes until ctx is done.
func (f *statsFollower) followOthers(ctx context.Context) {
	var nodes sync.WaitGroup
	defer nodes.Wait()
	for ctx.Err() == nil {
		alive, dead := f.f.node.others()
		for _, info := range alive {
			if ctx := f.begin(ctx, info.ID); ctx != nil {
				nodes.Go(func() { f.followNode(ctx, info) })
			}
		}
		f.noteAway(ctx, alive, dead)
		delay.Wait(ctx, eachNode)
	}
}

// noteAway reports the sandboxes of nodes that are away as failed, and those of removed nodes as gone.
func (f *statsFollower) noteAway(ctx context.Context, alive, dead []NodeInfo) {
	is := func(list []NodeInfo, node string) bool {
		return slices.ContainsFunc(list, func(n NodeInfo) bool { return n.ID == node })
	}
	for node := range f.nodes() {
		if node == f.f.node.info.ID || is(alive, node) {
			continue
		}
		f.endNode(node) // so that a node that is back reports all its sandboxes again
		f.report(ctx, hutch.StatsReport{Time: time.Now().UTC(), Partial: true}, func() []hutch.Stats {
			if is(dead, node) {
				return f.known.failed(node)
			}
			return f.known.changes(node, true, nil)
		})
	}
}

// nodes returns the nodes of the sandboxes that the caller knows.
func (f *statsFollower) nodes() map[string]bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	nodes := map[string]bool{}
	for _, s := range f.known {
		nodes[s.node] = true
	}
	return nodes
}

// begin returns the context for following a node; nil if the node is already followed.
func (f *statsFollower) begin(ctx context.Context, node string) context.Context {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.following[node] != nil {
		return nil
	}
	ctx, f.following[node] = context.WithCancel(ctx)
	return ctx
}

// endNode ends the stream of a node.
func (f *statsFollower) endNode(node string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if end := f.following[node]; end != nil {
		end()
		delete(f.following, node)
	}
}

// followNode follows a node until its stream ends.
func (f *statsFollower) followNode(ctx context.Context, info NodeInfo) {
	if p, err := f.f.peers.of(info); err == nil {
		p.Stats(ctx, f.req, f.from(ctx, info.ID)) // after an error, the next look follows the node again
	}
	if delay.Wait(ctx, eachNode) == nil {
		f.endNode(info.ID)
	}
}

// from returns the function that receives the reports of a node.
func (f *statsFollower) from(ctx context.Context, node string) func(hutch.StatsReport) error {
	return func(r hutch.StatsReport) error {
		return f.report(ctx, r, func() []hutch.Stats { return f.known.changes(node, r.Full, r.Sandboxes) })
	}
}

// report sends a report of one node with the rows that rows returns, if there are any. It calls rows with mu held.
func (f *statsFollower) report(ctx context.Context, r hutch.StatsReport, rows func() []hutch.Stats) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	r.Full, r.Sandboxes = false, rows()
	if len(r.Sandboxes) == 0 {
		return nil
	}
	err := f.out(r)
	if err != nil {
		f.end(err)
	}
	return err
}

// statsOfNodes has the sandboxes that a caller knows, each with its node.
type statsOfNodes map[Name]nodeStats

type nodeStats struct {
	node string
	hutch.Stats
}

// changes returns the rows of a node's report that are new to the caller. A sandbox that was on the node but is missing
// in a full report is gone, unless it has moved to another node.
func (k statsOfNodes) changes(node string, full bool, list []hutch.Stats) (rows []hutch.Stats) {
	there := make(map[Name]bool, len(list))
	for _, s := range list {
		name := Name{s.Owner, s.SandboxID}
		there[name] = true
		old, ok := k[name]
		switch {
		case s.Status == hutch.Destroyed && (!ok || old.node != node):
		case s.Status == hutch.Destroyed:
			delete(k, name)
			rows = append(rows, s)
		default:
			k[name] = nodeStats{node, s}
			if !ok || old.Stats != s {
				rows = append(rows, s)
			}
		}
	}
	if !full {
		return rows
	}
	for name, old := range k {
		if old.node == node && !there[name] {
			delete(k, name)
			rows = append(rows, old.Ended(hutch.Destroyed))
		}
	}
	return rows
}

// failed returns the rows for a node that is away: as far as other nodes know, its sandboxes do not run. A second call
// returns nothing.
func (k statsOfNodes) failed(node string) (rows []hutch.Stats) {
	for name, old := range k {
		if old.node != node || old.Status != hutch.Running {
			continue
		}
		old.Stats = old.Ended(hutch.Failed)
		old.Health = hutch.Unhealthy
		k[name] = old
		rows = append(rows, old.Stats)
	}
	return rows
}
