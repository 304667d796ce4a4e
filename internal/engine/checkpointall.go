package engine

import (
	"cmp"
	"context"
	"errors"
	"io"
	"maps"
	"slices"
	"sync"
	"time"

	"hutch"
	"hutch/internal/box"
	"hutch/internal/caller"
	"hutch/internal/driver"
	"hutch/internal/instance"
	"hutch/internal/saved"
	"hutch/internal/wire"
)

var _ hutch.Checkpoints = (*Engine)(nil)

// checkpointer copies the sandboxes that are awake, for a backup of the data folder.
type checkpointer struct {
	life *lifecycle
	busy chan struct{} // full during a CheckpointAll
}

// CheckpointAll implements hutch.Checkpoints.
func (cp checkpointer) CheckpointAll(ctx context.Context, out func(hutch.Checkpoint) error) (err error) {
	select {
	case cp.busy <- struct{}{}:
	case <-time.After(checkpointWait):
		return hutch.Errorf(hutch.Conflict, "another backup of this server is being made: wait until it is done")
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	defer func() { <-cp.busy }()
	remove, err := cp.life.saved.OpenCheckpoints()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, remove()) }()
	ctx, end := caller.Until(ctx, cp.life.calls)
	defer end()
	if err := cp.checkpointEach(ctx, cp.life.awake(), checkpointsTime, out); err != nil {
		return err
	}
	if err := out(hutch.Checkpoint{Done: true}); err != nil {
		return err
	}
	<-ctx.Done() // the copies are needed until then
	if cp.life.calls.Err() != nil {
		return context.Cause(ctx)
	}
	return nil
}

const (
	// checkpointWait is how long a call waits for the end of an earlier call, whose caller has just disconnected.
	checkpointWait = 3 * time.Second
	// checkpointsAtOnce limits how many sandboxes are copied at a time.
	checkpointsAtOnce = 2
	// checkpointTime bounds the copy of one sandbox: a hostile sandbox must not keep the others out of the backup.
	checkpointTime = 10 * time.Minute
	// checkpointsTime bounds the copies of all sandboxes.
	checkpointsTime = time.Hour
	// checkpointStall bounds how long a sandbox can pause while it sends its files.
	checkpointStall = 30 * time.Second
)

// checkpointEach copies the sandboxes in a limited time and reports each of them. Its error is that of ctx or out.
func (cp checkpointer) checkpointEach(ctx context.Context, names []box.Name, limit time.Duration, out func(hutch.Checkpoint) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	limited, stop := context.WithTimeoutCause(ctx, limit, hutch.Errorf(hutch.Timeout, "the copies of all sandboxes took longer than %v: put it to sleep first", limit))
	defer stop()
	var reporting sync.Mutex
	report := func(c hutch.Checkpoint) {
		reporting.Lock()
		defer reporting.Unlock()
		if ctx.Err() != nil {
			return
		}
		if err := out(c); err != nil {
			cancel(err)
		}
	}
	queue := newCheckpointQueue(names)
	worker := func() {
		for ctx.Err() == nil {
			name, done := queue.next()
			if done == nil {
				return
			}
			c, ok := cp.checkpointOne(limited, name)
			done()
			if ok {
				report(c)
			}
		}
	}
	var all sync.WaitGroup
	for range checkpointsAtOnce {
		all.Go(worker)
	}
	all.Wait()
	return context.Cause(ctx)
}

// checkpointQueue gives each owner the same time: the next sandbox belongs to the owner whose copies have taken the
// least time so far. So a slow sandbox delays only other sandboxes of its owner.
type checkpointQueue struct {
	mu     sync.Mutex
	owners []string                 // in order
	names  map[string][]box.Name    // sandboxes that are not copied yet, by owner
	took   map[string]time.Duration // time of an owner's copies; a copy in progress counts as taking the longest
}

func newCheckpointQueue(names []box.Name) *checkpointQueue {
	q := &checkpointQueue{names: map[string][]box.Name{}, took: map[string]time.Duration{}}
	for _, name := range names {
		q.names[name.Owner] = append(q.names[name.Owner], name)
	}
	q.owners = slices.Sorted(maps.Keys(q.names))
	return q
}

// next returns the sandbox to copy next, and a function to call after the copy. The function is nil if no sandbox is
// left.
func (q *checkpointQueue) next() (name box.Name, done func()) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.owners = slices.DeleteFunc(q.owners, func(owner string) bool { return len(q.names[owner]) == 0 })
	if len(q.owners) == 0 {
		return name, nil
	}
	owner := slices.MinFunc(q.owners, func(a, b string) int { return cmp.Compare(q.took[a], q.took[b]) })
	name, q.names[owner] = q.names[owner][0], q.names[owner][1:]
	q.took[owner] += checkpointTime
	began := time.Now()
	return name, func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		q.took[owner] += time.Since(began) - checkpointTime
	}
}

// checkpointOne copies a sandbox. It returns false if the sandbox is gone or asleep by then.
func (cp checkpointer) checkpointOne(ctx context.Context, name box.Name) (c hutch.Checkpoint, ok bool) {
	ctx, cancel := context.WithTimeoutCause(ctx, checkpointTime, hutch.Errorf(hutch.Timeout, "copying it took longer than %v: put it to sleep first", checkpointTime))
	defer cancel()
	c = hutch.Checkpoint{SandboxID: name.ID, Owner: name.Owner}
	memory, err := false, context.Cause(ctx)
	if err == nil {
		memory, err = cp.copyForBackup(ctx, name)
	}
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if s, gone := cp.life.find(name.Context(ctx), name.ID); err != nil && (gone != nil || !s.Running()) {
		return c, false
	}
	if err != nil {
		cp.life.log.Warn("copy a sandbox for a backup", "sandbox", name.ID, "err", err, "cause", hutch.AsError(err).Cause)
		c.Missing = hutch.AsError(err).Message
		return c, true
	}
	c.Memory = memory
	return c, true
}

// errFellAsleep is the error for a sandbox that fell asleep before its copy was made: its files are saved already.
var errFellAsleep = errors.New("the sandbox fell asleep")

// copyForBackup copies a sandbox: with its memory if its runtime saves memory and the sandbox has a moment without
// calls, otherwise only its files.
func (cp checkpointer) copyForBackup(ctx context.Context, name box.Name) (memory bool, err error) {
	named := name.Context(ctx)
	for end := time.Now().Add(quiesceTime); ; {
		done := false
		err := cp.life.hold(named, name.ID, func(s *sandbox) (err error) {
			if inst, agent := s.Paused(); agent != nil {
				done = true
				memory, err = cp.checkpointPaused(ctx, s, inst, agent)
				return err
			}
			memory, err = cp.checkpointMemory(ctx, s)
			done = memory
			return err
		})
		if done || err != nil && !errors.Is(err, hutch.Conflict) {
			return memory, err
		}
		if err == nil || time.Now().After(end) {
			return false, cp.checkpointFiles(named, name.ID)
		}
		if err := waitForPause(ctx); err != nil {
			return false, err
		}
	}
}

// checkpointMemory copies a sandbox with its memory, and reports whether its runtime can do that. The caller holds the
// lifecycle lock. During a call in the sandbox it returns Conflict.
func (cp checkpointer) checkpointMemory(ctx context.Context, s *sandbox) (bool, error) {
	inst, agent, since := s.LastUse()
	saver, ok := driver.As[driver.Saver](inst)
	switch {
	case !s.Running():
		return false, errFellAsleep
	case !ok:
		return false, nil
	case s.InUse():
		return false, inUse(s)
	}
	listing, err := cp.life.readListing(ctx, s, agent)
	if err != nil {
		return false, err
	}
	_, err = cp.life.copyDetached(s, listing, since, func() error {
		return cp.life.saved.CheckpointMemory(s.Record().CheckpointName(), func(dir string) error { return copyMemory(ctx, saver, agent, dir) })
	})
	return err == nil, err
}

// checkpointPaused copies a paused sandbox. The programs of the sandbox run during the copy. The caller holds the
// lifecycle lock.
func (cp checkpointer) checkpointPaused(ctx context.Context, s *sandbox, inst driver.Instance, agent *wire.Client) (memory bool, err error) {
	if err := instance.Thaw(ctx, inst); err != nil {
		return false, err
	}
	defer func() {
		if !instance.Freeze(context.WithoutCancel(ctx), inst) {
			cp.life.log.Warn("a sandbox could not be paused again after its copy for a backup, and runs", "sandbox", s.ID())
			cp.life.attach(s, inst, agent)
		}
	}()
	saver, ok := driver.As[driver.Saver](inst)
	if !ok {
		packing, stop := untilEnd(ctx, s, context.Canceled)
		defer stop()
		return false, cp.packCheckpoint(packing, s, agent)
	}
	return true, cp.life.saved.CheckpointMemory(s.Record().CheckpointName(), func(dir string) error { return copyMemory(ctx, saver, agent, dir) })
}

// checkpointFiles copies the files of a sandbox. This counts as a use of the sandbox.
func (cp checkpointer) checkpointFiles(ctx context.Context, id string) error {
	s, err := cp.life.find(ctx, id)
	if err != nil {
		return err
	}
	agent := s.BeginUse()
	if agent == nil {
		return hutch.Errorf(hutch.Unavailable, "it is starting or going to sleep: make another backup, or put it to sleep first")
	}
	defer s.EndUse()
	return cp.packCheckpoint(ctx, s, agent)
}

// packCheckpoint copies the files that an agent packs.
func (cp checkpointer) packCheckpoint(ctx context.Context, s *sandbox, agent *wire.Client) error {
	rec := s.Record()
	v := rec.Sandbox
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	silent := time.AfterFunc(checkpointStall, func() {
		cancel(hutch.Errorf(hutch.Timeout, "it sent nothing of its files for %v", checkpointStall))
	})
	defer silent.Stop()
	err := cp.life.saved.CheckpointArchive(rec.CheckpointName(), saved.Most(v.Limits), func(w io.Writer) error {
		return saved.Pack(ctx, agent, v.Image, progress{w, func() { silent.Reset(checkpointStall) }})
	})
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return err
}

// progress is a writer that calls its function wrote after each write.
type progress struct {
	io.Writer
	wrote func()
}

func (p progress) Write(b []byte) (int, error) {
	n, err := p.Writer.Write(b)
	p.wrote()
	return n, err
}
