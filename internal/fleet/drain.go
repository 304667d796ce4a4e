package fleet

import (
	"context"
	"slices"
	"time"

	"hutch/internal/delay"
)

// Drain makes a node move its sandboxes to other nodes, and returns those that are left after all that can leave have
// left, or after a while. A dead node moves nothing: its sandboxes in the bucket are not returned, because other nodes
// take them.
func (d *Directory) Drain(ctx context.Context, id string, wait time.Duration) (left []Holder, err error) {
	if _, err := d.DrainNode(ctx, id); err != nil {
		return nil, err
	}
	end := time.Now().Add(wait)
	for {
		n, err := d.find(ctx, id)
		if err != nil {
			return nil, err
		}
		if left, err = d.Held(ctx, id); err != nil {
			return nil, err
		}
		if !n.Alive {
			left = slices.DeleteFunc(left, func(h Holder) bool { return h.Image != nil })
			for i := range left {
				left[i].Stays = "the node is away"
			}
			return left, nil
		}
		if !slices.ContainsFunc(left, func(h Holder) bool { return h.Stays == "" }) || time.Now().After(end) {
			return left, nil
		}
		if err := delay.Wait(ctx, drainLook); err != nil {
			return left, err
		}
	}
}

// drainLook is how often Drain looks.
const drainLook = 500 * time.Millisecond
