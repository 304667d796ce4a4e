package box

import (
	"context"

	"hutch"
	"hutch/internal/snapshots"
	"hutch/internal/store"
)

// Lock waits for the lifecycle lock. The caller releases it with Unlock. Lock cancels work that has called GiveWay, so
// that the lock becomes free soon.
func (b *Box) Lock(ctx context.Context) error {
	b.wanted.Add(1)
	defer b.wanted.Add(-1)
	if end := read(b, func() context.CancelFunc { return b.giveWay }); end != nil {
		end()
	}
	return b.lifecycle.Take(ctx)
}

// GiveWay makes the caller, who holds the lifecycle lock, release it on demand: end is called when another caller wants
// the lock, or at once if another caller waits already. GiveWay(nil) ends that.
func (b *Box) GiveWay(end context.CancelFunc) {
	b.locked(func() { b.giveWay = end })
	if end != nil && b.wanted.Load() > 0 {
		end()
	}
}

// LockToEnd does the same as Lock, for a caller that destroys the box with force. Programs inside can make work on the
// box slow, and many callers can wait to do such work. So LockToEnd cancels the work of the holder of the lock, and the
// work of each caller that gets the lock earlier.
func (b *Box) LockToEnd(ctx context.Context) error {
	b.ending.Add(1)
	defer b.ending.Add(-1)
	b.CancelSleep()
	if end := read(b, func() context.CancelFunc { return b.giveWayToEnd }); end != nil {
		end()
	}
	return b.Lock(ctx)
}

// GiveWayToEnd makes LockToEnd call end, to cancel the work of the caller, who holds the lifecycle lock. If a caller
// already waits in LockToEnd, end is called at once. GiveWayToEnd(nil) ends that.
func (b *Box) GiveWayToEnd(end context.CancelFunc) {
	b.locked(func() { b.giveWayToEnd = end })
	if end != nil && b.ending.Load() > 0 {
		end()
	}
}

// LockToUse does the same as Lock, for a caller that wants to use the box: it cancels a hibernation in progress.
func (b *Box) LockToUse(ctx context.Context) error {
	b.waiting.Add(1)
	defer b.waiting.Add(-1)
	return b.Lock(ctx)
}

// Awaited reports whether a caller waits in LockToUse.
func (b *Box) Awaited() bool { return b.waiting.Load() > 0 }

// Unlock releases the lifecycle lock.
func (b *Box) Unlock() { b.lifecycle.Put() }

// locked runs f with mu held; f must not wait. Afterwards, without mu, it calls Moved if f changed the status or the
// health, and releases a base layer that f dropped, because the release can close the layer.
func (b *Box) locked(f func()) {
	moved, base := b.change(f)
	if base != nil {
		base.Release()
	}
	if moved && b.opt.Moved != nil {
		b.opt.Moved()
	}
}

// change runs f with mu held. moved is true if f changed the status or the health; dropped is the base layer that f dropped.
func (b *Box) change(f func()) (moved bool, dropped *snapshots.Base) {
	b.mu.Lock()
	defer b.mu.Unlock()
	before := b.shown()
	f()
	dropped, b.dropped = b.dropped, nil
	return b.shown() != before, dropped
}

// shown has the fields that decide the status and the health that callers see.
type shown struct {
	status hutch.Status
	health hutch.Health
	paused bool
}

// shown returns these fields. The caller holds mu.
func (b *Box) shown() shown { return shown{b.rec.Sandbox.Status, b.health, b.rec.Sandbox.Paused} }

// read returns the result of f, which reads fields of b.
func read[T any](b *Box, f func() T) T {
	b.mu.Lock()
	defer b.mu.Unlock()
	return f()
}

// Save writes the record.
func (b *Box) Save(ctx context.Context) error {
	return b.commit(ctx, func(*store.Record) {}, func() {})
}

// Update changes the record, on disk first. If it cannot be written, nothing changes.
// change is called twice and must do the same both times.
func (b *Box) Update(ctx context.Context, change func(*store.Record)) error {
	return b.commit(ctx, change, func() {
		change(&b.rec)
		b.arm()
	})
}

// commit changes the record on disk, and then calls then with mu held, which changes the record in memory. It does not
// write the record of a destroyed box again. The end of ctx does not stop commit, because then it would be unknown
// whether the record was written.
func (b *Box) commit(ctx context.Context, change func(*store.Record), then func()) error {
	b.saving.Lock()
	defer b.saving.Unlock()
	traffic := b.Traffic()
	var rec store.Record
	var gone bool
	b.locked(func() {
		b.rec.Traffic = traffic
		rec, gone = b.rec, b.gone
	})
	if gone {
		return nil
	}
	change(&rec)
	if b.opt.Save != nil {
		if err := b.opt.Save(context.WithoutCancel(ctx), rec); err != nil {
			return err
		}
	}
	b.locked(then)
	b.spend(rec.Usage())
	return nil
}

// Destroy calls retire, which removes the record from disk and keeps the usage, and marks the box
// as destroyed. No record of the box is written after that.
func (b *Box) Destroy(why string, retire func() error) error {
	b.saving.Lock()
	defer b.saving.Unlock()
	if err := retire(); err != nil {
		return err
	}
	b.spend(b.Used())
	b.locked(func() {
		b.move(hutch.Destroyed, why)
		b.gone = true
		b.alarm.stop()
	})
	return nil
}

// OpenGateway returns the gateway of the box, or nil for a destroyed box. The first call makes the gateway with open.
// The gateway lasts as long as the box, also while the box sleeps: names that were resolved before are still valid when
// it wakes.
func (b *Box) OpenGateway(open func() (Gateway, error)) (Gateway, error) {
	b.connecting.Lock()
	defer b.connecting.Unlock()
	if g := b.Gateway(); g != nil || b.Gone() {
		return g, nil
	}
	g, err := open()
	if err != nil || g == nil {
		return nil, err
	}
	b.locked(func() {
		if !b.gone {
			b.gateway = g
		}
	})
	if b.Gateway() == nil { // destroyed meanwhile
		g.Close()
		return nil, nil
	}
	return g, nil
}
