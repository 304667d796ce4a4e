package text

import "strings"

// plain are the characters that no shell interprets.
const plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_:/"

// Word returns s as one line, and as one word of a command line to paste: in quotes only if a shell would interpret it.
func Word(s string) string {
	s = Line(s)
	if s != "" && strings.Trim(s, plain) == "" {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
