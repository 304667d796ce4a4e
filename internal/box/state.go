package box

import (
	"context"
	"slices"
	"time"

	"hutch"
	"hutch/internal/driver"
	"hutch/internal/snapshots"
	"hutch/internal/store"
	"hutch/internal/wire"
)

// moves are the allowed changes of status.
var moves = map[hutch.Status][]hutch.Status{
	hutch.Creating:   {hutch.Running, hutch.Destroyed},
	hutch.Running:    {hutch.Hibernated, hutch.Stopped, hutch.Failed, hutch.Destroyed},
	hutch.Hibernated: {hutch.Running, hutch.Failed, hutch.Destroyed},
	hutch.Stopped:    {hutch.Running, hutch.Failed, hutch.Destroyed},
	hutch.Failed:     {hutch.Running, hutch.Destroyed},
}

// move is the only function that changes the status. The caller holds mu.
func (b *Box) move(to hutch.Status, reason string) {
	from := b.rec.Sandbox.Status
	if !slices.Contains(moves[from], to) {
		panic("box: a sandbox moves from " + string(from) + " to " + string(to))
	}
	b.rec.Sandbox.Status, b.rec.Sandbox.Reason = to, reason
	switch to {
	case hutch.Running:
		b.since, b.health, b.lossReported = time.Now(), hutch.Healthy, false
		b.rec.Used.Begin(b.since)
	case hutch.Stopped, hutch.Hibernated:
		b.health = hutch.Asleep
	default:
		b.health, b.rec.Listing = hutch.Unhealthy, nil
	}
	if to != hutch.Running {
		b.rec.Used.End()
		b.dropBase()
		b.inst, b.agent, b.paused, b.rec.Handle, b.usage = nil, nil, nil, nil, reading{}
		b.rec.Sandbox.Paused = false
	}
}

// attach records the instance that the box runs in. The caller holds mu.
func (b *Box) attach(inst driver.Instance, agent *wire.Client) {
	b.inst, b.agent, b.paused, b.rec.Listing, b.rec.Sandbox.Paused = inst, agent, nil, nil, false
	b.rec.Handle, b.rec.InstanceID = inst.Handle(), inst.ID()
	b.rec.Sandbox.LastUsedAt = time.Now()
	b.arm()
}

// dropBase drops the base layer, which other boxes can share. The caller holds mu.
func (b *Box) dropBase() { b.base, b.dropped = nil, b.base }

// Assign gives a box that is being created an instance from the pool: the key, the token,
// and the base layer.
func (b *Box) Assign(key, token string, base *snapshots.Base) {
	b.locked(func() { b.rec.Key, b.rec.Token, b.base = key, token, base })
}

// SetBase sets the base layer of a box that is being created.
func (b *Box) SetBase(base *snapshots.Base) { b.locked(func() { b.base = base }) }

// Abandon records why the box could not be created.
func (b *Box) Abandon(why error) {
	b.locked(func() {
		b.gone, b.fault = true, why
		b.dropBase()
	})
}

// CommitRun records that the box runs in a new instance, on disk first.
func (b *Box) CommitRun(ctx context.Context, inst driver.Instance, agent *wire.Client, reason string) error {
	return b.commit(ctx, func(r *store.Record) {
		r.Sandbox.Status, r.Sandbox.Reason, r.Listing = hutch.Running, reason, nil
		r.Handle, r.InstanceID = inst.Handle(), inst.ID()
	}, func() {
		b.move(hutch.Running, reason)
		b.attach(inst, agent)
	})
}

// Recover records that a box of an earlier daemon still runs. If the box is paused, its instance
// must be frozen again already.
func (b *Box) Recover(inst driver.Instance, agent *wire.Client, health hutch.Health, paused bool) {
	b.locked(func() {
		listing := b.rec.Listing
		b.since, b.health = b.rec.Sandbox.CreatedAt, health
		b.attach(inst, agent)
		if paused {
			b.agent, b.paused, b.rec.Listing, b.rec.Sandbox.Paused = nil, agent, listing, true
		}
	})
}

// RecoverAsleep records that a box of an earlier daemon sleeps.
func (b *Box) RecoverAsleep() { b.locked(func() { b.health = hutch.Asleep }) }

// MarkLost records that the content of the box is lost.
func (b *Box) MarkLost(reason string) {
	b.locked(func() { b.move(hutch.Failed, reason) })
}

// Fail records that an instance is dead or useless, and returns its agent. It returns
// false when the box does not run in that instance.
func (b *Box) Fail(inst driver.Instance, reason string) (agent *wire.Client, ok bool) {
	b.locked(func() {
		if b.inst != inst || b.gone {
			return
		}
		if agent, ok = b.agent, true; agent == nil {
			agent = b.paused
		}
		b.move(hutch.Failed, reason)
		b.arm()
	})
	return agent, ok
}

// ReleaseInstance records that the instance is about to be destroyed, so that its death does not
// count as a failure of the box.
func (b *Box) ReleaseInstance() { b.locked(func() { b.inst = nil }) }

// TakeBackInstance takes back an instance that could not be destroyed.
func (b *Box) TakeBackInstance(inst driver.Instance) { b.locked(func() { b.inst = inst }) }
