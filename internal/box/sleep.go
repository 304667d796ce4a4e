package box

import (
	"context"
	"time"

	"hutch"
	"hutch/internal/driver"
	"hutch/internal/store"
	"hutch/internal/wire"
)

// BeginUse counts a use and returns the agent; nil if the box is not attached.
func (b *Box) BeginUse() (agent *wire.Client) {
	b.locked(func() {
		if b.agent == nil || b.gone {
			return
		}
		b.uses++
		agent = b.agent
	})
	if agent != nil && b.opt.Uses != nil {
		b.opt.Uses.Add(1)
	}
	return agent
}

// EndUse ends a use. After the last one the box is idle.
func (b *Box) EndUse() {
	if b.opt.Uses != nil {
		b.opt.Uses.Add(-1)
	}
	b.locked(func() {
		b.uses--
		b.rec.Sandbox.LastUsedAt = time.Now()
		if b.uses == 0 {
			b.arm()
		}
	})
}

// BeginSleep records that a sleep of the box is in progress, and that cancel ends it. If a caller waits in LockToEnd,
// cancel is called at once. since is when the box was last used.
func (b *Box) BeginSleep(cancel context.CancelFunc) (inst driver.Instance, agent *wire.Client, since time.Time) {
	b.locked(func() {
		b.cancel = cancel
		inst, agent, since = b.inst, b.agent, b.rec.Sandbox.LastUsedAt
	})
	if b.ending.Load() > 0 {
		cancel()
	}
	return inst, agent, since
}

// CancelSleep cancels a sleep of the box that is in progress: with many files it is slow.
func (b *Box) CancelSleep() {
	if cancel := read(b, func() context.CancelFunc { return b.cancel }); cancel != nil {
		cancel()
	}
}

// LastUse returns the instance and the agent of the box, and when it was last used.
func (b *Box) LastUse() (inst driver.Instance, agent *wire.Client, since time.Time) {
	b.locked(func() { inst, agent, since = b.inst, b.agent, b.rec.Sandbox.LastUsedAt })
	return inst, agent, since
}

// Detach takes a running box out of use: uses wait for the lifecycle lock from now on. listing is shown until the box
// runs again. If the box is in use, or was used after since, Detach returns false and changes nothing.
func (b *Box) Detach(listing *store.Listing, since time.Time) (ok bool) {
	b.locked(func() {
		if b.uses > 0 || b.rec.Sandbox.Status != hutch.Running || !b.rec.Sandbox.LastUsedAt.Equal(since) {
			return
		}
		b.inst, b.agent, b.rec.Listing, ok = nil, nil, listing, true
	})
	return ok
}

// Attach brings a box that was detached or paused back into use.
func (b *Box) Attach(inst driver.Instance, agent *wire.Client) {
	b.locked(func() { b.attach(inst, agent) })
}

// Reattach does the same as Attach, for work that is not a use: the box counts as idle since the given time, as before
// that work.
func (b *Box) Reattach(inst driver.Instance, agent *wire.Client, since time.Time) {
	b.locked(func() {
		b.attach(inst, agent)
		b.rec.Sandbox.LastUsedAt = since
		b.arm()
	})
}

// Pause leaves a detached box paused in its instance, which is frozen. No use
// begins until Attach.
func (b *Box) Pause(inst driver.Instance, agent *wire.Client) {
	b.locked(func() {
		b.inst, b.paused, b.rec.Sandbox.Paused = inst, agent, true
		b.arm()
	})
}

// CommitSleep records that a detached box sleeps, on disk first. The files or the memory of the box are on disk
// already; after CommitSleep, its instance can be removed.
func (b *Box) CommitSleep(ctx context.Context, as hutch.Status, reason string) error {
	return b.commit(ctx, func(r *store.Record) {
		r.Sandbox.Status, r.Sandbox.Reason, r.Handle = as, reason, nil
		r.Used.End()
	}, func() { b.move(as, reason) })
}

// BeginSalvage detaches the box from an instance that has no memory left, even a box in
// use, and returns its agent. It returns false when the box does not run in the instance.
// Call EndSalvage when the box sleeps, or is attached again.
func (b *Box) BeginSalvage(inst driver.Instance) (agent *wire.Client, ok bool) {
	b.locked(func() {
		if b.inst != inst || b.gone {
			return
		}
		if agent, ok = b.agent, true; agent == nil {
			agent = b.paused
		}
		b.inst, b.agent, b.paused, b.salvaging = nil, nil, nil, true
	})
	return agent, ok
}

// EndSalvage ends what BeginSalvage began.
func (b *Box) EndSalvage() { b.locked(func() { b.salvaging = false }) }

// Deadline is a deadline that a box has reached.
type Deadline int

const (
	NotDue  Deadline = iota
	Expired          // its lifetime is over
	Idle             // the box was not used for SleepAfter
)

// Due returns the deadline that has been reached, if any.
func (b *Box) Due(now time.Time) Deadline {
	return read(b, func() Deadline {
		v := &b.rec.Sandbox
		switch {
		case b.gone:
			return NotDue
		case v.ExpiresAt != nil && !now.Before(*v.ExpiresAt):
			return Expired
		case b.mayIdle() && !now.Before(v.LastUsedAt.Add(v.SleepAfter.Duration())):
			return Idle
		}
		return NotDue
	})
}

// Rearm sets the alarm again after Due. If the box could not be put to sleep or
// destroyed, the engine tries again after another idle time.
func (b *Box) Rearm(now time.Time, failed bool) {
	b.locked(func() {
		v := &b.rec.Sandbox
		if failed || v.Status == hutch.Running && !now.Before(v.LastUsedAt) {
			v.LastUsedAt = now
		}
		b.arm()
	})
}

// Arm sets the alarm of a recovered box.
func (b *Box) Arm() { b.locked(b.arm) }

// Disarm stops the alarm when the engine closes.
func (b *Box) Disarm() { b.locked(func() { b.alarm.stop() }) }

// mayIdle reports whether the box goes to sleep when it is idle. The caller holds mu.
func (b *Box) mayIdle() bool {
	v := &b.rec.Sandbox
	return v.Status == hutch.Running && !v.KeepAlive && !v.Paused && b.uses == 0
}

// arm sets the alarm for the next deadline. The caller holds mu.
func (b *Box) arm() {
	v := &b.rec.Sandbox
	var next time.Time
	if v.ExpiresAt != nil {
		next = *v.ExpiresAt
	}
	if b.mayIdle() {
		if idle := v.LastUsedAt.Add(v.SleepAfter.Duration()); next.IsZero() || idle.Before(next) {
			next = idle
		}
	}
	if next.IsZero() || b.gone || b.opt.Due == nil {
		b.alarm.stop()
		return
	}
	b.alarm.set(time.Until(next), b.opt.Due)
}

// alarm is the one timer of a box. mu guards it.
type alarm struct{ timer *time.Timer }

func (a *alarm) set(d time.Duration, f func()) {
	a.stop()
	a.timer = time.AfterFunc(max(d, 0), f)
}

func (a *alarm) stop() {
	if a.timer != nil {
		a.timer.Stop()
		a.timer = nil
	}
}
