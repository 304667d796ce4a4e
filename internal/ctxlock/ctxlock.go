// Package ctxlock has locks that a caller waits for only as long as its context
// lasts: one lock, or one for each name.
package ctxlock

import (
	"context"
	"sync"
)

// Lock is held by one caller at a time. Use New.
type Lock chan struct{}

// New returns a lock that is free.
func New() Lock { return make(Lock, 1) }

// Take waits for the lock. Its error is the cause of ctx, and the lock is then
// not held.
func (l Lock) Take(ctx context.Context) error {
	select {
	case l <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Try takes the lock if it is free.
func (l Lock) Try() bool {
	select {
	case l <- struct{}{}:
		return true
	default:
		return false
	}
}

// Put frees the lock. The caller must hold it.
func (l Lock) Put() { <-l }

// Locks are locks by name. A name that no caller holds or waits for takes no
// memory. The zero value is ready.
type Locks struct {
	mu sync.Mutex
	by map[string]*shared
}

// shared is a lock and how many callers hold it or wait for it.
type shared struct {
	Lock
	users int
}

// Take waits for the lock of a name, like Lock.Take.
func (t *Locks) Take(ctx context.Context, name string) error {
	err := t.join(name).Take(ctx)
	if err != nil {
		t.leave(name)
	}
	return err
}

// Try takes the lock of a name if it is free.
func (t *Locks) Try(name string) bool {
	taken := t.join(name).Try()
	if !taken {
		t.leave(name)
	}
	return taken
}

// Put frees the lock of a name. The caller must hold that lock.
func (t *Locks) Put(name string) { t.leave(name).Put() }

func (t *Locks) join(name string) *shared {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.by == nil {
		t.by = map[string]*shared{}
	}
	s := t.by[name]
	if s == nil {
		s = &shared{Lock: New()}
		t.by[name] = s
	}
	s.users++
	return s
}

func (t *Locks) leave(name string) *shared {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.by[name]
	if s.users--; s.users == 0 {
		delete(t.by, name)
	}
	return s
}
