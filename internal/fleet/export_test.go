package fleet

import (
	"context"

	"hutch"
)

// Resident is what the door of this node serves.
func (f *Fleet) Resident() hutch.Service { return f.resident }

// SetState changes the state of a node.
func (d *Directory) SetState(ctx context.Context, node string, state hutch.NodeState) error {
	_, err := d.setState(ctx, node, state)
	return err
}
