package fleet

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"hutch"
)

// Report is what a node knows about its fleet and about itself.
type Report struct {
	Node  string
	Nodes []hutch.Node  // nodes that have started at least once, by name, as this node last read them
	Lease time.Duration // how long this node can serve without another renewal; 0 if it does not serve

	Held, Stuck, InBucket int64 // sandboxes of this node

	Renewals Outcomes
	Carried  map[Transfer]Outcomes
}

// Outcomes counts successes and failures.
type Outcomes struct{ OK, Failed int64 }

func (o *Outcomes) add(err error) {
	if err == nil {
		o.OK++
	} else {
		o.Failed++
	}
}

// Transfer is a kind of transfer of a sandbox or a snapshot.
type Transfer string

const (
	Saved        Transfer = "saved" // to the bucket, while the sandbox sleeps
	Checkpointed Transfer = "checkpoint"
	Fetched      Transfer = "fetched" // from the bucket
	Left         Transfer = "left"    // handed over to another node

	SnapshotSaved   Transfer = "snapshot-saved" // to the bucket
	SnapshotFetched Transfer = "snapshot-fetched"
)

// Transfers lists all kinds of transfers.
var Transfers = []Transfer{Saved, Checkpointed, Fetched, Left, SnapshotSaved, SnapshotFetched}

// Report reports on the fleet. After an error, only the part of the report that comes from the database is missing.
func (f *Fleet) Report(ctx context.Context) (Report, error) {
	r := f.node.report()
	if f.carrier != nil {
		r.Carried = f.carrier.report()
	}
	var err error
	r.Held, r.Stuck, r.InBucket, err = f.dir.count(ctx, r.Node)
	return r, err
}

func (n *node) report() Report {
	n.mu.RLock()
	defer n.mu.RUnlock()
	r := Report{Node: n.info.ID, Renewals: n.counted}
	if n.ended == nil {
		r.Lease = max(n.until-sinceBoot(), 0)
	}
	for _, info := range n.nodes {
		if info.SeenUntil == nil { // the node was never started
			continue
		}
		node := info.Node
		if node.ID == n.info.ID {
			node.Alive = r.Lease > 0
		}
		r.Nodes = append(r.Nodes, node)
	}
	slices.SortFunc(r.Nodes, func(a, b hutch.Node) int { return cmp.Compare(a.ID, b.ID) })
	return r
}

// did counts a transfer as succeeded or failed.
func (c *carrier) did(what Transfer, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	o := c.counted[what]
	o.add(err)
	c.counted[what] = o
}

func (c *carrier) report() map[Transfer]Outcomes {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.counted)
}

// count counts the sandboxes of a node.
func (d *Directory) count(ctx context.Context, node string) (held, stuck, inBucket int64, err error) {
	err = d.db.QueryRow(ctx, "SELECT count(*), count(*) FILTER (WHERE stays <> ''), count(*) FILTER (WHERE coalesce(image, checkpoint) IS NOT NULL) FROM fleet_holders WHERE node = $1", node).Scan(&held, &stuck, &inBucket)
	return held, stuck, inBucket, databaseError(err)
}
