package engine

import (
	"context"
	"sync/atomic"
	"time"

	"hutch"
	"hutch/internal/box"
	"hutch/internal/caller"
	"hutch/internal/resumable"
	"hutch/internal/store"
)

func nameOf(ctx context.Context, id string) box.Name {
	o, _ := caller.OwnerOf(ctx)
	return box.Name{Owner: o.ID, ID: id}
}

// sandbox is a box with the engine's data about it.
type sandbox struct {
	*box.Box
	execs    resumable.Table
	servers  atomic.Int32         // open connections with servers inside
	measured atomic.Pointer[seen] // set while the engine measures whether the sandbox is at work

	// These fields are about saves of the sandbox's volumes; only keepSaved uses them.
	nextSave         time.Time
	interruptedSaves int // saves in a row that ended because another caller wanted the lifecycle lock
}

// newSandbox puts the sandbox of a record into memory.
func (e *lifecycle) newSandbox(rec store.Record) *sandbox {
	s := &sandbox{}
	opt := box.Options{
		Uses: &e.uses, Moved: func() { e.moved.note(s.Name()) }, Due: func() { e.background(func() { e.due(s) }) },
		Spent: func(image string, more hutch.Usage) { e.ledger.Add(time.Now(), rec.Sandbox.Owner, image, more) },
	}
	if e.opt.Store != nil {
		opt.Save = e.saveRecord
	}
	s.Box = box.New(rec, opt)
	return s
}

// saveRecord writes a record. The saved state of a sleeping sandbox can be found only through its record. So the record
// of a sleeping sandbox must survive a power failure of the machine.
func (e *lifecycle) saveRecord(ctx context.Context, rec store.Record) error {
	if rec.Sandbox.Status.Sleeps() {
		return e.opt.Store.Keep(ctx, rec)
	}
	return e.opt.Store.Put(ctx, rec)
}
