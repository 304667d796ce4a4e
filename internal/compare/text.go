package compare

import (
	"fmt"
	"slices"
	"strings"
)

// around is how many equal lines a patch shows before and after a change.
const around = 3

// unified returns the hunks of a unified difference of two texts. It aligns the texts at lines that occur exactly once
// in each. So it takes time in proportion to n log n of their lines, but the difference is not always the shortest one.
func unified(old, new string) string {
	x, y := splitLines(old), splitLines(new)
	var out strings.Builder
	for _, h := range hunks(edits(x, y), len(x), len(y)) {
		h.write(&out, x, y)
	}
	return out.String()
}

// splitLines returns the lines of a text with their ends. The last line can lack its end.
func splitLines(text string) []string {
	if text == "" {
		return nil
	}
	lines := strings.SplitAfter(text, "\n")
	if lines[len(lines)-1] == "" {
		lines = lines[:len(lines)-1]
	}
	return lines
}

// span is a part of both texts: lines x to xEnd of the old one and y to yEnd of the new one, the ends not included.
type span struct{ x, xEnd, y, yEnd int }

// edits returns the parts that differ, in order, with at least one equal line between neighbors.
func edits(x, y []string) (list []span) {
	at := span{}
	for _, anchor := range append(anchors(x, y), [2]int{len(x), len(y)}) {
		if anchor[0] < at.x || anchor[1] < at.y {
			continue // an earlier anchor was extended over this anchor
		}
		end := span{x: anchor[0], y: anchor[1]}
		for end.x > at.x && end.y > at.y && x[end.x-1] == y[end.y-1] {
			end.x, end.y = end.x-1, end.y-1
		}
		for at.x < end.x && at.y < end.y && x[at.x] == y[at.y] {
			at.x, at.y = at.x+1, at.y+1
		}
		if at.x < end.x || at.y < end.y {
			list = append(list, span{at.x, end.x, at.y, end.y})
		}
		at.x, at.y = anchor[0], anchor[1]
		for at.x < len(x) && at.y < len(y) && x[at.x] == y[at.y] {
			at.x, at.y = at.x+1, at.y+1
		}
	}
	return list
}

// anchors returns pairs of equal lines that occur exactly once in each text. It returns the most pairs that are in the
// same order in both texts.
func anchors(x, y []string) [][2]int {
	where := map[string]int{} // the line in y; -1 for a line that y has twice
	for j, line := range y {
		if _, twice := where[line]; twice {
			j = -1
		}
		where[line] = j
	}
	count := map[string]int{}
	for _, line := range x {
		count[line]++
	}
	var pairs [][2]int
	for i, line := range x {
		if j, ok := where[line]; ok && j >= 0 && count[line] == 1 {
			pairs = append(pairs, [2]int{i, j})
		}
	}
	return longest(pairs)
}

// longest returns the longest subsequence of pairs in which the second numbers increase, as the first numbers do.
func longest(pairs [][2]int) [][2]int {
	var ends []int // ends[n] is the pair with the smallest second number that ends such a subsequence of n+1 pairs
	previous := make([]int, len(pairs))
	for i, p := range pairs {
		n, _ := slices.BinarySearchFunc(ends, p[1], func(end, second int) int { return pairs[end][1] - second })
		previous[i] = -1
		if n > 0 {
			previous[i] = ends[n-1]
		}
		if n == len(ends) {
			ends = append(ends, i)
		} else {
			ends[n] = i
		}
	}
	if len(ends) == 0 {
		return nil
	}
	var list [][2]int
	for i := ends[len(ends)-1]; i >= 0; i = previous[i] {
		list = append(list, pairs[i])
	}
	slices.Reverse(list)
	return list
}

// hunk is a group of edits with the equal lines around them.
type hunk struct {
	span
	edits []span
}

// hunks joins edits that are near each other.
func hunks(list []span, oldLines, newLines int) (all []hunk) {
	for _, e := range list {
		if n := len(all); n > 0 && e.x-all[n-1].xEnd <= around {
			all[n-1].edits = append(all[n-1].edits, e)
		} else {
			lead := min(around, e.x, e.y)
			all = append(all, hunk{span{x: e.x - lead, y: e.y - lead}, []span{e}})
		}
		h := &all[len(all)-1]
		trail := min(around, oldLines-e.xEnd, newLines-e.yEnd)
		h.xEnd, h.yEnd = e.xEnd+trail, e.yEnd+trail
	}
	return all
}

func (h hunk) write(out *strings.Builder, x, y []string) {
	fmt.Fprintf(out, "@@ -%s +%s @@\n", lineRange(h.x, h.xEnd), lineRange(h.y, h.yEnd))
	at := h.x
	for _, e := range h.edits {
		writeLines(out, ' ', x[at:e.x])
		writeLines(out, '-', x[e.x:e.xEnd])
		writeLines(out, '+', y[e.y:e.yEnd])
		at = e.xEnd
	}
	writeLines(out, ' ', x[at:h.xEnd])
}

// lineRange returns a range of lines in the form of hunks: an empty range begins at the line before it.
func lineRange(from, end int) string {
	switch n := end - from; n {
	case 0:
		return fmt.Sprintf("%d,0", from)
	case 1:
		return fmt.Sprint(from + 1)
	default:
		return fmt.Sprintf("%d,%d", from+1, n)
	}
}

func writeLines(out *strings.Builder, sign byte, lines []string) {
	for _, line := range lines {
		out.WriteByte(sign)
		out.WriteString(line)
		if !strings.HasSuffix(line, "\n") {
			out.WriteString("\n\\ No newline at end of file\n")
		}
	}
}
