package agent

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"hutch/internal/wire"
)

// maxRuns bounds how often the kept output can alternate between stdout and stderr: if a program alternates at every
// byte, less is kept.
const maxRuns = 32 << 10

// maxMarks limits the times that are kept with the output, 16 bytes each. They are exact to the millisecond until
// there are maxMarks of them, and then less exact. For example, they are exact to a second if lines come without a
// pause for half an hour.
const maxMarks = 4 << 10

// ring is the log of a process: the newest [wire.LogSize] bytes of its output in memory and, if there is space, older
// output on disk. Writing never waits for readers.
type ring struct {
	room *spills // nil if everything is in memory

	mu      sync.Mutex
	buf     []byte // the byte at cursor c is buf[c%len(buf)]
	old     *spill // older output, on disk; nil if no output is there
	begin   int64  // cursors of the kept output
	end     int64
	runs    []run  // the kept output by stream; the last run ends at end
	marks   []mark // the kept output by time; the last mark ends at end
	coarse  uint   // times within 2^coarse ms share a mark
	closed  bool   // the process has ended for good
	changed chan struct{}
}

// run is consecutive output of one stream, up to a cursor.
type run struct {
	t   wire.Type
	end int64
}

// mark records that the output after the previous mark, up to the cursor end, was read at ms (Unix time in
// milliseconds).
type mark struct{ end, ms int64 }

// add adds output. It is a [sink].
func (l *ring) add(t wire.Type, data []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for piece := range slices.Chunk(data, wire.MaxChunk) {
		l.addLocked(t, piece)
	}
	l.markLocked(time.Now().UnixMilli())
	l.wakeLocked()
}

func (l *ring) addLocked(t wire.Type, data []byte) {
	l.growLocked(len(data))
	l.spillLocked(l.end + int64(len(data)-len(l.buf)))
	at := int(l.end % int64(len(l.buf)))
	n := copy(l.buf[at:], data)
	copy(l.buf, data[n:])
	l.end += int64(len(data))
	if n := len(l.runs); n > 0 && l.runs[n-1].t == t {
		l.runs[n-1].end = l.end
	} else {
		l.runs = append(l.runs, run{t, l.end})
	}
	l.trimLocked()
}

// markLocked records that the output up to now was read at ms.
func (l *ring) markLocked(ms int64) {
	l.marks = l.appendMark(l.marks, mark{l.end, ms})
	for len(l.marks) > maxMarks {
		l.coarse++
		kept := l.marks[:0]
		for _, m := range l.marks {
			kept = l.appendMark(kept, m)
		}
		l.marks = kept
	}
}

// appendMark appends m, or joins it to the last mark if their times are close.
func (l *ring) appendMark(marks []mark, m mark) []mark {
	if n := len(marks); n > 0 && marks[n-1].ms>>l.coarse == m.ms>>l.coarse {
		marks[n-1] = m
		return marks
	}
	return append(marks, m)
}

// since returns the cursor of the first output that was read at ms or later.
func (l *ring) since(ms int64) int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	cursor := l.begin
	for _, m := range l.marks { // not sorted by time, because clocks can be set back
		if m.ms >= ms {
			return cursor
		}
		cursor = m.end
	}
	return l.end
}

// warmLocked returns where the part in memory begins.
func (l *ring) warmLocked() int64 { return max(l.begin, l.end-int64(len(l.buf))) }

// growLocked makes space in memory for n more bytes, up to the size of the log.
func (l *ring) growLocked(n int) {
	size := max(4<<10, len(l.buf))
	for size < min(int(l.end-l.warmLocked())+n, wire.LogSize) {
		size *= 2
	}
	if size == len(l.buf) {
		return
	}
	buf := make([]byte, size)
	for c := l.warmLocked(); c < l.end; {
		from := l.buf[c%int64(len(l.buf)):]
		from = from[:min(int64(len(from)), l.end-c)]
		c += int64(copy(buf[c%int64(size):], from))
	}
	l.buf = buf
}

// spillLocked writes the output in memory before cursor to disk, or drops it.
func (l *ring) spillLocked(cursor int64) {
	from := l.warmLocked()
	if from >= cursor {
		return
	}
	if l.old == nil && l.room != nil && !l.closed {
		l.old = l.room.open(from)
	}
	for l.old != nil && from < cursor {
		b := l.buf[from%int64(len(l.buf)):]
		b = b[:min(int64(len(b)), cursor-from)]
		if l.old.write(from, b) != nil {
			l.dropSpilledLocked()
		}
		from += int64(len(b))
	}
	l.begin = max(l.begin, cursor-l.spilledLocked())
}

// spilledLocked returns how much can be on disk.
func (l *ring) spilledLocked() int64 {
	if l.old == nil {
		return 0
	}
	return l.old.size
}

// dropSpilledLocked drops the output on disk.
func (l *ring) dropSpilledLocked() {
	if l.old != nil {
		l.begin = l.warmLocked()
		l.old.close()
		l.old = nil
	}
}

// trimLocked drops the oldest runs if there are too many, and runs and marks whose output was dropped.
func (l *ring) trimLocked() {
	drop := 0
	if n := len(l.runs) - maxRuns; n > 0 {
		drop = n
		l.begin = max(l.begin, l.runs[n-1].end)
	}
	for drop < len(l.runs) && l.runs[drop].end <= l.begin {
		drop++
	}
	l.runs = l.runs[drop:]
	for len(l.marks) > 0 && l.marks[0].end <= l.begin {
		l.marks = l.marks[1:]
	}
	if len(l.marks) < maxMarks/4 && l.coarse > 0 {
		l.coarse--
	}
}

func (l *ring) wakeLocked() {
	if l.changed != nil {
		close(l.changed)
		l.changed = nil
	}
}

// close records that the process has ended for good. Processes that it left behind can still write.
func (l *ring) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	l.wakeLocked()
}

// forget drops all kept output.
func (l *ring) forget() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.dropSpilledLocked()
	l.begin, l.runs, l.marks, l.buf = l.end, nil, nil, nil
}

// dropSpilled drops the output on disk.
func (l *ring) dropSpilled() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.dropSpilledLocked()
	l.trimLocked()
}

// size returns how much memory and disk the log takes.
func (l *ring) size() (memory int, disk int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.buf), l.spilledLocked()
}

// last returns the cursor after all output so far.
func (l *ring) last() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.end
}

// look is the data at a reader's cursor.
type look struct {
	t       wire.Type
	cursor  int64 // where the data begins: later than requested if output was dropped
	n       int
	ms      int64 // when it was read
	closed  bool
	changed <-chan struct{} // if n is 0, closed when more output comes

	old  *spill // if not nil, the data is on disk there
	size int64  // size of the data in old
}

// read copies output at cursor into buf: output of one stream only and, if times is set, of one time only. It reads
// the disk without blocking the writer, which can overwrite the data meanwhile.
func (l *ring) read(cursor int64, buf []byte, times bool) look {
	for {
		v := l.look(cursor, buf, times)
		if v.old == nil {
			return v
		}
		n, err := v.old.read(v.cursor, v.size, buf[:v.n])
		if v.n = n; l.stillValid(v, err) {
			return v
		}
		if err == nil {
			cursor = v.cursor + spillStep // the writer is faster: skip its oldest bytes
		}
	}
}

// look finds what is at cursor, and copies it if it is in memory.
func (l *ring) look(cursor int64, buf []byte, times bool) look {
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
	m, _ := slices.BinarySearchFunc(l.marks, cursor+1, func(m mark, c int64) int { return cmp.Compare(m.end, c) })
	v.t, v.ms = l.runs[i].t, l.marks[m].ms
	buf = buf[:min(int64(len(buf)), l.runs[i].end-cursor)]
	if times {
		buf = buf[:min(int64(len(buf)), l.marks[m].end-cursor)]
	}
	if warm := l.warmLocked(); cursor < warm {
		v.n, v.old, v.size = int(min(int64(len(buf)), warm-cursor)), l.old, l.old.size
		return v
	}
	at := cursor % int64(len(l.buf))
	v.n = copy(buf, l.buf[at:])
	v.n += copy(buf[v.n:], l.buf)
	return v
}

// stillValid reports whether data from disk was still valid when it was read. If a disk cannot be read, it is no longer
// used.
func (l *ring) stillValid(v look, err error) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if v.old != l.old || v.cursor < l.begin {
		return false
	}
	if err != nil {
		l.dropSpilledLocked()
		l.trimLocked()
		return false
	}
	return true
}
