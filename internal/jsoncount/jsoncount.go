// Package jsoncount says how large a JSON text can become when it is decoded, before that is done: in memory, a list of
// empty objects is many times as long as its text.
package jsoncount

// Values counts the commas of a JSON text outside of strings: its lists and objects have about so many values. The text
// need not be valid.
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
