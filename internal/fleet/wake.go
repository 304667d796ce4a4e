package fleet

import (
	"context"
	"errors"
	"time"

	"hutch"
	"hutch/internal/verb"
)

// A sandbox that wakes reserves memory and cores on its node, as a new sandbox does. If the node has no capacity, the
// sandbox moves to another node through the bucket, and the call goes there. If there is no bucket, or no node has
// capacity, the call is refused.

// Waking is called before a sandbox of this node wakes. If it returns an error, the sandbox stays asleep. The caller
// calls done when the sandbox is awake, or when it could not wake.
func (f *Fleet) Waking(ctx context.Context, owner, id string) (done func(), err error) {
	name := Name{owner, id}
	done = f.resident.markWaking(name)
	if f.carrier != nil {
		err = f.carrier.waking(ctx, name)
	} else {
		err = f.waking(ctx, name)
	}
	if err != nil {
		done()
		return nil, err
	}
	return done, nil
}

// waking is Waking for a node without a bucket.
func (f *Fleet) waking(ctx context.Context, name Name) error {
	if err := f.node.serving(); err != nil {
		return err
	}
	_, err := f.resident.reserveWake(ctx, name, false)
	return err
}

// wakeAnswer bounds the wait for the directory's answer before a wake, because the caller holds the sandbox's lifecycle lock.
const wakeAnswer = 10 * time.Second

// reserveWake calls Directory.reserveWake. After an error that is not a refusal, the directory may still have recorded
// the sandbox as awake and without an image, because the answer to COMMIT can be lost. So this node notes it as awake.
// The next report corrects the directory, and the image is sent again.
func (r *resident) reserveWake(ctx context.Context, name Name, checkpoints bool) (old string, err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), wakeAnswer)
	defer cancel()
	old, err = r.f.dir.reserveWake(ctx, r.f.node.info.ID, name, checkpoints)
	if isFull(err) || errors.Is(err, errMoved) {
		return old, err
	}
	if c := r.f.carrier; c != nil {
		c.setKey(name, "")
	}
	r.noteAwake(name)
	return old, err
}

// movedTo is the field of an error with the node to which the sandbox has moved. A call with this error had no effect.
const movedTo = "movedTo"

// hasMoved reports whether a call failed because its sandbox has just moved to another node.
func hasMoved(err error) bool {
	return hutch.KindOf(err) == hutch.Unavailable && hutch.AsError(err).Data[movedTo] != nil
}

// withRoom makes a call about a sandbox here. If the node has no capacity to wake the sandbox, the sandbox moves to
// another node.
func (r *resident) withRoom(ctx context.Context, c verb.Call, name Name, run func(context.Context) error) error {
	err := run(ctx)
	if !isFull(err) {
		return err
	}
	r.report(ctx) // other sandboxes can have fallen asleep since the last report
	if !sendsMore(c) {
		if err = run(ctx); !isFull(err) {
			return err
		}
	}
	if r.f.carrier == nil || c.Verb == "DiffSnapshot" { // the sandbox must stay with the snapshot on this node
		return err
	}
	to, failed := r.f.carrier.moveOn(ctx, name)
	if failed != nil {
		full := *hutch.AsError(err)
		full.Message += "; it cannot wake on another node either: " + hutch.AsError(failed).Message
		return full.Because(failed)
	}
	return hutch.Errorf(hutch.Unavailable, "the sandbox %q has moved to the node %s, which has room for it: try again", name.ID, to).With(movedTo, to)
}

// moveOn hands a sleeping sandbox over to a node with capacity. Another call can do the same at the same time.
func (c *carrier) moveOn(ctx context.Context, name Name) (to string, err error) {
	err = c.handOver(ctx, hutch.Sandbox{Status: hutch.Stopped}, name)
	c.did(Left, err)
	if err != nil && c.r.has(name) {
		return "", err
	}
	h, ok, err := c.dir().holder(ctx, name)
	if err == nil && !ok {
		err = hutch.Errorf(hutch.NotFound, "there is no sandbox %q any more", name.ID).Naming(hutch.AboutSandbox, name.ID)
	}
	return h.Node, err
}
