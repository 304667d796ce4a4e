package engine

import (
	"context"

	"hutch"
)

// happened reports an event in the life of a sandbox to its timeline. Why is for people, and can be empty.
func (e *lifecycle) happened(ctx context.Context, s *sandbox, event, why string) {
	e.opt.Happened(ctx, s.Owner(), s.ID(), hutch.TimelineEntry{Event: event, Target: why})
}

// created records a new sandbox on its timeline, with what it started from.
func (e *lifecycle) created(ctx context.Context, s *sandbox, o startPlan) {
	entry := hutch.TimelineEntry{Event: "Created", Target: s.Sandbox().Image, Snapshot: o.snapshot}
	if o.forked != "" {
		entry.Event, entry.Snapshot, entry.Sandboxes = "Forked", "", []string{o.forked}
	}
	e.opt.Happened(ctx, s.Owner(), s.ID(), entry)
}
