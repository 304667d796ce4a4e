package compat

import (
	"context"
	"time"

	"hutch/internal/caller"
)

// cleanTime limits the work after a client has disconnected.
const cleanTime = 30 * time.Second

// Cleanup returns a context for removing data of a request. The context does not end with the request, and no limit on
// the caller's operations applies.
func Cleanup(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(caller.Unmetered(context.WithoutCancel(ctx)), cleanTime)
}
