package resumable

import (
	"context"
	"sort"
	"sync"

	"hutch"
)

const (
	// maxAhead is how far a resumable command can print ahead of its reader.
	maxAhead = 512 << 10
	// maxBehind is how much is kept of the output that the reader already got. A broken connection loses what the
	// buffers of both its ends had, which is megabytes where a client reads more slowly than the program prints.
	maxBehind = 2 << 20
	logStep   = 64 << 10 // by which a log grows
	logPiece  = 32 << 10 // the longest piece that is kept as one
	pieceCost = 64       // bytes of memory for a piece, in addition to its data
)

// outputLog is the newest output of a resumable command. It has one reader at a
// time, and holds the program back when that reader is slow or away.
//
// Positions are cursors, which count bytes of output. Weights are positions
// that also count the memory of the pieces: they bound the log.
type outputLog struct {
	take func(bytes int) bool // reserves memory for this many more bytes

	mu      sync.Mutex
	pieces  []piece
	base    int64 // weight of the output that was dropped before pieces
	weight  int64 // weight of all output so far
	handed  int64 // weight of the output that any reader got
	size    int64 // how much can be kept
	reader  *reader
	changes int // changes of the reader, and the end of the log
	ended   bool
	changed chan struct{} // closed when something above changes
}

// piece is consecutive output of one stream.
type piece struct {
	stream      hutch.Stream
	data        []byte
	end, weight int64 // of the end of data
}

// reader is where one connection reads.
type reader struct {
	cursor int64
	weight int64 // weight of the cursor
}

func newLog(take func(int) bool) *outputLog {
	return &outputLog{take: take, size: 2 * logStep, changed: make(chan struct{})}
}

// add appends output. It waits while the reader is too far behind, until ctx is
// done.
func (l *outputLog) add(ctx context.Context, o hutch.Output) error {
	cursor := o.Cursor - int64(len(o.Data))
	for data := o.Data; len(data) > 0; {
		n := min(len(data), logPiece)
		cursor += int64(n)
		if err := l.append(ctx, piece{stream: o.Stream, data: append([]byte(nil), data[:n]...), end: cursor}); err != nil {
			return err
		}
		data = data[n:]
	}
	return nil
}

func (l *outputLog) append(ctx context.Context, p piece) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	cost := int64(len(p.data)) + pieceCost
	for !l.fitsLocked(cost) {
		if err := l.waitLocked(ctx); err != nil {
			return err
		}
	}
	for len(l.pieces) > 0 && l.weight+cost-l.base > l.size {
		l.base = l.pieces[0].weight
		l.pieces[0] = piece{} // its data can be freed at once
		l.pieces = l.pieces[1:]
	}
	l.weight += cost
	p.weight = l.weight
	l.pieces = append(l.pieces, p)
	l.wakeLocked()
	return nil
}

// fitsLocked reports whether output of the given cost can be appended. Unread output must not be lost, and at least half
// of the log stays for output that a reader already got.
func (l *outputLog) fitsLocked(cost int64) bool {
	for l.wantsMoreLocked(cost) && l.take(logStep) {
		l.size += logStep
	}
	if l.weight+cost-l.handed > min(l.size/2, maxAhead) {
		return false
	}
	return l.reader == nil || l.weight+cost-l.reader.weight <= l.size
}

// wantsMoreLocked reports whether a larger log would keep more of what was read, or let the program print further ahead.
func (l *outputLog) wantsMoreLocked(cost int64) bool {
	kept, unread := l.weight+cost-l.base, l.weight+cost-l.handed
	return l.size < maxAhead+maxBehind && kept > l.size || l.size < 2*maxAhead && unread > l.size/2
}

// waitLocked waits for a change, without the lock.
func (l *outputLog) waitLocked(ctx context.Context) error {
	changed := l.changed
	l.mu.Unlock()
	defer l.mu.Lock()
	select {
	case <-changed:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (l *outputLog) wakeLocked() {
	close(l.changed)
	l.changed = make(chan struct{})
}

// end records that no output follows.
func (l *outputLog) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ended = true
	l.changes++
	l.wakeLocked()
}

// attach makes r the reader. The previous reader stops.
func (l *outputLog) attach(r *reader) {
	l.mu.Lock()
	defer l.mu.Unlock()
	r.weight = l.base
	l.reader = r
	l.changes++
	l.wakeLocked()
}

// detach reports whether r was still the reader.
func (l *outputLog) detach(r *reader) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.reader != r {
		return false
	}
	l.reader = nil
	l.changes++
	l.wakeLocked()
	return true
}

// count returns how many times a reader has connected or disconnected; the end of the command counts as one more.
func (l *outputLog) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.changes
}

// hasReader reports whether there is a reader.
func (l *outputLog) hasReader() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.reader != nil
}

var errTakenOver = hutch.Errorf(hutch.Conflict, "another connection resumed this command, and reads its output now: one connection reads it at a time")

// follow passes output to out from r's cursor to the end of the command.
func (l *outputLog) follow(ctx context.Context, r *reader, out func(hutch.Output) error) error {
	for {
		o, err := l.next(ctx, r)
		if err != nil || o.Data == nil {
			return err
		}
		if out != nil {
			if err := out(o); err != nil {
				return err
			}
		}
	}
}

// next waits for the next output; a piece without data means the end.
func (l *outputLog) next(ctx context.Context, r *reader) (hutch.Output, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for {
		switch {
		case ctx.Err() != nil:
			return hutch.Output{}, context.Cause(ctx)
		case l.reader != r:
			return hutch.Output{}, errTakenOver
		}
		if o := l.readLocked(r); o.Data != nil || l.ended {
			return o, nil
		}
		if err := l.waitLocked(ctx); err != nil {
			return hutch.Output{}, err
		}
	}
}

// readLocked returns the next output from r's cursor or, if that was dropped, from the oldest byte that is kept.
func (l *outputLog) readLocked(r *reader) hutch.Output {
	first := sort.Search(len(l.pieces), func(i int) bool { return l.pieces[i].weight > r.weight })
	for _, p := range l.pieces[first:] {
		r.weight = p.weight
		l.handed = max(l.handed, p.weight)
		l.wakeLocked() // there is space for more
		if p.end <= r.cursor {
			continue // the client has it already
		}
		begin := p.end - int64(len(p.data))
		o := hutch.Output{Stream: p.stream, Data: p.data, Cursor: p.end}
		if begin < r.cursor {
			o.Data = p.data[r.cursor-begin:]
		} else {
			o.Lost = begin - r.cursor
		}
		r.cursor = p.end
		return o
	}
	return hutch.Output{}
}
