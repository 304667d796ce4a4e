package engine

import (
	"context"
	"slices"
	"time"

	"hutch"
)

// deniedSince returns the rules that would have allowed the attempts that the network denied since a command began.
// denials is the number of attempts that were denied before the command.
func (s *sandbox) deniedSince(ctx context.Context, began time.Time, denials int64) []string {
	g := s.Gateway()
	if g == nil || g.Traffic().Denied == denials {
		return nil
	}
	log := g.Connections(context.WithoutCancel(ctx), hutch.ConnectionQuery{Verdict: hutch.Refused, Limit: 4 * hutch.MaxDenied})
	var rules []string
	for _, c := range log.Connections {
		if !c.Allowable() {
			continue
		}
		if rule := c.MissingRule().String(); !c.Time.Before(began) && !slices.Contains(rules, rule) {
			rules = append(rules, rule)
		}
	}
	return rules[max(0, len(rules)-hutch.MaxDenied):]
}
