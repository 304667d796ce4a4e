package timeline

import (
	"cmp"
	"context"
	"slices"
	"time"

	"hutch"
	"hutch/internal/caller"
)

// Timeline implements hutch.Timelines.
func (t *Timelines) Timeline(ctx context.Context, sandbox string, q hutch.TimelineQuery, out func(hutch.TimelineEntry) error) error {
	if err := cmp.Or(q.Check(), hutch.CheckID(sandbox)); err != nil {
		return err
	}
	owner, _ := caller.OwnerOf(ctx)
	for {
		j, err := t.find(name{owner.ID, sandbox}, false)
		switch {
		case err != nil:
			return err
		case j == nil:
			return unknown(sandbox)
		}
		if err := t.follow(ctx, j, &q, out); err != errRemoved { // on errRemoved, look for the journal again
			return err
		}
	}
}

// unknown returns the answer for a sandbox that never existed, and for a sandbox of another owner.
func unknown(sandbox string) *hutch.Error {
	return hutch.Errorf(hutch.NotFound, "there is no timeline of a sandbox %q: it was never made, or its timeline was older than the server keeps it; list the sandboxes", sandbox).Naming(hutch.AboutSandbox, sandbox)
}

// follow passes on entries until there are no more or, if q follows, for ever.
func (t *Timelines) follow(ctx context.Context, j *journal, q *hutch.TimelineQuery, out func(hutch.TimelineEntry) error) error {
	j.addReader(1)
	defer j.addReader(-1)
	var at [2]position
	for past := true; ; past = false {
		list, changed, err := j.read(&at)
		if err != nil {
			return err
		}
		list = t.chosen(*q, list)
		if past {
			list = bounded(*q, list)
		}
		for _, e := range list {
			if err := out(e); err != nil {
				return err
			}
			q.After = e.Cursor
		}
		if !q.Follow {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// chosen sorts entries. It leaves out entries that q does not match, expired entries, and lines that a later line replaces.
func (t *Timelines) chosen(q hutch.TimelineQuery, list []hutch.TimelineEntry) []hutch.TimelineEntry {
	newest := map[int64]int64{}
	for _, e := range list {
		newest[e.ID] = max(newest[e.ID], e.Cursor)
	}
	oldest := time.Time{}
	if t.opt.Keep > 0 {
		oldest = time.Now().Add(-t.opt.Keep)
	}
	list = slices.DeleteFunc(list, func(e hutch.TimelineEntry) bool {
		return e.Cursor < newest[e.ID] || e.Time.Before(oldest) || !q.Match(e)
	})
	slices.SortFunc(list, func(a, b hutch.TimelineEntry) int { return cmp.Compare(a.Cursor, b.Cursor) })
	return list
}

// bounded keeps as many entries as q requests: the first ones after a cursor, or else the newest.
func bounded(q hutch.TimelineQuery, list []hutch.TimelineEntry) []hutch.TimelineEntry {
	switch n := cmp.Or(q.Limit, hutch.DefaultTimeline); {
	case len(list) <= n:
		return list
	case q.After > 0 && !q.Follow:
		return list[:n]
	case q.After > 0: // the reader has all entries up to q.After, and wants the next ones
		return list
	default:
		return list[len(list)-n:]
	}
}

func (j *journal) addReader(n int) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.readers += n
}
