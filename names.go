package hutch

import "strings"

// JoinNames lists names for a sentence, with a word before the last one: "a, b or c".
func JoinNames[T ~string](names []T, word string) string {
	var b strings.Builder
	for i, name := range names {
		switch {
		case i == 0:
		case i == len(names)-1:
			b.WriteString(" " + word + " ")
		default:
			b.WriteString(", ")
		}
		b.WriteString(string(name))
	}
	return b.String()
}
