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

// TestTurns: commands wait for room, and each starts once. A command that finds no room in time gets the sandbox's own
// error.
func TestTurns(t *testing.T) {
	t.Parallel()
	var ts turns
	full := hutch.Errorf(hutch.Exhausted, "the limit of 3 concurrent background processes is reached").With("limit", "processes")
	var running, started atomic.Int32
	var wg sync.WaitGroup
	begin := func(bool) error {
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
	for range 2 { // one command tries, and the other queues behind it
		wg.Go(func() {
			if err := ts.start(t.Context(), "full", 50*time.Millisecond, func(bool) error { return full }); !errors.Is(err, full) {
				t.Errorf("a full sandbox: %v", err)
			}
		})
	}
	wg.Wait()
	quota, calls := full.With("limit", "operations"), 0
	if err := ts.start(t.Context(), "box", time.Minute, func(bool) error { calls++; return quota }); !errors.Is(err, quota) || calls != 1 {
		t.Errorf("a limit of the token: %v after %d calls", err, calls)
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if err := ts.start(gone, "box", 0, func(bool) error { return full }); !errors.Is(err, full) {
		t.Errorf("a client that has gone: %v", err)
	}
}

// A command that comes later waits behind the others. Of the calls for one command, only the first counts as an
// operation.
func TestTurnsAreInOrder(t *testing.T) {
	t.Parallel()
	var ts turns
	var room atomic.Bool
	var first, second atomic.Int32
	begin := func(calls *atomic.Int32) func(bool) error {
		return func(again bool) error {
			if n := calls.Add(1); again != (n > 1) {
				t.Errorf("call %d: again is %v", n, again)
			}
			if room.Load() {
				return nil
			}
			return hutch.Errorf(hutch.Exhausted, "full")
		}
	}
	until := func(what string, is func() bool) {
		t.Helper()
		for deadline := time.Now().Add(20 * time.Second); !is(); time.Sleep(time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatal(what)
			}
		}
	}
	waiting := func(n int) func() bool {
		return func() bool {
			ts.mu.Lock()
			defer ts.mu.Unlock()
			return ts.all["box"] != nil && ts.all["box"].waiting == n
		}
	}
	var wg sync.WaitGroup
	start := func(calls *atomic.Int32) {
		wg.Go(func() {
			if err := ts.start(t.Context(), "box", time.Minute, begin(calls)); err != nil {
				t.Error(err)
			}
		})
	}
	start(&first)
	until("the first does not wait", waiting(1))
	start(&second)
	until("the second does not wait", waiting(2))
	asked := first.Load()
	until("the first does not ask again", func() bool { return first.Load() > asked+1 })
	if n := second.Load(); n != 0 {
		t.Errorf("the second asked %d times before the first had room", n)
	}
	room.Store(true)
	wg.Wait()
	if n := second.Load(); n != 1 || ts.behind("box") != nil {
		t.Errorf("the second asked %d times", n)
	}
}
