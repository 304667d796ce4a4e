package agent

import (
	"cmp"
	"slices"
	"sync"

	"hutch/internal/wire"
)

// maxRuns bounds how often the kept output may change between stdout and
// stderr: a program that does it with every byte keeps less of it.
const maxRuns = 8 << 10

// ring is the log of a process: the newest [wire.LogSize] bytes of its output.
// Writing never waits for readers.
type ring struct {
	mu      sync.Mutex
	buf     []byte // of the byte at cursor c: buf[c%len(buf)]
	begin   int64  // cursors of what is kept
	end     int64
	runs    []run // what is kept, by stream; the last one ends at end
	closed  bool  // the process has ended for good
	changed chan struct{}
}

// run is consecutive output of one stream, up to a cursor.
type run struct {
	t   wire.Type
	end int64
}

// add is a [sink].
func (l *ring) add(t wire.Type, data []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.end += int64(len(data))
	if n := len(l.runs); n > 0 && l.runs[n-1].t == t {
		l.runs[n-1].end = l.end
	} else {
		l.runs = append(l.runs, run{t, l.end})
	}
	if len(data) > wire.LogSize {
		data = data[len(data)-wire.LogSize:]
		l.begin = l.end - wire.LogSize
	}
	l.growLocked(len(data))
	at := int((l.end - int64(len(data))) % int64(len(l.buf)))
	n := copy(l.buf[at:], data)
	copy(l.buf, data[n:])
	l.trimLocked(int64(len(l.buf)))
	l.wakeLocked()
}

// growLocked makes room for n bytes more, up to the size of the log.
func (l *ring) growLocked(n int) {
	kept := int(min(l.end-l.begin, wire.LogSize))
	if kept <= len(l.buf) {
		return
	}
	size := max(4<<10, len(l.buf))
	for size < kept {
		size *= 2
	}
	buf := make([]byte, size)
	for c := l.begin; c < l.end-int64(n); {
		from := l.buf[c%int64(len(l.buf)):]
		from = from[:min(int64(len(from)), l.end-int64(n)-c)]
		c += int64(copy(buf[c%int64(size):], from))
	}
	l.buf = buf
}

// trimLocked forgets what is more than size bytes, or too many runs, ago.
func (l *ring) trimLocked(size int64) {
	l.begin = max(l.begin, l.end-size)
	drop := 0
	if n := len(l.runs) - maxRuns; n > 0 {
		drop = n
		l.begin = max(l.begin, l.runs[n-1].end)
	}
	for drop < len(l.runs) && l.runs[drop].end <= l.begin {
		drop++
	}
	l.runs = l.runs[drop:]
}

func (l *ring) wakeLocked() {
	if l.changed != nil {
		close(l.changed)
		l.changed = nil
	}
}

// close says that the process has ended for good. What it left behind may
// still write.
func (l *ring) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	l.wakeLocked()
}

// forget drops all that is kept.
func (l *ring) forget() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.begin, l.runs, l.buf = l.end, nil, nil
}

// size is how much memory the log takes.
func (l *ring) size() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.buf)
}

// look is what a reader finds at its cursor.
type look struct {
	t       wire.Type
	cursor  int64 // where the data begins: later than asked when the rest is lost
	n       int
	closed  bool
	changed <-chan struct{} // with n == 0: closed when there is news
}

// read copies output of one stream at cursor into buf.
func (l *ring) read(cursor int64, buf []byte) look {
	l.mu.Lock()
	defer l.mu.Unlock()
	cursor = min(max(cursor, l.begin), l.end)
	v := look{cursor: cursor, closed: l.closed}
	if cursor == l.end {
		if l.changed == nil {
			l.changed = make(chan struct{})
		}
		v.changed = l.changed
		return v
	}
	i, _ := slices.BinarySearchFunc(l.runs, cursor+1, func(r run, c int64) int { return cmp.Compare(r.end, c) })
	v.t = l.runs[i].t
	buf = buf[:min(int64(len(buf)), l.runs[i].end-cursor)]
	at := cursor % int64(len(l.buf))
	v.n = copy(buf, l.buf[at:])
	v.n += copy(buf[v.n:], l.buf)
	return v
}
