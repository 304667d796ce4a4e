package fakeservice

import (
	"context"
	"time"

	"hutch"
)

// Network reports a network that is never used.
func (s *Service) Network(_ context.Context, sandbox string) (hutch.NetworkState, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	sb, err := s.findLocked(sandbox)
	return hutch.NetworkState{SandboxID: sb.ID, Network: sb.Network}, err
}

func (s *Service) SetNetwork(ctx context.Context, sandbox string, n hutch.Network) (hutch.NetworkState, error) {
	n, err := n.Canonical()
	if err != nil {
		return hutch.NetworkState{}, err
	}
	n = n.Shown()
	s.mu.Lock()
	if sb, ok := s.sandboxes[sandbox]; ok {
		sb.Network = n
		s.sandboxes[sandbox] = sb
	}
	s.mu.Unlock()
	return s.Network(ctx, sandbox)
}

// Connections returns one connection that was denied.
func (s *Service) Connections(ctx context.Context, sandbox string, q hutch.ConnectionQuery) (hutch.ConnectionLog, error) {
	log := hutch.ConnectionLog{Connections: []hutch.Connection{}, Next: 1}
	err := q.Check()
	if err == nil {
		_, err = s.Sandbox(ctx, sandbox)
	}
	if err == nil && q.After < 1 && q.Verdict != hutch.Allowed {
		log.Connections = append(log.Connections, hutch.Connection{
			Cursor: 1, ID: 1, Time: time.Unix(0, 0).UTC(), Protocol: "dns", Host: "evil.example.net", Verdict: hutch.Refused, Reason: "no rule is about it: hutch network box --allow evil.example.net", Count: 1,
		})
	}
	return log, err
}
