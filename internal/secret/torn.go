package secret

import (
	"bytes"

	"hutch"
)

// tornOutput masks the first bytes of each stream in output whose beginning is lost: they can be the rest of a
// secret, which no redactor recognises.
type tornOutput struct {
	longest int // length of the longest form of a secret, in bytes
	begun   bool
	left    map[hutch.Stream]int // bytes that are still to be masked
}

// cover returns a piece of output with an asterisk for each byte that can be the rest of a secret.
func (t *tornOutput) cover(o hutch.Output) hutch.Output {
	if !t.begun {
		t.begun = true
		if o.Lost > 0 {
			t.left = map[hutch.Stream]int{hutch.Stdout: t.longest - 1, hutch.Stderr: t.longest - 1}
		}
	}
	n := min(t.left[o.Stream], len(o.Data))
	if n <= 0 {
		return o
	}
	t.left[o.Stream] -= n
	o.Data = append(bytes.Repeat([]byte("*"), n), o.Data[n:]...)
	return o
}
