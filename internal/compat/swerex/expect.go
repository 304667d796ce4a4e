package swerex

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"time"

	"hutch"
	"hutch/internal/compat"
)

var (
	errLate  = errors.New("the time limit is over")
	errFound = errors.New("found")
)

const (
	maxKept = 4 << 20   // bytes of output that an action keeps
	little  = 128 << 10 // bytes that it keeps when memory is short
	overlap = 4 << 10   // the longest match, in bytes, that is found across two pieces of output
)

// leftOut replaces the middle of long output.
const leftOut = "\n[the middle of the output is left out here]\n"

// match is the result of expect.
type match struct {
	before  string // the output before the match
	text    string
	group   string // the first group of the pattern
	pattern int    // index of the pattern that matched
}

// expect reads output until a pattern matches, and the next call continues after the match. When the time is over it
// returns errLate and the output; without patterns, that output counts as answered.
func (s *shell) expect(ctx context.Context, patterns []*regexp.Regexp, limit time.Duration) (match, error) {
	timed, cancel := context.WithTimeoutCause(ctx, limit, errLate)
	defer cancel()
	look := search{ctx: ctx, patterns: patterns, begin: s.cursor, end: s.cursor}
	_, err := s.svc.Logs(timed, hutch.LogsRequest{SandboxID: s.sandbox, ProcessID: s.process, Cursor: s.cursor, Follow: true}, look.add)
	switch {
	case look.done:
		s.cursor = look.end
		return look.found, nil
	case ctx.Err() == nil && errors.Is(context.Cause(timed), errLate):
		if patterns == nil {
			s.cursor = look.end
		}
		return match{before: string(look.kept)}, errLate
	case err != nil:
		return match{}, err
	}
	return match{}, throw(classEnded, "the shell of the session has ended; its last output was:\n"+clean(string(look.kept)))
}

// search looks for patterns in output while it arrives.
type search struct {
	ctx        context.Context
	patterns   []*regexp.Regexp
	begin, end int64 // cursors of the first byte, and after the last byte or the match

	kept  []byte
	most  int // most bytes to keep
	found match
	done  bool
}

func (l *search) add(o hutch.Output) error {
	if o.Lost > 0 {
		l.kept = fmt.Appendf(l.kept, "\n[%d bytes of output are lost here]\n", o.Lost)
	}
	from := max(len(l.kept)-overlap, 0)
	l.kept = append(l.kept, o.Data...)
	l.end = o.Cursor
	if l.found, l.done = find(l.kept, from, l.patterns); l.done {
		behind := len(l.kept) - len(l.found.before) - len(l.found.text)
		l.end = max(o.Cursor-int64(behind), l.begin)
		return errFound
	}
	l.bound()
	return nil
}

// bound keeps the beginning and the end of long output.
func (l *search) bound() {
	if l.most == 0 {
		l.most = little
	}
	if len(l.kept) > l.most && l.most == little && compat.Take(l.ctx, maxKept) {
		l.most = maxKept
	}
	if len(l.kept) > l.most {
		l.kept = shorten(l.kept, l.most/4)
	}
}

// shorten keeps n bytes of the beginning, and as many of the end.
func shorten(b []byte, n int) []byte {
	return slices.Concat(b[:n], []byte(leftOut), b[len(b)-n:])
}

// find returns the first match of any pattern in b[from:].
func find(b []byte, from int, patterns []*regexp.Regexp) (m match, ok bool) {
	at := len(b) + 1
	for i, re := range patterns {
		loc := re.FindSubmatchIndex(b[from:])
		if loc == nil || from+loc[0] >= at {
			continue
		}
		at, ok = from+loc[0], true
		m = match{before: string(b[:at]), text: string(b[at : from+loc[1]]), pattern: i}
		if len(loc) > 2 && loc[2] >= 0 {
			m.group = string(b[from+loc[2] : from+loc[3]])
		}
	}
	return m, ok
}

var controls = regexp.MustCompile(`\x1B[@-_][0-?]*[ -/]*[@-~]`)

// clean returns output as the client expects it: without marks, control sequences, prompts and carriage returns.
func clean(out string) string {
	b := marks.ReplaceAll([]byte(out), nil)
	b = controls.ReplaceAll(b, nil)
	b = bytes.ReplaceAll(b, []byte("\r\n"), []byte("\n"))
	return text(bytes.ReplaceAll(b, []byte(prompt), nil))
}
