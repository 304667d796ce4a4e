package main

import (
	"strings"
	"testing"

	"hutch"
)

func TestLastLines(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		pieces string // parted by |
		n      int
		want   string
	}{
		{"a\nb\nc\n", 2, "b\nc\n"},
		{"a\nb|\nc|\n", 2, "b\nc\n"},
		{"a\nb\nc", 1, "c"},
		{"a\nb\nc", 2, "b\nc"},
		{"a\n", 5, "a\n"},
		{"a\n|b\n", 1, "b\n"},
		{"a\n\n\n", 2, "\n\n"},
		{"a\nb\n", 0, ""},
		{"", 3, ""},
	} {
		var all []hutch.Output
		for piece := range strings.SplitSeq(c.pieces, "|") {
			if piece != "" {
				all = append(all, hutch.Output{Data: []byte(piece)})
			}
		}
		var got strings.Builder
		for _, o := range lastLines(all, c.n) {
			got.Write(o.Data)
		}
		if got.String() != c.want {
			t.Errorf("the last %d lines of %q are %q, not %q", c.n, c.pieces, got.String(), c.want)
		}
	}
}
