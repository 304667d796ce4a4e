// Package text makes text of strangers safe to show in a terminal, a log or a
// list. What a program prints as its own output is not its business: that goes
// to the caller byte by byte.
package text

import (
	"strings"
	"unicode"
)

// Line is s as one line: tabs and line ends are blanks, and U+FFFD stands for
// every other rune that Steers.
func Line(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case strings.ContainsRune("\t\n\v\f\r", r):
			return ' '
		case Steers(r):
			return unicode.ReplacementChar
		}
		return r
	}, s)
}

// Inert is s with its tabs and line feeds, and U+FFFD for every other rune that
// Steers.
func Inert(s string) string {
	return strings.Map(func(r rune) rune {
		if Steers(r) && r != '\t' && r != '\n' {
			return unicode.ReplacementChar
		}
		return r
	}, s)
}

// Steers reports whether a terminal or a reader takes r for an instruction:
// control characters, also those of U+0080 to U+009F; separators of lines; and
// invisible characters of format, such as those that turn the direction of
// writing or hide text from people. Those that shape letters and emoji do not.
func Steers(r rune) bool {
	switch {
	case r == '\u200c', r == '\u200d', unicode.Is(unicode.Prepended_Concatenation_Mark, r):
		return false
	}
	return unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp)
}
