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
	"hutch/internal/driver"
	"hutch/internal/instance"
	"hutch/internal/saved"
	"hutch/internal/wire"
)

var _ hutch.Checkpoints = (*Engine)(nil)

// CheckpointAll implements hutch.Checkpoints.
func (e *Engine) CheckpointAll(ctx context.Context, out func(hutch.Checkpoint) error) (err error) {
	select {
	case e.checkpointing <- struct{}{}:
	case <-time.After(checkpointWait):
		return hutch.Errorf(hutch.Conflict, "another backup of this server is being made: wait until it is done")
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	defer func() { <-e.checkpointing }()
	remove, err := e.saved.OpenCheckpoints()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, remove()) }()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(e.calls, func() { cancel(context.Cause(e.calls)) })()
	if err := e.checkpointEach(ctx, e.awake(), checkpointsTime, out); err != nil {
		return err
	}
	if err := out(hutch.Checkpoint{Done: true}); err != nil {
		return err
	}
	<-ctx.Done() // the copies are needed until then
	if e.calls.Err() != nil {
		return context.Cause(ctx)
	}
	return nil
}

const (
	// checkpointWait is for the end of an earlier call whose caller has just gone.
	checkpointWait = 3 * time.Second
	// checkpointsAtOnce limits how many sandboxes are copied at a time.
	checkpointsAtOnce = 2
	// checkpointTime bounds the copy of one sandbox: a hostile one must not keep the others out of the backup.
	checkpointTime = 10 * time.Minute
	// checkpointsTime bounds the copies of all sandboxes.
	checkpointsTime = time.Hour
	// checkpointStall bounds how long a sandbox may send nothing of its files.
	checkpointStall = 30 * time.Second
)

// checkpointEach copies the sandboxes in a limited time and reports each of them. Its error is that of ctx or out.
func (e *Engine) checkpointEach(ctx context.Context, names []box.Name, limit time.Duration, out func(hutch.Checkpoint) error) error {
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
			c, ok := e.checkpointOne(limited, name)
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

// checkpointQueue gives each owner the same time: the next sandbox is one of the owner whose copies took the least so far. So slow
// sandboxes delay those of their owner.
type checkpointQueue struct {
	mu     sync.Mutex
	owners []string                 // in order
	names  map[string][]box.Name    // by owner, that are not copied yet
	took   map[string]time.Duration // by owner; a copy in progress counts as the longest
}

func newCheckpointQueue(names []box.Name) *checkpointQueue {
	q := &checkpointQueue{names: map[string][]box.Name{}, took: map[string]time.Duration{}}
	for _, name := range names {
		q.names[name.Owner] = append(q.names[name.Owner], name)
	}
	q.owners = slices.Sorted(maps.Keys(q.names))
	return q
}

// next returns the sandbox to copy next, and what to call when it is copied; nil if there are no more.
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

// checkpointOne copies a sandbox. It returns false for one that is gone or asleep by now.
func (e *Engine) checkpointOne(ctx context.Context, name box.Name) (c hutch.Checkpoint, ok bool) {
	ctx, cancel := context.WithTimeoutCause(ctx, checkpointTime, hutch.Errorf(hutch.Timeout, "copying it took longer than %v: put it to sleep first", checkpointTime))
	defer cancel()
	c = hutch.Checkpoint{SandboxID: name.ID, Owner: name.Owner}
	memory, err := false, context.Cause(ctx)
	if err == nil {
		memory, err = e.copyForBackup(ctx, name)
	}
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if s, gone := e.find(name.Context(ctx), name.ID); err != nil && (gone != nil || !s.Running()) {
		return c, false
	}
	if err != nil {
		e.log.Warn("copy a sandbox for a backup", "sandbox", name.ID, "err", err, "cause", hutch.AsError(err).Cause)
		c.Missing = hutch.AsError(err).Message
		return c, true
	}
	c.Memory = memory
	return c, true
}

// awake names the sandboxes that run, in order.
func (e *lifecycle) awake() (names []box.Name) {
	e.mu.Lock()
	for name, s := range e.sandboxes {
		if s.Running() {
			names = append(names, name)
		}
	}
	e.mu.Unlock()
	slices.SortFunc(names, func(a, b box.Name) int { return cmp.Or(cmp.Compare(a.Owner, b.Owner), cmp.Compare(a.ID, b.ID)) })
	return names
}

// errFellAsleep is the error for a sandbox that fell asleep meanwhile: its files are saved already.
var errFellAsleep = errors.New("the sandbox fell asleep")

// copyForBackup copies a sandbox: with its memory if the runtime saves memory and no call is in progress for a
// moment, otherwise only its files.
func (e *Engine) copyForBackup(ctx context.Context, name box.Name) (memory bool, err error) {
	named := name.Context(ctx)
	for end := time.Now().Add(quiesceTime); ; {
		done := false
		err := e.hold(named, name.ID, func(s *sandbox) (err error) {
			if inst, agent := s.Paused(); agent != nil {
				done = true
				memory, err = e.checkpointPaused(ctx, s, inst, agent)
				return err
			}
			memory, err = e.checkpointMemory(ctx, s)
			done = memory
			return err
		})
		if done || err != nil && !errors.Is(err, hutch.Conflict) {
			return memory, err
		}
		if err == nil || time.Now().After(end) {
			return false, e.checkpointFiles(named, name.ID)
		}
		if err := waitForPause(ctx); err != nil {
			return false, err
		}
	}
}

// checkpointMemory copies a sandbox with its memory, and reports whether its runtime can. The caller holds the lifecycle
// lock. During a call in the sandbox it returns Conflict.
func (e *lifecycle) checkpointMemory(ctx context.Context, s *sandbox) (bool, error) {
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
	listing, err := readListing(ctx, s.ID(), agent)
	if err != nil {
		return false, err
	}
	_, err = e.copyDetached(s, listing, since, func() error {
		return e.saved.CheckpointMemory(s.Record().CheckpointName(), func(dir string) error { return copyMemory(ctx, saver, agent, dir) })
	})
	return err == nil, err
}

// checkpointPaused copies a paused sandbox, whose programs continue for that time. The caller holds the lifecycle lock.
func (e *lifecycle) checkpointPaused(ctx context.Context, s *sandbox, inst driver.Instance, agent *wire.Client) (memory bool, err error) {
	if err := instance.Thaw(ctx, inst); err != nil {
		return false, err
	}
	defer func() {
		if !instance.Freeze(context.WithoutCancel(ctx), inst) {
			e.log.Warn("a sandbox could not be paused again after its copy for a backup, and runs", "sandbox", s.ID())
			e.attach(s, inst, agent)
		}
	}()
	saver, ok := driver.As[driver.Saver](inst)
	if !ok {
		return false, e.packCheckpoint(ctx, s, agent)
	}
	return true, e.saved.CheckpointMemory(s.Record().CheckpointName(), func(dir string) error { return copyMemory(ctx, saver, agent, dir) })
}

// checkpointFiles copies the files of a sandbox, which is a use of it.
func (e *lifecycle) checkpointFiles(ctx context.Context, id string) error {
	s, err := e.find(ctx, id)
	if err != nil {
		return err
	}
	agent := s.BeginUse()
	if agent == nil {
		return hutch.Errorf(hutch.Unavailable, "it is starting or going to sleep: make another backup, or put it to sleep first")
	}
	defer s.EndUse()
	return e.packCheckpoint(ctx, s, agent)
}

// packCheckpoint copies the files that an agent packs.
func (e *lifecycle) packCheckpoint(ctx context.Context, s *sandbox, agent *wire.Client) error {
	rec := s.Record()
	v := rec.Sandbox
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	silent := time.AfterFunc(checkpointStall, func() {
		cancel(hutch.Errorf(hutch.Timeout, "it sent nothing of its files for %v", checkpointStall))
	})
	defer silent.Stop()
	err := e.saved.CheckpointArchive(rec.CheckpointName(), saved.Most(v.Limits), func(w io.Writer) error {
		return saved.Pack(ctx, agent, v.Image, progress{w, func() { silent.Reset(checkpointStall) }})
	})
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return err
}

// progress is a writer that calls wrote after each write.
type progress struct {
	io.Writer
	wrote func()
}

func (p progress) Write(b []byte) (int, error) {
	n, err := p.Writer.Write(b)
	p.wrote()
	return n, err
}
