package envd

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"hutch"
)

// TestTurns: commands wait for room, each once, and those that find none in their time get the sandbox's own error.
func TestTurns(t *testing.T) {
	t.Parallel()
	var ts turns
	full := hutch.Errorf(hutch.Exhausted, "the limit of 3 concurrent background processes is reached")
	var running, started atomic.Int32
	var wg sync.WaitGroup
	begin := func() error {
		if running.Add(1) > 3 {
			running.Add(-1)
			return full
		}
		started.Add(1)
		time.AfterFunc(time.Millisecond, func() { running.Add(-1) })
		return nil
	}
	for range 100 {
		wg.Go(func() {
			if err := ts.start(t.Context(), "box", time.Minute, begin); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if started.Load() != 100 || len(ts.all) != 0 {
		t.Errorf("%d commands started; %d sandboxes are waited for", started.Load(), len(ts.all))
	}
	for range 2 { // one asks, and one waits for it
		wg.Go(func() {
			if err := ts.start(t.Context(), "full", 50*time.Millisecond, func() error { return full }); !errors.Is(err, full) {
				t.Errorf("a full sandbox: %v", err)
			}
		})
	}
	wg.Wait()
	quota, calls := full.With("limit", "operations"), 0
	if err := ts.start(t.Context(), "box", time.Minute, func() error { calls++; return quota }); !errors.Is(err, quota) || calls != 1 {
		t.Errorf("a limit of the token: %v after %d calls", err, calls)
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if err := ts.start(gone, "box", 0, func() error { return full }); !errors.Is(err, full) {
		t.Errorf("a client that has gone: %v", err)
	}
}
