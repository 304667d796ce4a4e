package swerex

import (
	"context"
	"sync"
	"time"

	"hutch"
	"hutch/internal/caller"
)

// maxShells is how many sessions of one owner are remembered.
const maxShells = 1000

// shells remembers up to where the output of each session was returned, and lets one action at a time use a session. A
// restart of the server loses this data: then a session continues from the end of its output.
//
// Owners have sandboxes with the same id, and the copies of a sandbox have processes with the same id, so only owner,
// sandbox and process together identify a session.
type shells struct {
	mu   sync.Mutex
	list map[string]map[address]*shell // by owner
}

type address struct{ sandbox, process string }

// take waits until no other action uses a session. The caller gives the shell back with release.
func (s *shells) take(ctx context.Context, svc hutch.Service, sandbox, process string) (*shell, error) {
	sh, err := s.enter(ctx, svc, address{sandbox, process})
	if err != nil {
		return nil, err
	}
	select {
	case sh.busy <- struct{}{}:
		return sh, nil
	case <-ctx.Done():
		s.leave(sh)
		return nil, context.Cause(ctx)
	}
}

func (s *shells) release(sh *shell) {
	<-sh.busy
	s.leave(sh)
}

func (s *shells) enter(ctx context.Context, svc hutch.Service, at address) (*shell, error) {
	owner, _ := caller.OwnerOf(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	own := s.list[owner.ID]
	sh := own[at]
	if sh == nil {
		if len(own) >= maxShells && !dropOldest(own) {
			return nil, hutch.Errorf(hutch.Exhausted, "actions are under way in %d sessions: wait for some to end", maxShells)
		}
		sh = &shell{busy: make(chan struct{}, 1), cursor: unknown, svc: svc, address: at}
		if s.list == nil {
			s.list = map[string]map[address]*shell{}
		}
		if own == nil {
			own = map[address]*shell{}
			s.list[owner.ID] = own
		}
		own[at] = sh
	}
	sh.users++
	return sh, nil
}

func (s *shells) leave(sh *shell) {
	s.mu.Lock()
	defer s.mu.Unlock()
	sh.users--
	sh.used = time.Now()
}

// dropOldest forgets the session that has not been used for the longest time. It reports false if all are in use.
func dropOldest(own map[address]*shell) bool {
	var oldest *shell
	for _, sh := range own {
		if sh.users == 0 && (oldest == nil || sh.used.Before(oldest.used)) {
			oldest = sh
		}
	}
	if oldest == nil {
		return false
	}
	delete(own, oldest.address)
	return true
}

func (s *shells) forget(ctx context.Context, sandbox, process string) {
	owner, _ := caller.OwnerOf(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.list[owner.ID], address{sandbox, process})
	if len(s.list[owner.ID]) == 0 {
		delete(s.list, owner.ID)
	}
}
