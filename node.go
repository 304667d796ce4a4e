package hutch

import (
	"context"
	"time"
)

// Nodes is the administration of the machines of one server. A server that is not a fleet is one node, which cannot be
// changed: the answer is Unsupported. All methods need the scope admin.
type Nodes interface {
	// Nodes lists the nodes by id.
	Nodes(ctx context.Context) (NodeList, error)
	// Node returns a node with the sandboxes that it holds.
	Node(ctx context.Context, node string) (Node, error)
	// CordonNode stops the creation of sandboxes on a node. Existing ones stay.
	CordonNode(ctx context.Context, node string) (Node, error)
	// UncordonNode gives a node new sandboxes again, and ends a drain.
	UncordonNode(ctx context.Context, node string) (Node, error)
	// DrainNode makes a node move its sandboxes to other nodes, and does not wait for that: the node's Held counts the
	// sandboxes that are left, and Stuck those that cannot leave. The node continues until it is empty, or until
	// UncordonNode; the caller's end has no effect.
	DrainNode(ctx context.Context, node string) (Node, error)
	// RemoveNode removes a node, and frees the ids of its sandboxes. Unless it is forced, it is Conflict for a live
	// node with sandboxes, and for the only node.
	RemoveNode(ctx context.Context, node string, force bool) (RemovedNode, error)
}

// NodeState says which sandboxes a node gets.
type NodeState string

// States of a node.
const (
	NodeReady    NodeState = "ready"
	NodeCordoned NodeState = "cordoned" // gets no new sandboxes
	NodeDraining NodeState = "draining" // gets no new sandboxes, and moves its own to other nodes
)

// NodeList is the nodes of a server.
type NodeList struct {
	Fleet bool   `json:"fleet"` // several machines can be this server; otherwise it is the only one
	Nodes []Node `json:"nodes"`
}

// NodeRoom is an amount of a node's resources: its capacity for sandboxes, or the reserved part.
type NodeRoom struct {
	Memory    int64   `json:"memory"` // MiB
	CPU       float64 `json:"cpu"`    // cores
	Sandboxes int64   `json:"sandboxes"`
}

// Node is one machine of a server.
type Node struct {
	ID        string            `json:"id"`
	Address   string            `json:"address"` // where the other nodes reach it; empty if there are none
	Version   string            `json:"version"`
	State     NodeState         `json:"state"`
	Alive     bool              `json:"alive"`            // its lease is valid
	Labels    map[string]string `json:"labels,omitempty"` // for node selectors
	Taints    map[string]string `json:"taints,omitempty"` // only sandboxes that tolerate all of these are placed there
	Joined    time.Time         `json:"joined,omitzero"`
	Started   *time.Time        `json:"started,omitempty"`   // when its server began; nil for a node that never began
	SeenUntil *time.Time        `json:"seenUntil,omitempty"` // the end of its lease; nil for a node that was never started
	Epoch     int64             `json:"epoch"`               // how many times its server has started
	Room      NodeRoom          `json:"room"`
	Promised  NodeRoom          `json:"promised"` // reserved for running sandboxes
	Held      int64             `json:"held"`     // sandboxes, awake or asleep
	Stuck     int64             `json:"stuck"`    // sandboxes that cannot leave the node, which is draining
	// Snapshots counts the snapshots and templates on the node. An old copy of one that another node has does not count.
	Snapshots int64 `json:"snapshots"`

	// Sandboxes lists the node's sandboxes, at most MaxNodeSandboxes: first those that cannot leave it, then the
	// oldest. Lists of nodes leave it empty.
	Sandboxes []NodeSandbox `json:"sandboxes,omitempty"`
}

// MaxNodeSandboxes bounds the sandboxes of a node that is read.
const MaxNodeSandboxes = 1000

// NodeSandbox is a sandbox on a node, as that node knows it.
type NodeSandbox struct {
	SandboxID string    `json:"sandboxId"`
	Owner     string    `json:"owner,omitempty"`
	Image     string    `json:"image,omitempty"`
	Placed    time.Time `json:"placed"` // when the sandbox arrived at this node or, if it arrived with its server, in the fleet
	Awake     bool      `json:"awake"`
	InBucket  bool      `json:"inBucket"` // the bucket has it too, so it outlives its node
	// Stays is why the sandbox cannot leave a node that is draining.
	Stays string `json:"stays,omitempty"`
}

// RemovedNode is the result of removing a node.
type RemovedNode struct {
	Node  string `json:"node"`
	Freed int64  `json:"freed"` // sandboxes that were lost with it, whose ids are free now
}
