package fleet

import (
	"context"
	"slices"
	"sync"
	"time"

	"hutch"
	"hutch/internal/caller"
)

// needsAll marks the context of calls that need the answers of all nodes.
type needsAll struct{}

// gather asks all live nodes at once. A node that does not answer is left out and logged; if the call needs the answers
// of all nodes (needsAll), gather returns an error.
func gather[T, U any](ctx context.Context, f *Fleet, ask func(hutch.Service, context.Context) (T, error), with func(node string, answer T) []U) ([]U, error) {
	all, silent, err := gatherNoting(ctx, f, ask, with)
	if err == nil && len(silent) > 0 && ctx.Value(needsAll{}) != nil {
		return nil, hutch.Errorf(hutch.Unavailable, "the node %s does not answer, and can have more of what is listed or deleted here: try again when it answers; an administrator removes a node that does not come back with `hutch node rm`", silent[0]).With("node", silent[0])
	}
	return all, err
}

// gatherNoting does the same as gather, and also returns the nodes that were left out.
func gatherNoting[T, U any](ctx context.Context, f *Fleet, ask func(hutch.Service, context.Context) (T, error), with func(node string, answer T) []U) (all []U, silent []string, err error) {
	if err := f.node.serving(); err != nil {
		return nil, nil, err
	}
	mine, err := ask(f.resident, ctx)
	if err != nil {
		return nil, nil, err
	}
	all = with(f.node.info.ID, mine)
	others, _ := f.node.others()
	var mu sync.Mutex
	var asking sync.WaitGroup
	short, cancel := context.WithTimeout(ctx, gatherTime)
	defer cancel()
	for _, info := range others {
		asking.Go(func() {
			p, err := f.peers.of(info)
			var answer T
			if err == nil {
				answer, err = ask(p, short)
			}
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				f.log.Warn("a node does not answer, and is left out of a list", "node", info.ID, "err", plain(err))
				silent = append(silent, info.ID)
				return
			}
			all = append(all, with(info.ID, answer)...)
		})
	}
	asking.Wait()
	slices.Sort(silent)
	return all, silent, context.Cause(ctx)
}

// gatherTime is how long gather waits for a node.
const gatherTime = 10 * time.Second

// Sandboxes implements hutch.Service: it lists the sandboxes of all nodes. For a node that is away it has only the
// directory's data.
func (f *Fleet) Sandboxes(ctx context.Context, filter hutch.Filter) ([]hutch.Sandbox, error) {
	if filter.ID != "" {
		return f.one(ctx, filter)
	}
	before, err := f.lost(ctx, filter)
	if err != nil {
		return nil, err
	}
	all, err := gather(ctx, f, func(s hutch.Service, ctx context.Context) ([]hutch.Sandbox, error) { return s.Sandboxes(ctx, filter) },
		func(_ string, list []hutch.Sandbox) []hutch.Sandbox { return list })
	if err != nil {
		return nil, err
	}
	after, err := f.lost(ctx, filter)
	if err != nil {
		return nil, err
	}
	// A sandbox that moved between nodes during the queries can be in the list twice.
	seen := map[Name]bool{}
	for _, sb := range all {
		seen[Name{sb.Owner, sb.ID}] = true
	}
	for _, sb := range slices.Concat(after, before) {
		if name := (Name{sb.Owner, sb.ID}); !seen[name] {
			seen[name] = true
			all = append(all, sb)
		}
	}
	slices.SortStableFunc(all, func(a, b hutch.Sandbox) int { return a.CreatedAt.Compare(b.CreatedAt) })
	return all, nil
}

// one returns a list with only the sandbox whose id is in the filter.
func (f *Fleet) one(ctx context.Context, filter hutch.Filter) ([]hutch.Sandbox, error) {
	f.forget(nameIn(ctx, filter.ID)) // an outdated node would list nothing
	p, _, err := f.locate(ctx, nameIn(ctx, filter.ID))
	switch {
	case hutch.KindOf(err) == hutch.Unavailable && f.node.serving() == nil:
		return f.lost(ctx, filter)
	case err != nil:
		return nil, err
	case p == nil:
		return f.resident.Sandboxes(ctx, filter)
	}
	all, err := p.Sandboxes(ctx, filter) // REST has no filter by id
	return slices.DeleteFunc(all, func(s hutch.Sandbox) bool { return s.ID != filter.ID }), plain(err)
}

// lost lists sandboxes on nodes that are away.
func (f *Fleet) lost(ctx context.Context, filter hutch.Filter) (list []hutch.Sandbox, err error) {
	_, dead := f.node.others()
	if len(dead) == 0 && f.carrier == nil {
		return nil, nil
	}
	since := map[string]NodeInfo{}
	var ids []string
	for _, info := range dead {
		since[info.ID] = info
		ids = append(ids, info.ID)
	}
	var owner *string
	if o, ok := caller.OwnerOf(ctx); ok {
		owner = &o.ID
	}
	held, err := f.dir.heldBy(ctx, ids, owner)
	if err != nil {
		return nil, err
	}
	for _, h := range held {
		if s := shown(h, since[h.Node]); filter.Match(s) {
			list = append(list, s)
		}
	}
	return list, nil
}

// shown returns a sandbox as lists show it while its node is away.
func shown(h Holder, n NodeInfo) hutch.Sandbox {
	status, health := hutch.Failed, hutch.Unhealthy
	reason := "its node " + h.Node + " is away"
	if n.SeenUntil != nil {
		reason += " since " + n.SeenUntil.UTC().Format(time.RFC3339)
	}
	if h.Image != nil && !h.Awake {
		status, health, reason = hutch.Stopped, hutch.Asleep, "it is in the fleet's bucket, and wakes with its next use"
		if h.Image.Needs.Build != "" {
			status = hutch.Hibernated
		}
		if h.Stays != "" {
			status, health, reason = hutch.Failed, hutch.Unhealthy, h.Stays
		}
	} else if h.Away && h.Stays != "" {
		reason += "; " + h.Stays
	} else if h.Checkpoint != nil {
		reason += "; it continues on another node from its checkpoint of " + h.Checkpoint.Checkpoint.UTC().Format(time.RFC3339)
	}
	return hutch.Sandbox{
		ID: h.ID, Owner: h.Owner, Status: status, Reason: reason, Image: h.About.Image, Runtime: h.About.Runtime, Labels: h.About.Labels, Limits: h.About.Limits, NodeSelector: h.About.NodeSelector, Tolerations: h.About.Tolerations,
		CreatedAt: h.Placed.UTC(), LastUsedAt: h.Placed.UTC(), OnIdle: hutch.IdleHibernate, Health: health, Processes: []hutch.Process{},
	}
}

// Sandbox implements hutch.Service.
func (f *Fleet) Sandbox(ctx context.Context, id string) (hutch.Sandbox, error) {
	sb, err := f.Service.Sandbox(ctx, id)
	if hutch.KindOf(err) != hutch.Unavailable || f.node.serving() != nil {
		return sb, err
	}
	if list, failed := f.lost(ctx, hutch.Filter{ID: id}); failed == nil && len(list) == 1 {
		return list[0], nil
	}
	return sb, err
}
