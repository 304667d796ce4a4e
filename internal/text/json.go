package text

import (
	"fmt"
	"strings"
	"unicode/utf16"
)

// JSON returns indented JSON in which every rune for which [Steers] is true is escaped. It decodes to the same values.
// Line feeds stay, because in JSON they are outside of strings.
func JSON(s string) string {
	if !strings.ContainsFunc(s, escapes) {
		return s
	}
	var b strings.Builder
	for _, r := range s {
		if !escapes(r) {
			b.WriteRune(r)
			continue
		}
		for _, unit := range utf16.Encode([]rune{r}) {
			fmt.Fprintf(&b, `\u%04x`, unit)
		}
	}
	return b.String()
}

func escapes(r rune) bool { return r != '\n' && Steers(r) }
