package hutch

import (
	"context"
	"time"
)

// Nodes is the administration of the machines of one server. A server that is not a fleet is one node, and changes to
// it are Unsupported. All methods need the scope admin.
type Nodes interface {
	// Nodes lists the nodes by id.
	Nodes(ctx context.Context) (NodeList, error)
	// Node returns a node with the sandboxes that it holds.
	Node(ctx context.Context, node string) (Node, error)
	// CordonNode stops the creation of sandboxes on a node. Existing ones stay.
	CordonNode(ctx context.Context, node string) (Node, error)
	// UncordonNode allows new sandboxes on a node again, and ends a drain.
	UncordonNode(ctx context.Context, node string) (Node, error)
	// DrainNode makes a node move its sandboxes to other nodes. It does not wait for them: the node's Held counts the
	// sandboxes that are left, and Stuck those that cannot leave. The drain continues without its caller, until the
	// node is empty or UncordonNode ends it.
	DrainNode(ctx context.Context, node string) (Node, error)
	// RemoveNode removes a node, and frees the ids of its sandboxes. Without force, the error is Conflict for a live
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
	Fleet bool   `json:"fleet"` // the server can have several machines; otherwise it has one
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
	Started   *time.Time        `json:"started,omitempty"`   // when its server began; nil if it never started
	SeenUntil *time.Time        `json:"seenUntil,omitempty"` // the end of its lease; nil if it never started
	Epoch     int64             `json:"epoch"`               // how many times its server has started
	Room      NodeRoom          `json:"room"`
	Promised  NodeRoom          `json:"promised"` // reserved for running sandboxes
	Held      int64             `json:"held"`     // sandboxes, awake or asleep
	Stuck     int64             `json:"stuck"`    // sandboxes that cannot leave the node, which is draining
	// Snapshots counts the snapshots and templates on the node. Old copies of a snapshot that another node has do not
	// count.
	Snapshots int64 `json:"snapshots"`

	// Sandboxes lists the node's sandboxes, at most MaxNodeSandboxes: first those that cannot leave the node, then the
	// oldest. It is empty in a list of nodes.
	Sandboxes []NodeSandbox `json:"sandboxes,omitempty"`
}

// MaxNodeSandboxes is the highest number of sandboxes in [Node.Sandboxes].
const MaxNodeSandboxes = 1000

// NodeSandbox is a sandbox on a node, as that node knows it.
type NodeSandbox struct {
	SandboxID string    `json:"sandboxId"`
	Owner     string    `json:"owner,omitempty"`
	Image     string    `json:"image,omitempty"`
	Placed    time.Time `json:"placed"` // when it came to this node; if it was here before, when the node joined the fleet
	Awake     bool      `json:"awake"`
	InBucket  bool      `json:"inBucket"` // the bucket has it too, so it outlives its node
	// Stays is why the sandbox cannot leave a node that is draining.
	Stays string `json:"stays,omitempty"`
}

// RemovedNode is the result of removing a node.
type RemovedNode struct {
	Node  string `json:"node"`
	Freed int64  `json:"freed"` // sandboxes that were lost with the node; their ids are free now
}
