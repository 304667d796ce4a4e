// Package delay waits for a time, or until a context ends.
package delay

import (
	"context"
	"time"
)

// Wait waits for d. If ctx ends first, Wait returns its cause at once.
func Wait(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
