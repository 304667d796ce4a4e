package secret

import (
	"context"
	"sync"
	"time"

	"hutch"
)

// idle is how long a program must print nothing before it is assumed to wait for a reader.
const idle = 50 * time.Millisecond

// relay passes output on with the secrets replaced.
//
// Cursors count the bytes that the process wrote, so they mean the same to every reader, with any redactor or none. The
// cursor of a piece never lies after text of the other stream that is still held back. So a reader that continues from
// a cursor can see a few bytes twice, but misses none.
type relay struct {
	r    *Redactor
	out  func(hutch.Output) error
	fail context.CancelCauseFunc // ends the source of the output

	mu        sync.Mutex
	lanes     [2]lane // lanes of stdout and stderr
	from      int64   // output before this cursor is searched for secrets, and not passed on
	begun     bool
	cursor    int64 // the cursor that was reported last
	lost      int64 // reported with the next piece
	ended     bool
	err       error // the caller's error; its function is then not called again
	idleTimer *time.Timer
}

// lane is stdout or stderr.
type lane struct {
	stream
	name hutch.Stream
	at   int64     // position of the held bytes in the process's output
	time time.Time // time of the newest output
}

// newRelay returns a relay to out, and a context for the source of the output.
func newRelay(ctx context.Context, r *Redactor, out func(hutch.Output) error) (context.Context, *relay) {
	f := &relay{r: r, out: out}
	ctx, f.fail = context.WithCancelCause(ctx)
	f.lanes[0] = lane{stream: stream{r: r}, name: hutch.Stdout}
	f.lanes[1] = lane{stream: stream{r: r}, name: hutch.Stderr}
	return ctx, f
}

// continueAt makes the relay begin at a cursor in the middle of the output. It returns an earlier position to read
// from, so that a secret across the cursor is seen whole.
func (f *relay) continueAt(cursor int64) int64 {
	f.from, f.cursor = cursor, cursor
	return max(0, cursor-int64(f.r.longest)+1)
}

// resume makes the relay begin at a cursor in output that is read from its oldest byte.
func (f *relay) resume(cursor int64) {
	f.from, f.cursor, f.begun = cursor, cursor, true
}

func (f *relay) lane(s hutch.Stream) *lane {
	if s == hutch.Stderr {
		return &f.lanes[1]
	}
	return &f.lanes[0]
}

// output handles a piece of output.
func (f *relay) output(o hutch.Output) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	begin := o.Cursor - int64(len(o.Data))
	f.beginLocked(begin, o.Lost)
	if o.Lost > 0 {
		f.releaseLocked()
		f.lost += min(o.Lost, max(0, begin-f.from))
	}
	l := f.lane(o.Stream)
	old, was := len(l.held), l.at
	l.time = o.Time
	if begin < f.from {
		l.passed = old + int(min(f.from-begin, int64(len(o.Data))))
	}
	at := func(n int) int64 { // exact for new bytes; a lower bound for bytes that were held already
		if n >= old {
			return begin + int64(n-old)
		}
		return was + int64(n)
	}
	l.write(o.Data, func(data []byte, end int, marker bool) { f.passOnLocked(l, data, at(end), marker) })
	l.at = at(old + len(o.Data) - len(l.held))
	f.waitLocked()
	return f.err
}

// beginLocked records where the output begins: at the requested cursor or, if there is less output, at its end.
func (f *relay) beginLocked(begin, lost int64) {
	if f.begun {
		return
	}
	f.begun = true
	if begin < f.from-int64(f.r.longest)+1 {
		f.from = 0
	}
	f.cursor = max(begin-lost, f.from)
}

// passOnLocked passes on text that ends at a cursor.
func (f *relay) passOnLocked(l *lane, data []byte, end int64, marker bool) {
	if f.err != nil {
		return
	}
	for i := range f.lanes {
		if other := &f.lanes[i]; other != l && len(other.held) > other.passed {
			end = min(end, other.at)
		}
	}
	o := hutch.Output{Stream: l.name, Data: data, Cursor: end, Lost: f.lost, Time: l.time}
	o.Redacted = marker || end-int64(len(data))-f.lost != f.cursor
	f.cursor, f.lost = end, 0
	if f.err = f.out(o); f.err != nil {
		f.fail(f.err)
	}
}

// waitLocked sets the time after which a reader is assumed to wait for the held text.
func (f *relay) waitLocked() {
	switch {
	case len(f.lanes[0].held)+len(f.lanes[1].held) == 0:
	case f.idleTimer == nil:
		f.idleTimer = time.AfterFunc(idle, f.releaseHeld)
	default:
		f.idleTimer.Reset(idle)
	}
}

func (f *relay) releaseHeld() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i := range f.lanes {
		if l := &f.lanes[i]; !f.ended {
			l.reveal(func(data []byte, end int, _ bool) { f.passOnLocked(l, data, l.at+int64(end), false) })
		}
	}
}

// event passes on all held text, and then the event that happened after it.
func (f *relay) event(out func() error) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.releaseLocked()
	if f.err == nil {
		f.err = out()
	}
	return f.err
}

func (f *relay) releaseLocked() {
	for i := range f.lanes {
		l := &f.lanes[i]
		at := l.at
		l.release(func(data []byte, end int, marker bool) { f.passOnLocked(l, data, at+int64(end), marker) })
	}
}

// end passes on the rest, and returns the error of the reader.
func (f *relay) end() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.releaseLocked()
	f.ended = true
	if f.idleTimer != nil {
		f.idleTimer.Stop()
	}
	f.fail(nil)
	return f.err
}
