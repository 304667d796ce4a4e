package fleet

import (
	"context"
	"slices"
	"time"

	"hutch/internal/delay"
)

// Remainder is what a drained node still has. A fleet without a bucket lists no snapshots.
type Remainder struct {
	Sandboxes []Holder       `json:"sandboxes"`
	Snapshots []KeptSnapshot `json:"snapshots"`
}

// settled reports whether everything that is left has a reason to stay.
func (l Remainder) settled() bool {
	return !slices.ContainsFunc(l.Sandboxes, func(h Holder) bool { return h.Stays == "" }) &&
		!slices.ContainsFunc(l.Snapshots, func(s KeptSnapshot) bool { return s.Stays == "" })
}

// Drain makes a node move its sandboxes to other nodes and its snapshots to the bucket. It returns after wait at the
// latest, or earlier when everything that can leave has left. left is what is still there. A dead node moves nothing.
// Its sandboxes and snapshots that are in the bucket are not in left, because other nodes take them.
func (d *Directory) Drain(ctx context.Context, id string, wait time.Duration) (left Remainder, err error) {
	if _, err := d.DrainNode(ctx, id); err != nil {
		return left, err
	}
	end := time.Now().Add(wait)
	for {
		n, err := d.find(ctx, id)
		if err != nil {
			return left, err
		}
		if left.Sandboxes, err = d.Held(ctx, id); err != nil {
			return left, err
		}
		if left.Snapshots, err = d.KeptSnapshots(ctx, id); err != nil {
			return left, err
		}
		if !n.Alive {
			left.Sandboxes = slices.DeleteFunc(left.Sandboxes, func(h Holder) bool { return h.Image != nil })
			for i := range left.Sandboxes {
				left.Sandboxes[i].Stays = "the node is away"
			}
			left.Snapshots = slices.DeleteFunc(left.Snapshots, func(s KeptSnapshot) bool { return s.InBucket })
			for i := range left.Snapshots {
				left.Snapshots[i].Stays = "the node is away"
			}
			return left, nil
		}
		if left.settled() || time.Now().After(end) {
			return left, nil
		}
		if err := delay.Wait(ctx, drainLook); err != nil {
			return left, err
		}
	}
}

// drainLook is how often Drain checks what is left.
const drainLook = 500 * time.Millisecond
