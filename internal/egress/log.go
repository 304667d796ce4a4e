package egress

import (
	"context"
	"slices"
	"sync"
	"time"

	"hutch"
)

// record is the log of a sandbox: its newest lines, in the order of their cursors. Repeated equal events are one line
// with a count.
type record struct {
	mu      sync.Mutex
	lines   []*hutch.Connection
	cursor  int64
	id      int64
	changed chan struct{} // closed at the next line; nil when no query waits
	// complete is called with a copy of each line when nothing of the line except its count can change any more; it can
	// be nil.
	complete func(hutch.Connection)
}

// alike is how many lines back an equal line is searched for.
const alike = 32

// add puts a line at the end of the log. If the line is finished and equals a recent one, add increases the count of
// that line instead.
func (r *record) add(c hutch.Connection) *hutch.Connection {
	line, fresh := r.insert(c)
	if fresh && !c.Open && r.complete != nil {
		r.complete(c)
	}
	return line
}

// insert does the same as add, and reports whether the line is new.
func (r *record) insert(c hutch.Connection) (line *hutch.Connection, fresh bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !c.Open {
		for _, old := range r.lines[max(0, len(r.lines)-alike):] {
			if same(old, &c) {
				old.Count++
				old.Time = c.Time
				r.lastLocked(old)
				return old, false
			}
		}
	}
	r.id++
	c.ID, c.Count = r.id, 1
	if len(r.lines) == hutch.MaxConnections {
		r.lines = slices.Delete(r.lines, 0, 1)
	}
	r.lines = append(r.lines, &c)
	r.lastLocked(&c)
	return &c, true
}

func same(a, b *hutch.Connection) bool {
	return a.Verdict == hutch.Refused && b.Verdict == hutch.Refused && !a.Open && a.Sent+a.Received == 0 &&
		a.Protocol == b.Protocol && a.Host == b.Host && a.Address == b.Address && a.Port == b.Port && a.Reason == b.Reason && a.Method == b.Method
}

// note changes a line whose connection is still open.
func (r *record) note(c *hutch.Connection, change func(*hutch.Connection)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	change(c)
}

// end changes a line for the last time, and moves it to the end of the log if the log still has it.
func (r *record) end(c *hutch.Connection, change func(*hutch.Connection)) {
	last := r.finish(c, change)
	if r.complete != nil {
		r.complete(last)
	}
}

// finish does the same as end, and returns a copy of the line.
func (r *record) finish(c *hutch.Connection, change func(*hutch.Connection)) hutch.Connection {
	r.mu.Lock()
	defer r.mu.Unlock()
	change(c)
	c.Open, c.Duration = false, hutch.InSeconds(time.Since(c.Time))
	if slices.Contains(r.lines, c) {
		r.lastLocked(c)
	}
	return *c
}

// lastLocked makes a line the newest.
func (r *record) lastLocked(c *hutch.Connection) {
	if i := slices.Index(r.lines, c); i < len(r.lines)-1 {
		r.lines = append(slices.Delete(r.lines, i, i+1), c)
	}
	r.cursor++
	c.Cursor = r.cursor
	if r.changed != nil {
		close(r.changed)
		r.changed = nil
	}
}

// read returns the lines that match q, and waits for them if q.Wait is set.
func (r *record) read(ctx context.Context, q hutch.ConnectionQuery) hutch.ConnectionLog {
	ctx, cancel := context.WithTimeout(ctx, q.Wait.Duration())
	defer cancel()
	for {
		found, changed := r.look(q)
		if len(found.Connections) > 0 || q.Wait == 0 {
			return found
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return found
		}
	}
}

func (r *record) look(q hutch.ConnectionQuery) (hutch.ConnectionLog, <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	found := hutch.ConnectionLog{Connections: []hutch.Connection{}, Next: r.cursor}
	for _, c := range r.lines {
		if c.Cursor > q.After && (q.Verdict == "" || c.Verdict == q.Verdict) {
			shown := *c
			shown.Time = c.Time.UTC() // without the monotonic clock: see end
			found.Connections = append(found.Connections, shown)
		}
	}
	switch extra := len(found.Connections) - q.Limit; {
	case extra > 0 && q.After > 0: // the reader continues from here
		found.Connections = found.Connections[:q.Limit]
		found.Next = found.Connections[q.Limit-1].Cursor
	case extra > 0:
		found.Connections = found.Connections[extra:]
	}
	if r.changed == nil {
		r.changed = make(chan struct{})
	}
	return found, r.changed
}
