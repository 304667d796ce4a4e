package engine

import (
	"context"
	"slices"
	"time"

	"hutch"
)

// denials counts what the network of a sandbox has denied so far.
func (s *sandbox) denials() int64 {
	if g := s.exit(); g != nil {
		return g.Traffic().Denied
	}
	return 0
}

// deniedSince are the rules that would have allowed what was denied since a
// command began, when there were so many denials.
func (s *sandbox) deniedSince(ctx context.Context, began time.Time, denials int64) []string {
	g := s.exit()
	if g == nil || g.Traffic().Denied == denials {
		return nil
	}
	log := g.Connections(context.WithoutCancel(ctx), hutch.ConnectionQuery{Verdict: hutch.Refused, Limit: 4 * hutch.MaxDenied})
	var rules []string
	for _, c := range log.Connections {
		if rule := c.MissingRule(); !c.Time.Before(began) && !slices.Contains(rules, rule) {
			rules = append(rules, rule)
		}
	}
	return rules[max(0, len(rules)-hutch.MaxDenied):]
}

// exit is the way out of a sandbox; nil when it has none.
func (s *sandbox) exit() Gateway {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.gateway
}
