// Package text makes text from untrusted sources safe to show in a terminal, a log or a list. It is not for a
// program's own output, which goes to the caller byte by byte.
package text

import (
	"strings"
	"unicode"
)

// Line returns s as one line: tabs and line ends become blanks, and every other rune for which Steers is true becomes
// U+FFFD.
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

// Inert returns s with its tabs and line feeds; every other rune for which Steers is true becomes U+FFFD.
func Inert(s string) string {
	return strings.Map(func(r rune) rune {
		if Steers(r) && r != '\t' && r != '\n' {
			return unicode.ReplacementChar
		}
		return r
	}, s)
}

// Steers reports whether a terminal or a reader interprets r: control characters, including U+0080 to U+009F; line
// separators; and invisible format characters, for example those that reverse the direction of writing or hide text. It
// is false for format characters that shape letters and emoji.
func Steers(r rune) bool {
	switch {
	case r == '\u200c', r == '\u200d', unicode.Is(unicode.Prepended_Concatenation_Mark, r):
		return false
	}
	return unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp)
}
