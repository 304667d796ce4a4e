// Package buildlog keeps the records of builds that run and of the newest builds that have ended, with their output.
// They are in memory: a restart of the server forgets them.
package buildlog

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"hutch"
	"hutch/internal/caller"
	"hutch/internal/secret"
)

const (
	maxEnded   = 20       // most ended builds of one owner that are kept
	maxRunning = 100      // most builds of one owner that run or wait; connections do not limit detached ones
	maxSize    = 64 << 20 // bytes of memory for all builds of all owners

	maxStep, maxError = 300, 2000 // characters of a record's texts
)

// errCancelled is the cause of the end of a build that its owner deleted.
var errCancelled = hutch.Errorf(hutch.Conflict, "the build was cancelled")

// Log has the builds of all owners. The zero value is ready.
type Log struct {
	mu     sync.Mutex
	builds []*Build // oldest first
}

// Build is one build. The lock of its Log is taken before the lock of the Build.
type Build struct {
	log      *Log
	cancel   context.CancelCauseFunc
	redactor *secret.Redactor

	mu      sync.Mutex
	record  hutch.Build
	output  output
	changed chan struct{} // closed at the next event, and at the end
	over    chan struct{} // closed at the end
}

// Begin records a new build of an owner, and returns the context to build in. The caller must call End. The memory of
// what is kept of the secrets is charged to the caller's request.
func (l *Log) Begin(ctx context.Context, owner string, req hutch.BuildRequest) (context.Context, *Build, error) {
	values := map[string][]string{}
	for id, value := range req.Secrets {
		values[id] = []string{value}
	}
	b := &Build{
		log: l, redactor: secret.NewRedactor(values), changed: make(chan struct{}), over: make(chan struct{}),
		record: hutch.Build{ID: hutch.NewID("b"), Name: req.Name, Owner: owner, Status: hutch.BuildRunning, StartedAt: time.Now().UTC()},
	}
	if size := b.redactor.Size(); size > 0 && !caller.From(ctx).Budget.Take(size) {
		return nil, nil, hutch.Errorf(hutch.Exhausted, "the secrets of the build take more memory than its token may have now: wait until other builds and requests have ended, or give fewer secrets").With("limit", "memory of requests")
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	running := 0
	for _, other := range l.builds {
		if other.record.Owner == owner && !other.ended() {
			running++
		}
	}
	if running >= maxRunning {
		return nil, nil, hutch.Errorf(hutch.Exhausted, "%d builds run or wait, which is the most for one owner: wait until some have ended, or end some with hutch build rm", running).With("limit", "builds")
	}
	ctx, b.cancel = context.WithCancelCause(ctx)
	l.builds = append(l.builds, b)
	return ctx, b, nil
}

// ID returns the id of the build.
func (b *Build) ID() string { return b.record.ID }

// Cut returns where to cut a line of output after most bytes, so that no secret of the build is in two events; 0 if that
// depends on the output that follows.
func (b *Build) Cut(line []byte, most int) int {
	b.mu.Lock()
	r := b.redactor
	b.mu.Unlock()
	return r.Cut(line, most)
}

// Add adds an event to the build's output. After the end it does nothing.
func (b *Build) Add(e hutch.BuildEvent) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ended() {
		return
	}
	e.Name, e.Text = b.redactor.String(e.Name), b.redactor.String(e.Text)
	b.output.add(e)
	if e.State == hutch.BuildStarted {
		b.record.Steps, b.record.Step = max(b.record.Steps, e.Step), head(e.Name, maxStep)
	}
	close(b.changed)
	b.changed = make(chan struct{})
}

// End records how the build ended in ctx, and returns the error for its caller.
func (b *Build) End(ctx context.Context, image string, err error) error {
	if err != nil && errors.Is(context.Cause(ctx), errCancelled) {
		err = errCancelled
	}
	now := time.Now().UTC()
	b.mu.Lock()
	b.record.EndedAt, b.record.Image = &now, image
	switch {
	case err == nil:
		b.record.Status = hutch.BuildBuilt
	case errors.Is(err, errCancelled) || ctx.Err() != nil && errors.Is(context.Cause(ctx), context.Canceled):
		b.record.Status = hutch.BuildCancelled
	default:
		b.record.Status, b.record.Error = hutch.BuildBroken, head(b.redactor.String(hutch.AsError(err).Message), maxError)
	}
	b.redactor = nil
	close(b.changed)
	close(b.over)
	b.mu.Unlock()
	b.cancel(nil)
	b.log.trim(b.record.Owner)
	return err
}

// head is a copy of the first characters of a text, without the memory of its rest.
func head(s string, most int) string { return fmt.Sprintf("%.*s", most, s) }

// trim drops ended builds. If the owner has too many, it drops the owner's oldest ones. If the builds of all owners
// are too large, it drops the oldest of the owner whose builds are largest, so that no owner displaces the builds of
// another.
func (l *Log) trim(owner string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	ended := 0
	for _, b := range slices.Backward(l.builds) {
		if b.record.Owner == owner && b.ended() {
			if ended++; ended > maxEnded {
				l.removeLocked(b)
			}
		}
	}
	for {
		total, sizes := 0, map[string]int{}
		for _, b := range l.builds {
			size := b.size()
			total += size
			sizes[b.record.Owner] += size
		}
		if total <= maxSize {
			return
		}
		most := largest(sizes, l.builds)
		i := slices.IndexFunc(l.builds, func(b *Build) bool { return b.ended() && sizes[b.record.Owner] >= most })
		if i < 0 {
			return
		}
		l.removeLocked(l.builds[i])
	}
}

// largest returns the size of one owner's builds: the largest size among the owners that have an ended build.
func largest(sizes map[string]int, builds []*Build) (most int) {
	for _, b := range builds {
		if b.ended() {
			most = max(most, sizes[b.record.Owner])
		}
	}
	return most
}

func (l *Log) removeLocked(b *Build) {
	l.builds = slices.DeleteFunc(l.builds, func(other *Build) bool { return other == b })
}

func (b *Build) ended() bool {
	select {
	case <-b.over:
		return true
	default:
		return false
	}
}

func (b *Build) size() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.output.size() + 1024
}

func (b *Build) snapshot() hutch.Build {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.record
}

// List returns the builds of an owner, oldest first; with all, those of every owner.
func (l *Log) List(owner string, all bool) []hutch.Build {
	l.mu.Lock()
	defer l.mu.Unlock()
	list := []hutch.Build{}
	for _, b := range l.builds {
		if all || b.record.Owner == owner {
			list = append(list, b.snapshot())
		}
	}
	return list
}

func (l *Log) find(owner string, all bool, id string) (*Build, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, b := range l.builds {
		if b.record.ID == id && (all || b.record.Owner == owner) {
			return b, nil
		}
	}
	return nil, hutch.Errorf(hutch.NotFound, "there is no build %.80q: the newest %d builds that have ended are kept, until the server ends; list them with hutch build ls", id, maxEnded)
}

// Read passes the output of a build to out and returns its record; with follow, only after the build has ended.
func (l *Log) Read(ctx context.Context, owner string, all bool, id string, follow bool, out func(hutch.BuildEvent) error) (hutch.Build, error) {
	b, err := l.find(owner, all, id)
	if err != nil {
		return hutch.Build{}, err
	}
	for next := 0; ; {
		b.mu.Lock()
		var events []hutch.BuildEvent
		events, next = b.output.from(next)
		record, changed, ended := b.record, b.changed, b.ended()
		b.mu.Unlock()
		for _, e := range events {
			if err := out(e); err != nil {
				return record, err
			}
		}
		if ended || !follow {
			return record, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return record, context.Cause(ctx)
		}
	}
}

// Delete ends a running build and waits for its end, or removes the record of an ended build.
func (l *Log) Delete(ctx context.Context, owner string, all bool, id string) error {
	b, err := l.find(owner, all, id)
	if err != nil {
		return err
	}
	if b.ended() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.removeLocked(b)
		return nil
	}
	b.cancel(errCancelled)
	select {
	case <-b.over:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
