package engine

import (
	"context"
	"errors"
	"time"

	"hutch"
)

// CheckpointWithin copies the running sandboxes within a time limit, and removes the copies.
func (e *Engine) CheckpointWithin(ctx context.Context, limit time.Duration, out func(hutch.Checkpoint) error) error {
	remove, err := e.saved.OpenCheckpoints()
	if err != nil {
		return err
	}
	return errors.Join(e.checkpointEach(ctx, e.awake(), limit, out), remove())
}
