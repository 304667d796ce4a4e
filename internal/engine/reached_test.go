package engine

import (
	"strings"
	"testing"

	"hutch"
)

// TestLastOutput: however the output is divided into pieces, exactly the end of each stream is kept.
func TestLastOutput(t *testing.T) {
	for _, size := range []int{1, 7, maxLastOutput - 1, maxLastOutput, maxLastOutput + 1, 10 * maxLastOutput} {
		var l lastOutput
		text := strings.Repeat("0123456789abcdef", 1000) + "No space left on device\n"
		for rest := text; rest != ""; {
			n := min(size, len(rest))
			l.add(hutch.Output{Stream: hutch.Stderr, Data: []byte(rest[:n])})
			rest = rest[n:]
		}
		l.add(hutch.Output{Stream: hutch.Stdout, Data: []byte("out")})
		if got := string(l[1]); got != text[len(text)-maxLastOutput:] || string(l[0]) != "out" {
			t.Errorf("pieces of %d bytes: %d bytes are kept: %q", size, len(got), got)
		}
		if !l.says("no space left on device") || l.says("fork") {
			t.Errorf("pieces of %d bytes: it does not find what was said", size)
		}
	}
}
