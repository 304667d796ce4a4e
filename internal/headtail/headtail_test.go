package headtail

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"hutch"
)

// However the input is split, its beginning and its end are kept. If memory is refused, less of both is kept, and never
// more than was allowed.
func TestEnds(t *testing.T) {
	t.Parallel()
	text := make([]byte, 300<<10)
	for i := range text {
		text[i] = byte(i / 256 * 7)
	}
	for _, test := range []struct{ limit, room int }{
		{1 << 20, 1 << 20}, {100 << 10, 1 << 20}, {100 << 10, 0}, {101 << 10, 40 << 10}, {1 << 20, 200 << 10}, {20, 0}, {1, 0},
	} {
		taken := 0
		kept := New(test.limit, func(n int) bool {
			if taken+n > test.room {
				return false
			}
			taken += n
			return true
		})
		for rest := text; len(rest) > 0; {
			n := min(1+rand.IntN(64<<10), len(rest))
			kept.Add(hutch.Output{Stream: hutch.Stdout, Data: rest[:n]})
			rest = rest[n:]
		}
		out, _, cut := kept.Result()
		if most := min(test.limit, len(text), 2*little+test.room); len(out) > most || len(out) < min(most, 2*little) {
			t.Errorf("limit %d, room %d: %d bytes kept of %d", test.limit, test.room, len(out), most)
		}
		if cut != (len(out) < len(text)) {
			t.Errorf("limit %d, room %d: cut is %v of %d bytes", test.limit, test.room, cut, len(out))
		}
		head := len(kept.out.head)
		if !bytes.Equal(out[:head], text[:head]) || !bytes.HasSuffix(text, out[head:]) {
			t.Errorf("limit %d, room %d: it is not the beginning and the end", test.limit, test.room)
		}
	}
}
