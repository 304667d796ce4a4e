package compare

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
)

func TestUnified(t *testing.T) {
	for _, c := range []struct{ old, new, want string }{
		{"", "", ""},
		{"a\n", "a\n", ""},
		{"", "a\n", "@@ -0,0 +1 @@\n+a\n"},
		{"a\nb\n", "", "@@ -1,2 +0,0 @@\n-a\n-b\n"},
		{"a", "a\n", "@@ -1 +1 @@\n-a\n\\ No newline at end of file\n+a\n"},
		{"1\n2\n3\n4\n5\n6\n7\n8\n9\n", "1\n2\n3\n4\nX\n6\n7\n8\n9\n", "@@ -2,7 +2,7 @@\n 2\n 3\n 4\n-5\n+X\n 6\n 7\n 8\n"},
		{"x\na\nx\nb\nx\n", "x\nb\nx\na\nx\n", ""}, // moved: any right answer
	} {
		got := unified(c.old, c.new)
		if c.want != "" && got != c.want || c.want == "" && c.old == c.new && got != "" {
			t.Errorf("%q to %q: %q, not %q", c.old, c.new, got, c.want)
		}
		if back := applied(t, c.old, got); back != c.new {
			t.Errorf("%q to %q: %q makes %q", c.old, c.new, got, back)
		}
	}
}

// A patch turns the old text into the new text.
func TestUnifiedApplies(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	text := func() string {
		var lines []string
		for range random.IntN(40) {
			lines = append(lines, fmt.Sprint(random.IntN(12)))
		}
		return strings.Join(lines, "\n") + strings.Repeat("\n", random.IntN(2))
	}
	for range 5000 {
		old, new := text(), text()
		if random.IntN(2) == 0 { // most texts differ in little
			lines := strings.SplitAfter(old, "\n")
			lines[random.IntN(len(lines))] = "changed\n"
			new = strings.Join(lines, "")
		}
		if got := applied(t, old, unified(old, new)); got != new {
			t.Fatalf("%q to %q: %q makes %q", old, new, unified(old, new), got)
		}
	}
}

// The largest texts with the worst lines are compared quickly.
func TestUnifiedIsQuick(t *testing.T) {
	const n = 1 << 16 // lines of two bytes in 128 KiB
	for name, text := range map[string]func(i int) string{
		"equal lines": func(int) string { return "a\n" }, "two lines": func(i int) string { return string(rune('a'+i%2)) + "\n" }, "other lines": func(i int) string { return fmt.Sprintf("%x\n", i) },
	} {
		var x, y strings.Builder
		for i := range n {
			x.WriteString(text(i))
			y.WriteString(text(n - i + i%3))
		}
		began := time.Now()
		unified(x.String(), y.String())
		if took := time.Since(began); took > 20*time.Second {
			t.Errorf("%s: %v", name, took)
		}
	}
}

// applied applies a patch as the program patch does, without tolerance.
func applied(t *testing.T, old, patch string) string {
	t.Helper()
	lines, at := splitLines(old), 0
	var out strings.Builder
	steps := splitLines(patch)
	for i, step := range steps {
		body := step[1:]
		if i+1 < len(steps) && strings.HasPrefix(steps[i+1], `\`) {
			body = strings.TrimSuffix(body, "\n")
		}
		switch step[0] {
		case '@':
			from, n := 0, 1
			fmt.Sscanf(step, "@@ -%d,%d", &from, &n)
			if n > 0 {
				from--
			}
			for ; at < from; at++ {
				out.WriteString(lines[at])
			}
		case ' ', '-':
			if lines[at] != body {
				t.Fatalf("line %d is %q, and the patch has %q", at, lines[at], step)
			}
			if at++; step[0] == ' ' {
				out.WriteString(body)
			}
		case '+':
			out.WriteString(body)
		}
	}
	return out.String() + strings.Join(lines[at:], "")
}
