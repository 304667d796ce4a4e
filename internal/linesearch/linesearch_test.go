package linesearch

import (
	"errors"
	"regexp"
	"testing"

	"hutch"
)

// feed gives s pieces of one stream, and reports whether s has found a line.
func feed(t *testing.T, s *Search, pieces ...string) bool {
	t.Helper()
	var cursor int64
	for _, p := range pieces {
		cursor += int64(len(p))
		if err := s.Output(hutch.Output{Stream: hutch.Stdout, Data: []byte(p), Cursor: cursor}); errors.Is(err, ErrFound) {
			return true
		} else if err != nil {
			t.Fatal(err)
		}
	}
	return false
}

func TestText(t *testing.T) {
	for name, c := range map[string]struct {
		pieces []string
		found  bool
		cursor int64
	}{
		"in one piece":      {[]string{"server is ready\n"}, true, 15},
		"over two pieces":   {[]string{"server is re", "ady"}, true, 15},
		"not there":         {[]string{"server is dead\n"}, false, 15},
		"over two lines":    {[]string{"rea\ndy\n"}, false, 7},
		"before a line end": {[]string{"ready"}, true, 5},
	} {
		t.Run(name, func(t *testing.T) {
			s := New("ready", nil, 0, func() {})
			if found := feed(t, s, c.pieces...); found != c.found {
				t.Errorf("found: %v", found)
			}
			if r := s.Result(); r.Met != c.found || r.Cursor != c.cursor {
				t.Errorf("%+v, not cursor %d", r, c.cursor)
			}
		})
	}
}

func TestPatternSeesWholeLines(t *testing.T) {
	s := New("", regexp.MustCompile(`^port (\d+)$`), 0, func() {})
	if feed(t, s, "port 80", "80\n") != true {
		t.Fatal("not found")
	}
	if r := s.Result(); r.Match != "port 8080" || r.Cursor != 10 {
		t.Errorf("%+v", r)
	}
}

// When the output is over, the last line counts as finished.
func TestLastLine(t *testing.T) {
	s := New("", regexp.MustCompile(`^done$`), 0, func() {})
	if feed(t, s, "done") {
		t.Fatal("found before the line ended")
	}
	s.Finish(true)
	if r := s.Result(); !r.Met {
		t.Errorf("%+v", r)
	}
}
