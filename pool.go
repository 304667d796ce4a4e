package hutch

import "context"

// Pools tells what a server keeps ready for creates to come.
type Pools interface {
	// Pool needs the scope admin: it tells of all owners' snapshots.
	Pool(ctx context.Context) (PoolState, error)
}

// PoolState is what is ready, and how often it was what was asked for.
type PoolState struct {
	Max   int `json:"max"` // at most, of all kinds together; 0 when the pool is off
	Ready int `json:"ready"`
	// Vacant are the places beside those in which nothing has begun, for what
	// wakes, is forked or begins as a snapshot.
	Vacant int `json:"vacant"`
	// Hits are the creates since the server started that found one ready, Misses
	// those that did not.
	Hits   int64      `json:"hits"`
	Misses int64      `json:"misses"`
	Kinds  []PoolKind `json:"kinds"` // that were asked for lately, and the default one
}

// PoolKind is sandboxes of which one is as good as the other.
type PoolKind struct {
	Runtime  string `json:"runtime"`
	Image    string `json:"image"`
	Limits   Limits `json:"limits"`
	Snapshot string `json:"snapshot,omitempty"` // the id of the one that they begin as
	Memory   bool   `json:"memory,omitempty"`   // with what was running in that
	Vacant   bool   `json:"vacant,omitempty"`   // they wait for something that was saved
	Ready    int    `json:"ready"`
	Wanted   int    `json:"wanted"` // by what was asked for
	Hits     int64  `json:"hits"`
	Misses   int64  `json:"misses"`
	Why      string `json:"why,omitempty"` // fewer are ready than wanted, or none wanted
}
