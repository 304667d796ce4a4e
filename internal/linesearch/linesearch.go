// Package linesearch looks for a text or a pattern in the output of a program, while it arrives.
package linesearch

import (
	"bytes"
	"errors"
	"regexp"
	"strings"
	"sync"
	"time"

	"hutch"
)

const (
	maxLine  = 16 << 10 // bytes of a line that are searched together
	overlap  = 1 << 10  // bytes of a longer line that are searched again with the following bytes
	maxMatch = 1 << 10  // bytes of a line that are shown
	// quiet is the time without output after which an unfinished line, such as a prompt, counts as a whole line.
	quiet = 200 * time.Millisecond
)

// ErrFound ends the stream of output after the search has found a line.
var ErrFound = errors.New("found")

// Search looks for a line in output while it arrives. An incomplete line is kept, up to a limit, for each stream:
// output of one stream can arrive in the middle of a line on the other.
type Search struct {
	text    []byte
	pattern *regexp.Regexp
	found   func()

	mu     sync.Mutex
	lines  [2]line // lines of stdout and stderr
	timer  *time.Timer
	cursor int64 // cursor after all output so far
	behind int64 // cursor after the last complete line
	match  *match
}

// line is the received part of a line, and the position up to which it was searched.
type line struct {
	data []byte
	done int
}

type match struct {
	line   string
	cursor int64
}

// New returns a search for text, or for pattern if there is one, from a cursor. The search
// calls found if an unfinished line matches; the caller then stops the output.
func New(text string, pattern *regexp.Regexp, cursor int64, found func()) *Search {
	return &Search{text: []byte(text), pattern: pattern, found: found, cursor: cursor, behind: cursor}
}

// Output handles a piece of output.
func (s *Search) Output(o hutch.Output) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.timer != nil {
		s.timer.Stop()
	}
	l := &s.lines[0]
	if o.Stream == hutch.Stderr {
		l = &s.lines[1]
	}
	if o.Lost > 0 {
		s.lines = [2]line{}
	}
	s.cursor = o.Cursor
	for rest := o.Data; len(rest) > 0 && s.match == nil; {
		rest = s.takeLocked(l, rest, o.Cursor)
	}
	if s.match != nil {
		return ErrFound
	}
	if len(s.lines[0].data)+len(s.lines[1].data) == 0 {
		s.behind = o.Cursor
	} else if s.pattern != nil {
		s.timer = time.AfterFunc(quiet, s.searchRest)
	}
	return nil
}

// takeLocked adds the next part of rest, up to the end of a line, to l, and returns the remaining part. end is the
// cursor after rest.
func (s *Search) takeLocked(l *line, rest []byte, end int64) []byte {
	n := min(len(rest), maxLine-len(l.data))
	whole := false
	if i := bytes.IndexByte(rest[:n], '\n'); i >= 0 {
		n, whole = i, true
	}
	l.data = append(l.data, rest[:n]...)
	behind := end - int64(len(rest)-n)
	switch {
	case whole:
		s.lookLocked(l, behind, behind+1)
		*l = line{data: l.data[:0]}
		return rest[n+1:]
	case len(l.data) == maxLine:
		s.lookLocked(l, behind, behind)
		l.data = append(l.data[:0], l.data[maxLine-overlap:]...)
		l.done = len(l.data)
	case s.pattern == nil:
		s.lookLocked(l, behind, behind)
	}
	return rest[n:]
}

// lookLocked searches a line, which ends at the cursor end; next is the cursor
// after its line feed.
func (s *Search) lookLocked(l *line, end, next int64) {
	if s.match != nil {
		return
	}
	if s.pattern != nil {
		data := bytes.TrimSuffix(l.data, []byte("\r"))
		if at := s.pattern.FindIndex(data); at != nil {
			s.match = &match{shown(data, at[0]), next}
		}
		return
	}
	from := max(0, l.done-len(s.text)+1)
	l.done = len(l.data)
	if i := bytes.Index(l.data[from:], s.text); i >= 0 {
		at := from + i
		s.match = &match{shown(l.data, at), end - int64(len(l.data)-at-len(s.text))}
	}
}

// shown returns the part of a line around position at that is shown.
func shown(data []byte, at int) string {
	begin := max(0, min(at, len(data)-maxMatch))
	data = data[begin:min(len(data), begin+maxMatch)]
	return strings.TrimRight(strings.ToValidUTF8(string(data), "\uFFFD"), "\r")
}

// searchRest searches the unfinished lines.
func (s *Search) searchRest() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unfinishedLocked()
	if s.match != nil {
		s.found()
	}
}

func (s *Search) unfinishedLocked() {
	for i := range s.lines {
		if l := &s.lines[i]; len(l.data) > 0 {
			s.lookLocked(l, s.cursor, s.cursor)
		}
	}
}

// Finish ends the search. If the output is over, the last line counts as finished.
func (s *Search) Finish(over bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.timer != nil {
		s.timer.Stop()
	}
	if over {
		s.unfinishedLocked()
	}
}

// Result returns the result so far, and the cursor from which to continue.
func (s *Search) Result() hutch.WaitResult {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.match == nil {
		return hutch.WaitResult{Cursor: s.behind}
	}
	return hutch.WaitResult{Met: true, Match: s.match.line, Cursor: s.match.cursor}
}
