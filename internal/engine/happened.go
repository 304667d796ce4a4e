package engine

import (
	"cmp"
	"context"
	"slices"
	"time"

	"hutch"
	"hutch/internal/wire"
)

// happened reports an event in the life of a sandbox to its timeline. Why is for people, and can be empty.
func (e *lifecycle) happened(ctx context.Context, s *sandbox, event, why string) {
	e.opt.Happened(ctx, s.Owner(), s.ID(), hutch.TimelineEntry{Event: event, Target: why})
}

// created records a new sandbox on its timeline, with its image, and with the snapshot or sandbox that it started from.
func (e *lifecycle) created(ctx context.Context, s *sandbox, o startPlan) {
	entry := hutch.TimelineEntry{Event: "Created", Target: s.Sandbox().Image, Snapshot: o.snapshot}
	if o.forked != "" {
		entry.Event, entry.Snapshot, entry.Sandboxes = "Forked", "", []string{o.forked}
	}
	e.opt.Happened(ctx, s.Owner(), s.ID(), entry)
}

// noteEnds asks the agent for the background processes that have ended, and reports their ends.
func (e *lifecycle) noteEnds(ctx context.Context, s *sandbox, agent *wire.Client) {
	if all, err := agent.List(ctx); err == nil {
		e.noteEnded(s, lastEnded(all))
	}
}

// lastEnded returns the newest processes of a list that have ended, as many as an agent remembers.
func lastEnded(all []wire.Process) []wire.Process {
	var ended []wire.Process
	for i := len(all) - 1; i >= 0 && len(ended) < wire.MaxFinished; i-- {
		if !all[i].Status.Live() && all[i].EndMS > 0 {
			ended = append(ended, all[i])
		}
	}
	slices.Reverse(ended)
	return ended
}

// noteEnded reports background processes that have ended. The timeline keeps the first report of each end. The agent's
// times are not trusted, and a copy of a sandbox also lists processes that had ended before the copy was made.
func (e *lifecycle) noteEnded(s *sandbox, ended []wire.Process) {
	if len(ended) == 0 || s.Gone() {
		return
	}
	created := s.Sandbox().CreatedAt
	for _, one := range ended {
		p := process(s.ID(), one)
		if p.EndTime == nil {
			continue
		}
		end := *p.EndTime
		if end.Before(created) || end.After(time.Now().Add(time.Minute)) {
			continue
		}
		entry := hutch.TimelineEntry{
			Event: "ProcessEnded", Kind: hutch.TimelineCommand, Time: end, Duration: hutch.InSeconds(max(0, end.Sub(later(p.StartTime, created)))),
			Target: cmp.Or(p.Command, p.Name), Process: p.ID, ExitCode: p.ExitCode,
		}
		if p.Status == hutch.ProcessFailed {
			entry.Result = hutch.TimelineFailed
		}
		e.opt.Happened(e.ctx, s.Owner(), s.ID(), entry)
	}
}
