package engine_test

import (
	"fmt"
	"sync"
	"testing"

	"hutch"
	"hutch/internal/caller"
	"hutch/internal/room"
)

// Commands that print as much as a result may keep, many at a time, have the
// daemon hold what there is room for: each has its beginning and its end.
func TestResultsShareARoom(t *testing.T) {
	b := start(t, nil)
	b.create(t, hutch.CreateRequest{ID: "a"})
	all := room.New(4<<20, 2<<20)
	var mu sync.Mutex
	var calls sync.WaitGroup
	held := 0
	for i := range 8 {
		calls.Go(func() {
			budget, end := all.Open("one")
			t.Cleanup(end) // the answers are not read before all have come
			ctx := caller.With(t.Context(), caller.Caller{Budget: budget})
			res, err := b.Exec(ctx, "a", hutch.ExecRequest{
				Command: fmt.Sprintf("echo begin %d; head -c 2000000 /dev/zero | tr '\\0' x; echo end %d", i, i), MaxOutput: 1 << 20,
			}, nil)
			if err != nil {
				t.Error(err)
				return
			}
			var began, ended int
			out := string(res.Stdout)
			fmt.Sscanf(out, "begin %d", &began)
			fmt.Sscanf(out[len(out)-6:], "end %d", &ended)
			if began != i || ended != i || !res.Truncated {
				t.Errorf("%d: it begins with %q, ends with %q, and truncated is %v", i, out[:8], out[len(out)-6:], res.Truncated)
			}
			mu.Lock()
			defer mu.Unlock()
			held += len(out)
		})
	}
	calls.Wait()
	if most := 2<<20 + 8*2*(16<<10); held > most || held < 2<<20-256<<10 {
		t.Errorf("%d bytes are held, of at most %d", held, most)
	}
}
