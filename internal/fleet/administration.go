package fleet

import (
	"context"
	"slices"

	"hutch"
	"hutch/internal/verb"
	"hutch/internal/wrap"
)

var _ hutch.Nodes = (*Directory)(nil)

// Administration returns the nodes of the fleet. A node that cannot serve now cannot administer other nodes either.
func (f *Fleet) Administration() hutch.Nodes {
	return &wrap.NodeService{Next: f.dir, Hook: func(ctx context.Context, _ verb.Call, _ any, run func(context.Context) error) error {
		if err := f.node.serving(); err != nil {
			return err
		}
		return run(ctx)
	}}
}

// Nodes implements hutch.Nodes.
func (d *Directory) Nodes(ctx context.Context) (hutch.NodeList, error) {
	all, err := d.List(ctx)
	list := hutch.NodeList{Fleet: true, Nodes: make([]hutch.Node, len(all))}
	for i, n := range all {
		list.Nodes[i] = n.Node
	}
	return list, err
}

// Node implements hutch.Nodes.
func (d *Directory) Node(ctx context.Context, node string) (hutch.Node, error) {
	n, err := d.find(ctx, node)
	if err != nil {
		return hutch.Node{}, err
	}
	held, err := d.Held(ctx, node)
	if err != nil {
		return hutch.Node{}, err
	}
	n.Held = int64(len(held)) // was counted before the list was read
	slices.SortStableFunc(held, func(a, b Holder) int { return rank(a) - rank(b) })
	held = held[:min(len(held), hutch.MaxNodeSandboxes)]
	for _, h := range held {
		n.Sandboxes = append(n.Sandboxes, hutch.NodeSandbox{SandboxID: h.ID, Owner: h.Owner, Image: h.About.Image, Placed: h.Placed, Awake: h.Awake, InBucket: h.InBucket, Stays: h.Stays})
	}
	return n, nil
}

// rank is a sort key that puts sandboxes that cannot leave first.
func rank(h Holder) int {
	if h.Stays != "" {
		return 0
	}
	return 1
}

func (d *Directory) find(ctx context.Context, id string) (hutch.Node, error) {
	all, err := d.List(ctx)
	if err != nil {
		return hutch.Node{}, err
	}
	i := slices.IndexFunc(all, func(n NodeInfo) bool { return n.ID == id })
	if i < 0 {
		return hutch.Node{}, noNode(id)
	}
	return all[i].Node, nil
}

// CordonNode implements hutch.Nodes.
func (d *Directory) CordonNode(ctx context.Context, node string) (hutch.Node, error) {
	return d.setState(ctx, node, hutch.NodeCordoned)
}

// UncordonNode implements hutch.Nodes.
func (d *Directory) UncordonNode(ctx context.Context, node string) (hutch.Node, error) {
	return d.setState(ctx, node, hutch.NodeReady)
}

// DrainNode implements hutch.Nodes.
func (d *Directory) DrainNode(ctx context.Context, node string) (hutch.Node, error) {
	return d.setState(ctx, node, hutch.NodeDraining)
}

// setState changes the state of a node.
func (d *Directory) setState(ctx context.Context, node string, state hutch.NodeState) (hutch.Node, error) {
	tag, err := d.db.Exec(ctx, "UPDATE fleet_nodes SET state = $2 WHERE id = $1", node, state)
	if err == nil && tag.RowsAffected() == 0 {
		return hutch.Node{}, noNode(node)
	}
	if err == nil { // forget the reasons to stay, because the node reports them again
		_, err = d.db.Exec(ctx, "UPDATE fleet_holders SET stays = '' WHERE node = $1", node)
	}
	if err == nil {
		_, err = d.db.Exec(ctx, "UPDATE fleet_snapshots SET stays = '' WHERE node = $1", node)
	}
	d.notifyNodes(ctx)
	if err != nil {
		return hutch.Node{}, databaseError(err)
	}
	return d.find(ctx, node)
}
