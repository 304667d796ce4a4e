// Package resumable keeps commands that outlive the connection that started them, and the newest part of their output. A
// command runs until it ends, is cancelled, or has had no reader for a grace period. After its end it is kept for the same
// period.
//
// A command has one reader at a time. If that reader is slow or away, the command has to wait, so its output takes a
// limited part of its caller's memory budget.
package resumable

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"hutch"
)

// Command is a command whose output a caller can continue to read after a lost connection. Its table removes it.
type Command struct {
	id     string
	grace  time.Duration
	log    *outputLog
	cancel context.CancelCauseFunc
	users  atomic.Int32 // the run and the table; the last one frees the memory
	free   func()
	table  *Table

	over   chan struct{} // closed when result and err are set
	result hutch.ExecResult
	err    error
}

// Table holds the commands of one sandbox. The zero value is ready. Its lock is taken before the lock of a log.
type Table struct {
	mu   sync.Mutex
	list []*Command // oldest first
}

// Options are what a command needs from the code that runs it.
type Options struct {
	Grace  time.Duration           // how long the command is kept without a reader
	Take   func(bytes int) bool    // asks for more memory
	Free   func()                  // releases the memory; called last
	Cancel context.CancelCauseFunc // stops the command
}

var (
	errCancelled  = hutch.Errorf(hutch.Conflict, "the command was cancelled, and stopped").Because(context.Canceled)
	errUnattended = hutch.Errorf(hutch.Conflict, "the command was stopped, because nobody resumed it in time")
)

// Add makes a command with a first reader. If the table is full, the oldest command that has ended and has no reader is
// removed.
func (t *Table) Add(opt Options) (*Command, *Reader, error) {
	x := &Command{
		id: hutch.NewID("x"), grace: opt.Grace, log: newLog(opt.Take),
		cancel: opt.Cancel, free: opt.Free, table: t, over: make(chan struct{}),
	}
	x.users.Store(2)
	r := &Reader{command: x}
	x.log.attach(&r.reader)
	if err := t.add(x); err != nil {
		opt.Cancel(nil)
		opt.Free()
		return nil, nil, err
	}
	return x, r, nil
}

// ID returns the id by which a client names the command.
func (x *Command) ID() string { return x.id }

// Output appends output. It waits while the reader is too far behind, until ctx is
// done.
func (x *Command) Output(ctx context.Context, o hutch.Output) error { return x.log.add(ctx, o) }

// Finish records how the command ended.
func (x *Command) Finish(res hutch.ExecResult, err error) {
	x.result, x.err = res, err
	close(x.over)
	x.log.end()
	x.drop()
	if !x.log.hasReader() {
		x.await()
	}
}

// await removes the command after the grace. It does not if a reader has come or the
// command has ended in the meantime: then await is called again.
func (x *Command) await() {
	begun := x.log.count()
	time.AfterFunc(x.grace, func() {
		x.table.mu.Lock()
		defer x.table.mu.Unlock()
		if x.log.count() == begun && !x.log.hasReader() && x.table.removeLocked(x) {
			x.cancel(errUnattended)
		}
	})
}

// drop ends a use. The last use frees the memory of the command.
func (x *Command) drop() {
	if x.users.Add(-1) == 0 {
		x.cancel(nil)
		x.free()
	}
}

// ended reports whether the command has ended.
func (x *Command) ended() bool {
	select {
	case <-x.over:
		return true
	default:
		return false
	}
}

// Cancel stops the command, and waits for its end.
func (t *Table) Cancel(ctx context.Context, id string) error {
	x, err := t.find(id, func(*Command) {})
	if err != nil {
		return err
	}
	x.cancel(errCancelled)
	select {
	case <-x.over:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Resume returns a new reader of a command, from a cursor. The previous reader stops.
func (t *Table) Resume(id string, cursor int64) (*Reader, error) {
	r := &Reader{reader: reader{cursor: cursor}}
	x, err := t.find(id, func(x *Command) { x.log.attach(&r.reader) })
	if err != nil {
		return nil, err
	}
	r.command = x
	return r, nil
}

// add adds a command.
func (t *Table) add(x *Command) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	for i := 0; len(t.list) >= hutch.MaxResumable; i++ {
		if i == len(t.list) {
			return hutch.Errorf(hutch.Exhausted, "the limit of %d resumable commands at a time is reached in this sandbox: wait for one to end or cancel it, or leave resumable out", hutch.MaxResumable)
		}
		if old := t.list[i]; old.ended() && !old.log.hasReader() {
			t.removeLocked(old)
			break
		}
	}
	t.list = append(t.list, x)
	return nil
}

// find returns a command. It first calls the function then with the command, while it holds the lock. So that function
// can prevent the removal of the command.
func (t *Table) find(id string, then func(*Command)) (*Command, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, x := range t.list {
		if x.id == id {
			then(x)
			return x, nil
		}
	}
	return nil, hutch.Errorf(hutch.NotFound, "there is no resumable command %.80q: it was never started here, its connection was lost for more than %v, or the server was started again", id, hutch.ExecGrace)
}

// removeLocked forgets a command, and reports whether it was known.
func (t *Table) removeLocked(x *Command) bool {
	for i, other := range t.list {
		if other == x {
			t.list = append(t.list[:i:i], t.list[i+1:]...)
			x.drop()
			return true
		}
	}
	return false
}
