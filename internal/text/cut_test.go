package text_test

import (
	"testing"

	"hutch/internal/text"
)

func TestUnfinished(t *testing.T) {
	for s, want := range map[string]int{"": 0, "a": 0, "é": 0, "a\xc3": 1, "\xe2\x82": 2, "\xf0\x9f\x98": 3, "\xff": 0, "\x80\x80\x80\x80": 0} {
		if n := text.Unfinished([]byte(s)); n != want {
			t.Errorf("%q: %d, not %d", s, n, want)
		}
	}
}

func TestHead(t *testing.T) {
	for _, c := range []struct {
		s    string
		n    int
		want string
	}{
		{"abc", 3, "abc"}, {"abcd", 3, "abc…"}, {"aé", 2, "a…"}, {"é", 1, "…"}, {"ab", 0, "…"}, {"ab", -1, "…"}, {"", 0, ""},
	} {
		if got := text.Head(c.s, c.n, "…"); got != c.want {
			t.Errorf("%q, %d: %q, not %q", c.s, c.n, got, c.want)
		}
	}
}
