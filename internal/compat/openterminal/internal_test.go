package openterminal

import (
	"strings"
	"testing"
)

// FuzzPatterns: a pattern is refused or can be matched, and one without signs matches itself.
func FuzzPatterns(f *testing.F) {
	f.Add("*.py")
	f.Add("[!a-")
	f.Add(`\d+(`)
	f.Fuzz(func(t *testing.T, text string) {
		list, err := patterns([]string{text})
		if err == nil && text != "" && text != "null" && !strings.ContainsAny(text, "*?[]") && strings.ToValidUTF8(text, "") == text && !matches(list, text) {
			t.Errorf("%q does not match itself", text)
		}
	})
}

// FuzzReplacement: a replacement changes the lines that it names only.
func FuzzReplacement(f *testing.F) {
	f.Add("one\ntwo\n", "o", "0", 1, 1, true)
	f.Add("", "x", "", -5, 1<<40, false)
	f.Fuzz(func(t *testing.T, content, target, replacement string, first, last int, all bool) {
		got, err := chunk{Target: target, Replacement: replacement, First: &first, Last: &last, All: all}.in(content)
		if err != nil {
			return
		}
		lines := linesOf(content)
		from, to := between(len(lines), float64(first), float64(last))
		if before, after := strings.Join(lines[:from], ""), strings.Join(lines[to:], ""); !strings.HasPrefix(got, before) || !strings.HasSuffix(got, after) {
			t.Errorf("%q became %q", content, got)
		}
	})
}

// FuzzUnescape: a text without backslashes stays as it is.
func FuzzUnescape(f *testing.F) {
	f.Add(`a\n\x03\\`)
	f.Fuzz(func(t *testing.T, text string) {
		if got := unescape(text); len(got) > 2*len(text) || !strings.Contains(text, `\`) && got != text {
			t.Errorf("%q became %q", text, got)
		}
	})
}
