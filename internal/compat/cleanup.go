package compat

import (
	"context"
	"time"

	"hutch/internal/caller"
)

// cleanTime bounds what is done after a client has gone.
const cleanTime = 30 * time.Second

// Cleanup returns a context to remove what a request leaves behind. It does not end with the request, and no limit on
// the caller's operations applies.
func Cleanup(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(caller.Unmetered(context.WithoutCancel(ctx)), cleanTime)
}
