package fleet

import (
	"context"
	"errors"
	"io"
	"time"

	"hutch"
	"hutch/internal/caller"
	"hutch/internal/delay"
	"hutch/internal/travel"
)

// point is the last checkpoint of a sandbox here.
type point struct {
	key    string
	placed time.Time // when the sandbox was placed here; a later sandbox can have the same name
	at     time.Time // when it was made, or later if nothing had changed until then
	did    travel.Activity
	failed time.Time // when a checkpoint last failed
	late   bool      // it is already logged that the checkpoint is late
}

func (c *carrier) pointOf(name Name) point {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.points[name]
}

// setPoint records the checkpoint of a sandbox, and removes the previous one from the bucket. The zero point means no
// checkpoint.
func (c *carrier) setPoint(name Name, p point) {
	c.mu.Lock()
	old := c.points[name].key
	if c.points[name] = p; p == (point{}) {
		delete(c.points, name)
	}
	c.mu.Unlock()
	if old != p.key {
		c.drop(old)
	}
}

// saveAwake makes the checkpoints that are due, one after the other, because each takes memory, disk and network.
func (c *carrier) saveAwake(ctx context.Context, list []hutch.Sandbox) {
	if c.Checkpoints == 0 || !c.saving.TryLock() {
		return
	}
	defer c.saving.Unlock()
	for _, sb := range list {
		name := Name{sb.Owner, sb.ID}
		p := c.pointOf(name)
		if ctx.Err() != nil || c.r.f.node.serving() != nil {
			return
		}
		if sb.Status != hutch.Running || time.Since(p.at) < c.Checkpoints || time.Since(p.failed) < retryKeep || !c.r.has(name) {
			continue
		}
		if err := c.checkpoint(ctx, name, p); err != nil && ctx.Err() == nil {
			c.noteFailure(sb, name, err)
		}
	}
}

// noteFailure decides when a failed checkpoint is tried again: soon, if it failed only because the sandbox was in use.
func (c *carrier) noteFailure(sb hutch.Sandbox, name Name, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	p := c.points[name]
	last := p.at
	if last.IsZero() {
		last = sb.CreatedAt
	}
	switch hutch.KindOf(err) {
	case hutch.NotFound:
		return
	case hutch.Conflict:
		if time.Since(last) < 2*c.Checkpoints {
			return
		}
	default:
		p.failed = time.Now()
	}
	if !p.late {
		p.late = true
		c.r.f.log.Warn("a sandbox has no new checkpoint", "sandbox", sb.ID, "last", last, "err", err, "cause", hutch.AsError(err).Cause)
	}
	c.points[name] = p
}

// checkpoint makes a checkpoint of a running sandbox, unless nothing has changed since the last one.
func (c *carrier) checkpoint(ctx context.Context, name Name, last point) error {
	ctx, cancel := context.WithTimeout(ctx, carryTime)
	defer cancel()
	next, over := last, last.key
	if last.placed.IsZero() {
		h, ok, err := c.dir().holder(ctx, name)
		if err != nil || !ok {
			return err
		}
		if next.placed, over = h.Placed, ""; h.Checkpoint != nil {
			over = h.Checkpoint.Key
		}
	}
	did, err := c.Engine.Checkpoint(ctx, name.Owner, name.ID, last.did, func(ctx context.Context, of travel.Image, send func(io.Writer) error) error {
		img, err := c.write(ctx, name, of, send, func(img travel.Image) error {
			return c.dir().keepCheckpoint(ctx, c.me(), name, next.placed, over, img)
		})
		if !errors.Is(err, errMoved) {
			c.did(Checkpointed, err)
		}
		next.key = img.Key
		return err
	})
	switch {
	case errors.Is(err, errMoved): // the sandbox sleeps or is destroyed, or the answer to an earlier try was lost
		c.mu.Lock()
		defer c.mu.Unlock()
		if p, ok := c.points[name]; ok {
			p.placed = time.Time{}
			c.points[name] = p
		}
		return nil
	case err != nil:
		return err
	}
	next.did, next.at, next.failed, next.late = did, time.Now(), time.Time{}, false
	c.setPoint(name, next)
	if over != last.key && over != next.key {
		c.drop(over)
	}
	return nil
}

// resume wakes a sandbox that has arrived here as a checkpoint, because it was awake on its earlier node. It tries
// again while waking is not possible yet, because the sandbox can arrive before this node has joined its fleet.
func (c *carrier) resume(ctx context.Context, h Holder) {
	var err error
	for range resumeTries {
		_, err = c.Engine.Resume(caller.WithOwner(ctx, caller.Owner{ID: h.Owner}), h.ID)
		if hutch.KindOf(err) != hutch.Unavailable || delay.Wait(ctx, time.Second) != nil {
			break
		}
	}
	if err != nil && ctx.Err() == nil {
		c.r.f.log.Warn("a sandbox that continues from its checkpoint sleeps here until its next use", "sandbox", h.ID, "err", err)
	}
}
