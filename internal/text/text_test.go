package text_test

import (
	"testing"

	"hutch/internal/text"
)

func TestTerminalsAreNotSteered(t *testing.T) {
	for _, c := range []struct{ in, line, inert string }{
		{"plain, ä, 漢字, 👩‍🚀, \u0600", "plain, ä, 漢字, 👩‍🚀, \u0600", "plain, ä, 漢字, 👩‍🚀, \u0600"},
		{"a\tb\nc\r\v\f", "a b c   ", "a\tb\nc\ufffd\ufffd\ufffd"},
		{"\x1b[2J\a\x00\x7f", "\ufffd[2J\ufffd\ufffd\ufffd", "\ufffd[2J\ufffd\ufffd\ufffd"},
		{"\u009b2J\u009d52;c;x\u0085", "\ufffd2J\ufffd52;c;x\ufffd", "\ufffd2J\ufffd52;c;x\ufffd"}, // C1, as UTF-8
		{"\x9b2J", "\ufffd2J", "\ufffd2J"}, // C1, as a byte
		{"a\u202egpj.exe\u2066\u200f", "a\ufffdgpj.exe\ufffd\ufffd", "a\ufffdgpj.exe\ufffd\ufffd"},
		{"a\u2028b\u2029c\ufeff\U000e0041", "a\ufffdb\ufffdc\ufffd\ufffd", "a\ufffdb\ufffdc\ufffd\ufffd"},
	} {
		if got := text.Line(c.in); got != c.line {
			t.Errorf("Line(%q) is %q, not %q", c.in, got, c.line)
		}
		if got := text.Inert(c.in); got != c.inert {
			t.Errorf("Inert(%q) is %q, not %q", c.in, got, c.inert)
		}
	}
}
