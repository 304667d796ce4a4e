package text

import "unicode/utf8"

// Unfinished returns how many bytes at the end of b are the beginning of an incomplete character.
func Unfinished(b []byte) int {
	for n := 1; n < utf8.UTFMax && n <= len(b); n++ {
		if last := b[len(b)-n:]; utf8.RuneStart(last[0]) {
			if utf8.FullRune(last) {
				return 0
			}
			return n
		}
	}
	return 0
}

// Head returns the beginning of s, at most n bytes, with whole characters. If anything is left out, mark follows it.
func Head(s string, n int, mark string) string {
	if len(s) <= n {
		return s
	}
	for n = max(n, 0); n > 0 && !utf8.RuneStart(s[n]); n-- {
	}
	return s[:n] + mark
}
