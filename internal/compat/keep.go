package compat

import (
	"context"
	"sync"
	"time"

	"hutch"
)

// Throttle determines for each of many names when it is time to repeat an action.
type Throttle struct {
	every time.Duration
	mu    sync.Mutex
	last  map[string]time.Time
}

// NewThrottle returns a throttle for actions that are done once in an interval.
func NewThrottle(every time.Duration) *Throttle {
	return &Throttle{every: every, last: map[string]time.Time{}}
}

// mostNames is how many names are remembered. When there are more, all are forgotten, and some actions are done earlier
// than necessary.
const mostNames = 10000

// Due reports whether it is time to act. If so, it starts a new interval.
func (s *Throttle) Due(name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if last, ok := s.last[name]; ok && time.Since(last) < s.every {
		return false
	}
	if len(s.last) >= mostNames {
		clear(s.last)
	}
	s.last[name] = time.Now()
	return true
}

// Forget makes the action due at once.
func (s *Throttle) Forget(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.last, name)
}

// Keeper uses sandboxes that are destroyed after a time without use. Until then they sleep like all sandboxes.
type Keeper struct {
	svc      hutch.Service
	keep     time.Duration
	extended *Throttle // by owner and sandbox: when its life was last extended
}

// NewKeeper returns a keeper of sandboxes that are kept for a time without use. A use extends a sandbox's life, at most
// 24 times in that time.
func NewKeeper(svc hutch.Service, keep time.Duration) *Keeper {
	return &Keeper{svc, keep, NewThrottle(keep / 24)}
}

// Use calls do for the sandbox with the id in req; see [Keeper.Look]. If the sandbox is missing, it is created first.
func (k *Keeper) Use(ctx context.Context, req hutch.CreateRequest, do func() error) error {
	err := k.Look(ctx, req.ID, do)
	if !Missing(err) {
		return err
	}
	req.Timeout = hutch.InSeconds(k.keep)
	if _, err := k.svc.Create(ctx, req); err != nil {
		return err
	}
	return do()
}

// Look extends the life of a sandbox and calls do. Once do has begun something, it must not return NotFound, because
// the caller may then call it again.
func (k *Keeper) Look(ctx context.Context, sandbox string, do func() error) error {
	name := Owner(ctx) + " " + sandbox
	if k.extended.Due(name) {
		life := hutch.InSeconds(k.keep)
		if _, err := k.svc.Update(ctx, sandbox, hutch.UpdateRequest{Timeout: &life}); err != nil {
			k.extended.Forget(name)
			return err
		}
	}
	return do()
}
