package conversation

import (
	"context"
	"sync"
	"time"

	"hutch"
)

// lookEvery is how long the list of languages is valid.
const lookEvery = 10 * time.Minute

// runners remembers which languages there are.
type runners struct {
	mu    sync.Mutex
	list  []hutch.Language
	until time.Time
}

// Runners lists the languages for code. Looking takes a sandbox, so the result is cached for a while.
func (s *Server) Runners(ctx context.Context) ([]hutch.Language, error) {
	s.runners.mu.Lock()
	defer s.runners.mu.Unlock()
	if time.Now().Before(s.runners.until) {
		return s.runners.list, nil
	}
	box, err := s.svc.Create(ctx, hutch.CreateRequest{SleepAfter: hutch.InSeconds(idleTime), OnIdle: hutch.IdleDestroy})
	if err != nil {
		return nil, err
	}
	defer s.discard(ctx, box.ID)
	list, err := s.svc.Languages(ctx, box.ID)
	if err != nil {
		return nil, err
	}
	s.runners.list, s.runners.until = list, time.Now().Add(lookEvery)
	return list, nil
}
