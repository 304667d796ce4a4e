package ctxlock

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
)

func TestLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l Locks
		if err := errors.Join(l.Take(t.Context(), "a"), l.Take(t.Context(), "b")); err != nil {
			t.Fatal(err)
		}
		if l.Try("a") {
			t.Error("a lock that is held was taken")
		}
		gone := errors.New("the caller has gone")
		ctx, cancel := context.WithCancelCause(t.Context())
		failed, taken := make(chan error, 1), make(chan error, 1)
		go func() { failed <- l.Take(ctx, "a") }()
		go func() { taken <- l.Take(t.Context(), "a") }()
		synctest.Wait()
		cancel(gone)
		if err := <-failed; err != gone {
			t.Errorf("a caller whose context ended got %v", err)
		}
		l.Put("a")
		if err := <-taken; err != nil {
			t.Errorf("the next caller got %v", err)
		}
		l.Put("a")
		l.Put("b")
		if !l.Try("a") {
			t.Error("a lock that is free was not taken")
		}
		l.Put("a")
		if len(l.by) > 0 {
			t.Errorf("locks that are free take memory: %v", l.by)
		}
	})
}

func TestLocksExclude(t *testing.T) {
	var l Locks
	var all sync.WaitGroup
	n := 0
	for range 100 {
		all.Go(func() {
			for range 100 {
				if l.Take(context.Background(), "n") == nil {
					n++
					l.Put("n")
				}
			}
		})
	}
	all.Wait()
	if n != 100*100 || len(l.by) > 0 {
		t.Errorf("counted to %d under the lock, %d locks left", n, len(l.by))
	}
}
