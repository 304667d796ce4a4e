package box

import (
	"context"

	"hutch"
	"hutch/internal/snapshots"
	"hutch/internal/store"
)

// Lock waits for the lifecycle lock. The caller gives it back with Unlock.
func (b *Box) Lock(ctx context.Context) error { return b.lifecycle.Take(ctx) }

// LockToUse is Lock for a caller that wants to use the box: a hibernation that is
// under way gives up for it.
func (b *Box) LockToUse(ctx context.Context) error {
	b.waiting.Add(1)
	defer b.waiting.Add(-1)
	return b.Lock(ctx)
}

// Awaited reports whether a caller waits in LockToUse.
func (b *Box) Awaited() bool { return b.waiting.Load() > 0 }

// Unlock gives the lifecycle lock back.
func (b *Box) Unlock() { b.lifecycle.Put() }

// locked runs f, which ends at once, with the fields of the box. A base layer that
// f drops is released after that, without mu: this may close it.
func (b *Box) locked(f func()) {
	if base := b.lockedDropping(f); base != nil {
		base.Release()
	}
}

func (b *Box) lockedDropping(f func()) (dropped *snapshots.Base) {
	b.mu.Lock()
	defer b.mu.Unlock()
	f()
	dropped, b.dropped = b.dropped, nil
	return dropped
}

// read returns what f reads of the fields of b.
func read[T any](b *Box, f func() T) T {
	b.mu.Lock()
	defer b.mu.Unlock()
	return f()
}

// Save writes the record.
func (b *Box) Save(ctx context.Context) error {
	return b.commit(ctx, func(*store.Record) {}, func() {})
}

// Update changes the record, on disk first. When it cannot be written, nothing has
// changed. change is called twice and does the same both times.
func (b *Box) Update(ctx context.Context, change func(*store.Record)) error {
	return b.commit(ctx, change, func() {
		change(&b.rec)
		b.arm()
	})
}

// commit changes the record on disk, and only then calls then to do so in memory,
// with mu held. The record of a box that is gone is not written again. The end of
// ctx stops nothing: otherwise it would be unknown whether the record was written.
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
	return nil
}

// Destroy says that the box is destroyed, once retire has removed its record from
// disk and kept what it used. No record of it is written after that.
func (b *Box) Destroy(why string, retire func() error) error {
	b.saving.Lock()
	defer b.saving.Unlock()
	if err := retire(); err != nil {
		return err
	}
	b.locked(func() {
		b.move(hutch.Destroyed, why)
		b.gone = true
		b.alarm.stop()
	})
	return nil
}

// OpenGateway returns the gateway of the box, and calls open for it the first time;
// nil for a box that is gone. It lasts as long as the box, also while that sleeps:
// what was resolved before still counts when it wakes.
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
