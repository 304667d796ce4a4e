package hutch

import "context"

// Pools reports the instances that a server keeps ready for later creates.
type Pools interface {
	// Pool needs the scope admin, because it shows the snapshots of all owners.
	Pool(ctx context.Context) (PoolState, error)
}

// PoolState is the number of ready instances, and how often the pool served a create.
type PoolState struct {
	Max   int `json:"max"` // highest number, of all kinds together; 0 when the pool is off
	Ready int `json:"ready"`
	// Vacant is the number of further instances in which nothing has started yet; wakes, forks and creates from
	// snapshots use them.
	Vacant int `json:"vacant"`
	// Hits counts the creates since the server started that found a ready instance, Misses the others.
	Hits   int64      `json:"hits"`
	Misses int64      `json:"misses"`
	Kinds  []PoolKind `json:"kinds"` // the recently requested kinds, and the default one
}

// PoolKind is a kind of ready instances. All instances of a kind are interchangeable.
type PoolKind struct {
	Runtime  string `json:"runtime"`
	Image    string `json:"image"`
	Limits   Limits `json:"limits"`
	Snapshot string `json:"snapshot,omitempty"` // id of the snapshot that they start from
	Memory   bool   `json:"memory,omitempty"`   // with the running programs of that snapshot
	Vacant   bool   `json:"vacant,omitempty"`   // empty instances that wait for a saved sandbox
	Ready    int    `json:"ready"`
	Wanted   int    `json:"wanted"` // how many the present demand needs
	Hits     int64  `json:"hits"`
	Misses   int64  `json:"misses"`
	Why      string `json:"why,omitempty"` // why fewer are ready than wanted, or why 0 are wanted
}
