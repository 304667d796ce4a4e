package box

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"hutch"
	"hutch/internal/caller"
	"hutch/internal/ctxlock"
	"hutch/internal/driver"
	"hutch/internal/snapshots"
	"hutch/internal/store"
	"hutch/internal/wire"
)

// Name identifies a sandbox: two owners can have the same id.
type Name struct{ Owner, ID string }

// Context returns a context for calls on behalf of the owner.
func (n Name) Context(ctx context.Context) context.Context {
	return caller.WithOwner(ctx, caller.Owner{ID: n.Owner})
}

// Options are the functions that a box calls. Each can be nil.
type Options struct {
	// Save writes a record to disk.
	Save func(context.Context, store.Record) error
	// Due is called when the box has perhaps been idle for long enough, or has reached the end of its lifetime. Each
	// call has its own goroutine.
	Due func()
	// Spent receives the usage of the box since the previous call of Spent, once that usage is on disk.
	Spent func(image string, more hutch.Usage)
	// Moved is called after each change of the status or the health, in the goroutine that made the change, so it must
	// not wait.
	Moved func()
	// Uses counts the present uses of all boxes.
	Uses *atomic.Int32
}

// Box is one sandbox. Its methods are safe for concurrent use; the package comment says which methods need the
// lifecycle lock.
type Box struct {
	name    Name
	created time.Time
	opt     Options

	lifecycle  ctxlock.Lock
	waiting    atomic.Int32             // callers in LockToUse
	wanted     atomic.Int32             // callers in Lock
	ending     atomic.Int32             // callers in LockToEnd
	waking     atomic.Bool              // the box counts as running already
	secrets    atomic.Pointer[[]string] // see SecretNames
	saving     sync.Mutex
	connecting sync.Mutex // held while the gateway is being made

	mu           sync.Mutex         // guards all below
	rec          store.Record       // LastUsedAt and ExpiresAt have monotonic readings, which Time.UTC would remove
	inst         driver.Instance    // while attached or paused
	agent        *wire.Client       // while attached
	paused       *wire.Client       // the agent while paused
	since        time.Time          // when the box last began to run
	uses         int                // uses in progress
	gone         bool               // destroyed, or never created
	salvaging    bool               // detached, because the instance has no memory left
	lossReported bool               // a caller has learned that the box is lost
	fault        error              // why the box could not be created
	alarm        alarm              // at the time of the next deadline
	base         *snapshots.Base    // the layer that the box shares with other boxes; can be nil
	dropped      *snapshots.Base    // a base to release without mu
	cancel       context.CancelFunc // cancels a sleep in progress; nil before the first sleep
	giveWay      context.CancelFunc // ends the work of the holder of the lifecycle lock; nil if that work does not
	giveWayToEnd context.CancelFunc // the same, for callers in LockToEnd only
	health       hutch.Health
	usage        reading
	spent        hutch.Usage // the usage that Spent has received so far; at first, that of the record
	spentAt      time.Time

	gateway   Gateway // nil until OpenGateway
	noNetwork error   // why the network is unavailable now
}

// reading is the usage of the instance at one time. CPU percentages are computed from two successive readings.
type reading struct {
	at    time.Time
	cpu   float64 // seconds
	share float64 // percent
	ooms  int
}

// New returns a box for a record, with its lifecycle lock free.
func New(rec store.Record, opt Options) *Box {
	b := &Box{
		name: Name{rec.Sandbox.Owner, rec.Sandbox.ID}, created: rec.Sandbox.CreatedAt,
		opt: opt, lifecycle: ctxlock.New(), rec: rec, spent: rec.Usage(), spentAt: time.Now(),
	}
	b.noteSecrets()
	return b
}

// Name returns the owner and the id.
func (b *Box) Name() Name { return b.name }

// ID returns the id, which is unique for its owner.
func (b *Box) ID() string { return b.name.ID }

// Owner returns the id of the box's owner.
func (b *Box) Owner() string { return b.name.Owner }

// Created returns the time at which the box was created.
func (b *Box) Created() time.Time { return b.created }

// Key returns the key of its record.
func (b *Box) Key() string { return read(b, func() string { return b.rec.Key }) }

// Record returns a copy of the record. Its maps and lists are replaced, never changed.
func (b *Box) Record() store.Record { return read(b, func() store.Record { return b.rec }) }

// Status returns the status in the record.
func (b *Box) Status() hutch.Status {
	return read(b, func() hutch.Status { return b.rec.Sandbox.Status })
}

// Sandbox returns the record as callers see it, without the facts that only the agent and the instance have.
func (b *Box) Sandbox() hutch.Sandbox { return read(b, b.sandbox) }

// Look returns what Sandbox returns. For an attached box it also returns the instance and the agent.
func (b *Box) Look() (v hutch.Sandbox, inst driver.Instance, agent *wire.Client) {
	b.locked(func() {
		v = b.sandbox()
		inst, agent = b.attached()
	})
	return v, inst, agent
}

// sandbox does the same as Sandbox, for a caller that holds mu.
func (b *Box) sandbox() hutch.Sandbox {
	v := b.rec.Sandbox
	v.Health, v.Processes = b.health, []hutch.Process{}
	if v.Status == hutch.Running {
		v.Uptime = hutch.InSeconds(time.Since(b.since))
	}
	if v.Paused { // the store records it as running
		v.Status = hutch.Paused
	}
	if b.rec.Listing != nil {
		v.Processes = b.rec.Listing.Processes
	}
	if b.uses > 0 {
		v.LastUsedAt = time.Now()
	}
	v.LastUsedAt = v.LastUsedAt.UTC()
	if v.ExpiresAt != nil {
		end := v.ExpiresAt.UTC()
		v.ExpiresAt = &end
	}
	return v
}

// Listing returns the agent of an attached box. For another box it returns the saved list of processes and contexts, if
// it exists.
func (b *Box) Listing() (agent *wire.Client, saved *store.Listing) {
	b.locked(func() { agent, saved = b.agent, b.rec.Listing })
	return agent, saved
}

// Running reports whether the box runs, attached or not.
func (b *Box) Running() bool {
	return read(b, func() bool { return b.rec.Sandbox.Status == hutch.Running && !b.gone })
}

// InUse reports whether the box is in use. If so, Detach refuses.
func (b *Box) InUse() bool { return read(b, func() bool { return b.uses > 0 || b.inst == nil }) }

// Gone reports whether the box was destroyed or never created.
func (b *Box) Gone() bool { return read(b, func() bool { return b.gone }) }

// Fault returns the error because of which the box could not be created.
func (b *Box) Fault() error { return read(b, func() error { return b.fault }) }

// Leaving reports whether the box was destroyed or is being destroyed. It is also true
// while the box is detached: call it during a use, or with the lifecycle lock.
func (b *Box) Leaving() bool {
	return read(b, func() bool {
		return b.gone || b.rec.Sandbox.Status == hutch.Running && b.inst == nil && !b.salvaging
	})
}

// Instance returns the instance that the box runs in, frozen or not; nil if there is none.
func (b *Box) Instance() driver.Instance {
	return read(b, func() driver.Instance { return b.inst })
}

// RunsIn reports whether the box runs in an instance, and is not destroyed.
func (b *Box) RunsIn(inst driver.Instance) bool {
	return read(b, func() bool { return b.inst == inst && !b.gone })
}

// Attached returns instance and agent of an attached box; nil for any other box.
func (b *Box) Attached() (inst driver.Instance, agent *wire.Client) {
	b.locked(func() { inst, agent = b.attached() })
	return inst, agent
}

// attached does the same as Attached, for a caller that holds mu.
func (b *Box) attached() (driver.Instance, *wire.Client) {
	if b.inst == nil || b.agent == nil {
		return nil, nil
	}
	return b.inst, b.agent
}

// Held returns the instance of a box that is attached or paused, and its agent,
// which may be frozen.
func (b *Box) Held() (inst driver.Instance, agent *wire.Client) {
	b.locked(func() {
		inst, agent = b.inst, b.agent
		if agent == nil {
			agent = b.paused
		}
	})
	return inst, agent
}

// Paused returns instance and agent of a paused box; nil for any other box.
func (b *Box) Paused() (inst driver.Instance, agent *wire.Client) {
	b.locked(func() {
		if b.paused != nil {
			inst, agent = b.inst, b.paused
		}
	})
	return inst, agent
}

// SetWaking makes a box that is about to run count as running. The caller holds the lock that guards the number of
// running boxes.
func (b *Box) SetWaking(waking bool) { b.waking.Store(waking) }

// TakesMemory reports whether the box counts as running.
func (b *Box) TakesMemory() bool { return b.waking.Load() || !b.Status().Sleeps() }

// ReportLoss returns why the box is lost, and whether an earlier caller has received this reason. It records that a
// caller has received the reason now.
func (b *Box) ReportLoss() (before bool, reason string) {
	b.locked(func() {
		before, reason = b.lossReported, b.rec.Sandbox.Reason
		b.lossReported = true
	})
	return before, reason
}
