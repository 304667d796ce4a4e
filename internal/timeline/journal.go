package timeline

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"hutch"
)

// journal is the timeline of one sandbox.
type journal struct {
	dir  string
	open *atomic.Int32 // files that all journals keep open

	mu      sync.Mutex
	loaded  bool
	removed bool
	tracks  [2]track
	last    int64 // the newest cursor
	running map[int64]struct{}
	changed chan struct{} // closed at the next entry; nil when no reader waits
	readers int           // readers that follow
	used    time.Time
	pace    pace     // pace of the network's events
	ends    []string // ids of the processes whose end was recorded last, oldest first
	endPace pace     // pace of the ends of processes
}

// mostEnds is how many ids a journal keeps, so that the end of a process is recorded only once. An agent lists fewer
// processes.
const mostEnds = 256

// track is a part of a journal with its own size limit. Its newest lines are in one file. When that file is full, it
// replaces the file with the older lines.
type track struct {
	name string
	most int64    // bytes of each of the two files
	size int64    // size of the newer file
	turn int      // how many times this process has replaced the older file
	file *os.File // the newer file while it is kept open, or nil
}

// mostOpen is how many files all journals together keep open between two entries. Other files are opened for each entry,
// which takes longer.
const mostOpen = 256

const (
	callTrack = iota
	programTrack
)

const (
	mostCalls    = 512 << 10
	mostPrograms = 128 << 10
)

var errRemoved = errors.New("the journal was removed")

func newJournal(dir string, open *atomic.Int32) *journal {
	return &journal{
		dir: dir, open: open, running: map[int64]struct{}{}, used: time.Now(),
		tracks: [2]track{callTrack: {name: "calls", most: mostCalls}, programTrack: {name: "programs", most: mostPrograms}},
	}
}

func (j *journal) newer(t *track) string { return filepath.Join(j.dir, t.name+".jsonl") }
func (j *journal) older(t *track) string { return filepath.Join(j.dir, t.name+".old.jsonl") }

// trackOf returns the track of an entry. The track of programs has the entries that programs can cause in any number:
// entries about the network and memory, and about sleep and waking that no caller requested. Visitors of a port can also
// cause sleep and waking.
func trackOf(e hutch.TimelineEntry) int {
	switch e.Event {
	case Allowed, Denied, Skipped, MemoryLimit, ProcessEnded:
		return programTrack
	case Woken, Hibernated, Stopped:
		if e.Token == "" {
			return programTrack
		}
	}
	return callTrack
}

// append writes an entry with a new cursor, and returns its id. An entry with an id replaces the earlier entry with
// that id.
func (j *journal) append(e hutch.TimelineEntry) (int64, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if err := j.loadLocked(); err != nil {
		return 0, err
	}
	if e.Event == ProcessEnded && slices.Contains(j.ends, e.Process) {
		return 0, nil // another call has recorded it meanwhile
	}
	return j.appendLocked(e)
}

func (j *journal) noteEndLocked(process string) {
	if len(j.ends) == mostEnds {
		j.ends = slices.Delete(j.ends, 0, 1)
	}
	j.ends = append(j.ends, process)
}

func (j *journal) appendLocked(e hutch.TimelineEntry) (int64, error) {
	e.Cursor = j.last + 1
	if e.ID == 0 {
		e.ID = e.Cursor
	}
	line, err := json.Marshal(e)
	if err != nil {
		return 0, err
	}
	if err := j.writeLocked(&j.tracks[trackOf(e)], append(line, '\n')); err != nil {
		return 0, err
	}
	j.last, j.used = e.Cursor, time.Now()
	if e.Event == ProcessEnded {
		j.noteEndLocked(e.Process)
	}
	delete(j.running, e.ID)
	if e.Result == hutch.TimelineRunning {
		j.running[e.ID] = struct{}{}
	}
	if e.Event == Destroyed { // few entries follow
		for i := range j.tracks {
			j.closeLocked(&j.tracks[i])
		}
	}
	if j.changed != nil {
		close(j.changed)
		j.changed = nil
	}
	return e.ID, nil
}

// writeLocked appends one line. It truncates a partial write, so that the next line starts cleanly.
func (j *journal) writeLocked(t *track, line []byte) error {
	if t.size > 0 && t.size+int64(len(line)) > t.most {
		j.closeLocked(t)
		if err := os.Rename(j.newer(t), j.older(t)); err != nil {
			return err
		}
		t.size, t.turn = 0, t.turn+1
	}
	if t.file == nil {
		f, err := os.OpenFile(j.newer(t), os.O_WRONLY|os.O_CREATE, 0o600)
		if err != nil {
			return err
		}
		t.file = f
		j.open.Add(1)
	}
	if j.open.Load() > mostOpen {
		defer j.closeLocked(t)
	}
	if n, err := t.file.WriteAt(line, t.size); err != nil {
		if n > 0 {
			err = errors.Join(err, t.file.Truncate(t.size))
		}
		return err
	}
	t.size += int64(len(line))
	return nil
}

func (j *journal) closeLocked(t *track) {
	if t.file != nil {
		t.file.Close()
		t.file = nil
		j.open.Add(-1)
	}
}

// endLocked makes the journal unusable.
func (j *journal) endLocked() {
	j.removed = true
	for i := range j.tracks {
		j.closeLocked(&j.tracks[i])
	}
	if j.changed != nil {
		close(j.changed)
		j.changed = nil
	}
}

// loadLocked finds the ends of the tracks. Bytes after the last whole line, which a power cut can leave, are overwritten.
func (j *journal) loadLocked() error {
	if j.removed {
		return errRemoved
	}
	if j.loaded {
		return nil
	}
	for i := range j.tracks {
		t := &j.tracks[i]
		if _, _, err := j.loadFile(j.older(t)); err != nil {
			return err
		}
		whole, size, err := j.loadFile(j.newer(t))
		if err == nil && whole < size {
			err = os.Truncate(j.newer(t), whole)
		}
		if err != nil {
			return err
		}
		t.size = whole
	}
	j.loaded = true
	return nil
}

// loadFile finds the last cursor. It returns the length of the complete lines and that of the file. Both are 0 if the
// file is missing.
func (j *journal) loadFile(path string) (whole, size int64, err error) {
	b, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return 0, 0, err
	}
	n := bytes.LastIndexByte(b, '\n') + 1
	eachLine(b[:n], func(e hutch.TimelineEntry) {
		j.last = max(j.last, e.Cursor)
		if e.Event == ProcessEnded {
			j.noteEndLocked(e.Process)
		}
	})
	return int64(n), int64(len(b)), nil
}

// eachLine decodes lines. It skips invalid lines.
func eachLine(b []byte, do func(hutch.TimelineEntry)) {
	for line := range bytes.Lines(b) {
		var e hutch.TimelineEntry
		if json.Unmarshal(line, &e) == nil && e.Cursor > 0 {
			do(e)
		}
	}
}

// position is how far a reader has read a track. The zero position is before its first line.
type position struct {
	begun bool
	turn  int
	at    int64
}

// read returns the entries after a position in each track, and moves the positions past them. If the server ended while
// a call was running, the entry of the call is returned as interrupted.
func (j *journal) read(from *[2]position) (list []hutch.TimelineEntry, changed <-chan struct{}, err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if err := j.loadLocked(); err != nil {
		return nil, nil, err
	}
	j.noteSkippedLocked()
	for i := range j.tracks {
		t, p := &j.tracks[i], &from[i]
		b, err := j.bytesLocked(t, *p)
		if err != nil {
			return nil, nil, err
		}
		*p = position{begun: true, turn: t.turn, at: t.size}
		eachLine(b, func(e hutch.TimelineEntry) {
			if _, still := j.running[e.ID]; e.Result == hutch.TimelineRunning && !still {
				e.Result, e.Error = hutch.TimelineInterrupted, "the server ended while this was under way: whether it was done is not known"
			}
			list = append(list, e)
		})
	}
	if j.changed == nil {
		j.changed = make(chan struct{})
	}
	return list, j.changed, nil
}

// bytesLocked returns the lines of a track after a position, if they are still kept.
func (j *journal) bytesLocked(t *track, p position) ([]byte, error) {
	if p.begun && p.turn == t.turn {
		return readFrom(j.newer(t), p.at, t.size)
	}
	at := int64(0)
	if p.begun && p.turn == t.turn-1 {
		at = p.at
	}
	before, err := readFrom(j.older(t), at, 2*t.most)
	if err != nil {
		return nil, err
	}
	b, err := readFrom(j.newer(t), 0, t.size)
	return append(before, b...), err
}

// readFrom reads a part of a file; a missing file is empty.
func readFrom(path string, at, end int64) ([]byte, error) {
	if at >= end {
		return nil, nil
	}
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.NewSectionReader(f, at, end-at))
}
