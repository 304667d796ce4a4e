// Package jsoncount estimates how large a JSON text will be in memory, before it is decoded. A list of empty objects, for
// example, is many times as large as its text.
package jsoncount

// Values counts the commas of a JSON text outside of strings. This is about the number of values in its lists and objects.
// The text need not be valid.
func Values(text []byte) (n int) {
	quoted := false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == '\\' && quoted:
			i++
		case c == '"':
			quoted = !quoted
		case c == ',' && !quoted:
			n++
		}
	}
	return n
}
