package fleet

import (
	"context"
	"os"
	"slices"
	"strings"

	"hutch"
	"hutch/internal/caller"
)

// Alone returns the nodes of a server that is not a fleet: one node, which cannot be changed. Its reservations and
// sandboxes come from service, which lists those of all owners.
func Alone(node hutch.Node, service hutch.Service) hutch.Nodes {
	node.State, node.Alive, node.Epoch = hutch.NodeReady, true, 1
	return alone{node, service}
}

type alone struct {
	node    hutch.Node
	service hutch.Service
}

// HostName returns this machine's host name in the form of an id, or "" for none.
func HostName() string {
	name, _ := os.Hostname()
	name, _, _ = strings.Cut(hutch.NormalizeID(name), ".")
	if hutch.CheckID(name) != nil {
		return ""
	}
	return name
}

// Nodes implements hutch.Nodes.
func (a alone) Nodes(ctx context.Context) (hutch.NodeList, error) {
	n, err := a.Node(ctx, a.node.ID)
	n.Sandboxes = nil
	return hutch.NodeList{Nodes: []hutch.Node{n}}, err
}

// Node implements hutch.Nodes.
func (a alone) Node(ctx context.Context, node string) (hutch.Node, error) {
	if node != a.node.ID {
		return hutch.Node{}, hutch.Errorf(hutch.NotFound, "the server has no node %.80q: it is the only machine, and is called %s", node, a.node.ID)
	}
	list, err := a.service.Sandboxes(caller.WithoutOwner(ctx), hutch.Filter{Brief: true})
	if err != nil {
		return hutch.Node{}, err
	}
	slices.SortStableFunc(list, func(x, y hutch.Sandbox) int { return x.CreatedAt.Compare(y.CreatedAt) })
	snapshots, err := a.service.Snapshots(caller.WithoutOwner(ctx))
	if err != nil {
		return hutch.Node{}, err
	}
	n := a.node
	n.Held, n.Snapshots = int64(len(list)), int64(len(snapshots))
	for _, sb := range list {
		e := entryOf(sb)
		if e.Awake {
			n.Promised.Memory += e.Memory
			n.Promised.CPU += e.CPU
			n.Promised.Sandboxes++
		}
		if len(n.Sandboxes) < hutch.MaxNodeSandboxes {
			n.Sandboxes = append(n.Sandboxes, hutch.NodeSandbox{SandboxID: sb.ID, Owner: sb.Owner, Image: sb.Image, Placed: sb.CreatedAt, Awake: e.Awake})
		}
	}
	return n, nil
}

var errAlone = hutch.Errorf(hutch.Unsupported, "this server is one machine, and has no nodes to change: start it with --store and --fleet-listen, as docs/fleet.md says, and other machines can join it; `hutch down` and `hutch serve --sleep-on-exit` empty one machine")

// CordonNode implements hutch.Nodes.
func (alone) CordonNode(context.Context, string) (hutch.Node, error) { return hutch.Node{}, errAlone }

// UncordonNode implements hutch.Nodes.
func (alone) UncordonNode(context.Context, string) (hutch.Node, error) { return hutch.Node{}, errAlone }

// DrainNode implements hutch.Nodes.
func (alone) DrainNode(context.Context, string) (hutch.Node, error) { return hutch.Node{}, errAlone }

// RemoveNode implements hutch.Nodes.
func (alone) RemoveNode(context.Context, string, bool) (hutch.RemovedNode, error) {
	return hutch.RemovedNode{}, errAlone
}
