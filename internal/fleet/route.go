package fleet

import (
	"context"
	"errors"
	"time"

	"hutch"
	"hutch/internal/caller"
	"hutch/internal/verb"
	"hutch/internal/wrap"
)

// nameIn returns the name of a caller's sandbox in the directory.
func nameIn(ctx context.Context, id string) Name {
	o, _ := caller.OwnerOf(ctx)
	return Name{o.ID, id}
}

// route sends a call to the node that holds its sandbox. It is a wrap.Hook.
func (f *Fleet) route(ctx context.Context, c verb.Call, _ any, run func(context.Context) error) error {
	return f.lead(ctx, c, run, func(ctx context.Context, p *peer) context.Context {
		return wrap.To[hutch.Service](ctx, &f.Service, p)
	})
}

// lead makes a call on the node of its sandbox. If that is another node, the call is made with the context that there
// returns.
func (f *Fleet) lead(ctx context.Context, c verb.Call, run func(context.Context) error, there func(context.Context, *peer) context.Context) error {
	if err := f.node.serving(); err != nil {
		return err
	}
	if c.Sandbox == "" || hutch.CheckID(c.Sandbox) != nil {
		return run(ctx)
	}
	name := nameIn(ctx, c.Sandbox)
	if c.Verb == "Destroy" {
		f.forget(name) // else an outdated node, which lacks the sandbox, would report it as destroyed
	}
	for again := true; ; again = false {
		p, remembered, err := f.locate(ctx, name)
		if err != nil {
			return err
		}
		if p == nil {
			err = run(ctx)
		} else {
			err = plain(run(there(ctx, p)))
		}
		if !hasMoved(err) && (p == nil || !remembered || !isMissing(err) && !notReached(err)) {
			return err
		}
		// The sandbox has moved, so the call had no effect.
		f.forget(name)
		if !again || sendsMore(c) {
			return err
		}
	}
}

// notReached reports whether a call did not get to its node.
func notReached(err error) bool {
	_, ok := errors.AsType[*connectError](err)
	return ok
}

// isMissing reports whether an error says that the node does not have the sandbox.
func isMissing(err error) bool {
	return hutch.KindOf(err) == hutch.NotFound && hutch.AsError(err).Data[string(hutch.AboutSandbox)] != nil
}

// sendsMore reports whether a call reads a stream of its caller, so that it cannot be repeated.
func sendsMore(c verb.Call) bool {
	if c.Verb == "Input" { // c does not show the stream of this verb
		return true
	}
	switch req := c.Request.(type) {
	case hutch.ExecRequest:
		return req.Stdin != nil
	case hutch.WriteRequest, hutch.UnpackRequest:
		return true
	}
	return false
}

// locate returns the node that holds a sandbox. p is nil for this node, and for a sandbox that no node holds: this node
// then reports that it is missing.
func (f *Fleet) locate(ctx context.Context, name Name) (p *peer, remembered bool, err error) {
	if f.resident.has(name) {
		return nil, false, nil
	}
	f.mu.Lock()
	at, remembered := f.known[name]
	f.mu.Unlock()
	if remembered {
		if p, err = f.peer(at); err == nil {
			return p, true, nil
		}
		f.forget(name) // another node may have the sandbox now
	}
	h, ok, err := f.find(ctx, name)
	if err != nil || !ok || h.Node == f.node.info.ID {
		return nil, false, err
	}
	if p, err = f.peer(h.Node); err == nil {
		f.remember(name, h.Node)
	} else if h.Checkpoint != nil {
		err = hutch.Errorf(hutch.Unavailable, "the node %s, which this sandbox is on, is away: if it is not back in a minute, the sandbox continues on another node from its checkpoint of %s", h.Node, h.Checkpoint.Checkpoint.UTC().Format(time.RFC3339)).With("node", h.Node)
	}
	return p, false, err
}

// find returns the node that holds a sandbox. If only the bucket has the sandbox, it is first moved to a node. Another
// node can do that at the same time, so find tries several times.
func (f *Fleet) find(ctx context.Context, name Name) (h Holder, ok bool, err error) {
	for range 3 {
		h, ok, err = f.dir.holder(ctx, name)
		if err != nil || !ok || !h.Away {
			return h, ok, err
		}
		if h.Node, err = f.fetchToNode(ctx, h); !errors.Is(err, errMoved) {
			break
		}
	}
	return h, ok, err
}

// peer returns the client of a node that is alive.
func (f *Fleet) peer(id string) (*peer, error) {
	info, ok := f.node.find(id)
	if !ok || !info.Alive {
		return nil, lost(id)
	}
	return f.peers.of(info)
}

func (f *Fleet) remember(name Name, node string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.known) >= maxKnown {
		clear(f.known)
	}
	f.known[name] = node
}

func (f *Fleet) forget(name Name) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.known, name)
}

// Exec implements hutch.Service. A resumable command outlives the connection between nodes. When its caller cancels the
// command or loses the right to it, the command is ended on its node too.
func (f *Fleet) Exec(ctx context.Context, sandbox string, req hutch.ExecRequest, out func(hutch.Output) error) (hutch.ExecResult, error) {
	if !req.Resumable || f.resident.has(nameIn(ctx, sandbox)) {
		return inMillis(f.Service.Exec(ctx, sandbox, req, out))
	}
	var id string
	started := req.Started
	req.Started = func(exec string) {
		id = exec
		if started != nil {
			started(exec)
		}
	}
	res, err := f.Service.Exec(ctx, sandbox, req, out)
	f.cancelThere(ctx, sandbox, id)
	return inMillis(res, err)
}

// ResumeExec implements hutch.Service.
func (f *Fleet) ResumeExec(ctx context.Context, sandbox, exec string, cursor int64, out func(hutch.Output) error) (hutch.ExecResult, error) {
	res, err := f.Service.ResumeExec(ctx, sandbox, exec, cursor, out)
	if !f.resident.has(nameIn(ctx, sandbox)) {
		f.cancelThere(ctx, sandbox, exec)
	}
	return inMillis(res, err)
}

// inMillis rounds the duration of a command to milliseconds, because calls to other nodes do so. The answer is then the
// same from every node.
func inMillis(res hutch.ExecResult, err error) (hutch.ExecResult, error) {
	res.Duration = res.Duration.Truncate(time.Millisecond)
	return res, err
}

func (f *Fleet) cancelThere(ctx context.Context, sandbox, exec string) {
	e, ok := context.Cause(ctx).(*hutch.Error)
	if exec == "" || !ok || e.Kind != hutch.Conflict && e.Kind != hutch.Denied {
		return
	}
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	if err := f.CancelExec(last, sandbox, exec); err != nil {
		f.log.Warn("a command on another node was cancelled, and may continue until its grace is over", "sandbox", sandbox, "err", err)
	}
}

// nodeOf returns the service of a node, which can be this one.
func (f *Fleet) nodeOf(node string) (hutch.Service, error) {
	if node == f.node.info.ID {
		return f.resident, nil
	}
	return f.peer(node)
}

// lost returns the error for a sandbox on a node that is away.
func lost(node string) error {
	return hutch.Errorf(hutch.Unavailable, "the node %s, which this sandbox is on, is away: its sandboxes are back when it is; if it never will be, an administrator frees their ids with `hutch node rm %s`", node, node).With("node", node)
}
