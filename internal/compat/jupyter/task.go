package jupyter

import (
	"context"
	"errors"
	"sync"

	"hutch/internal/caller"
	"hutch/internal/flowcontrol"
)

// task is a client's request that is running or waiting.
type task struct {
	message
	client *client
	ctx    context.Context
	cancel context.CancelCauseFunc
	free   func()

	mu    sync.Mutex
	input *flowcontrol.Queue // input for input(); nil for none
	asked bool               // the client was asked for input
}

// newTask returns a task for the next message. It ends with the token of its client, and with the server, but not when
// the client leaves.
func (c *client) newTask() *task {
	t := &task{client: c}
	ctx, free := caller.OwnBudget(c.life)
	release := func() {}
	if who := caller.From(ctx).Principal; who != nil {
		ctx, release = who.Hold(ctx)
	}
	ctx, end := caller.Until(ctx, c.kernel.h.ctx)
	ctx, t.cancel = context.WithCancelCause(ctx)
	t.ctx, t.free = ctx, sync.OnceFunc(func() { t.cancel(nil); end(); release(); free() })
	return t
}

// size estimates the memory of the message.
func (t *task) size() int { return len(t.content) + len(t.parent) }

func (t *task) end() { t.free() }

// forgotten reports whether a task was ended by its kernel.
func (t *task) forgotten() bool { return errors.Is(context.Cause(t.ctx), errShut) }
