package room

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
)

func TestShares(t *testing.T) {
	t.Parallel()
	r := New(100, 60)
	ctx, end := r.Open(t.Context(), "a")
	second, endSecond := r.Open(t.Context(), "a")
	other, endOther := r.Open(t.Context(), "b")
	for _, step := range []struct {
		ctx  context.Context
		n    int
		want bool
		why  string
	}{
		{ctx, 50, true, "within the share"},
		{second, 11, false, "over the owner's share"},
		{second, 10, true, "the rest of it"},
		{other, 41, false, "over the room of all"},
		{other, 40, true, "the rest of it"},
		{t.Context(), 1 << 30, true, "of no request"},
	} {
		if got := From(step.ctx).Take(step.n); got != step.want {
			t.Errorf("take %d: %v, %s", step.n, got, step.why)
		}
	}
	end()
	if !From(other).Take(20) || From(second).Take(31) {
		t.Error("what a request gave back is not there, or more than that")
	}
	endSecond()
	endOther()
	if r.sum != 0 || len(r.taken) != 0 {
		t.Errorf("all requests are over, and %d bytes are taken by %v", r.sum, r.taken)
	}
}

func TestNeverMoreThanThereIs(t *testing.T) {
	t.Parallel()
	r := New(1000, 1000)
	var held, most atomic.Int64
	var all sync.WaitGroup
	for range 64 {
		all.Go(func() {
			for range 200 {
				ctx, end := r.Open(t.Context(), "a")
				if From(ctx).Take(100) {
					now := held.Add(100)
					for old := most.Load(); now > old && !most.CompareAndSwap(old, now); old = most.Load() {
					}
					held.Add(-100)
				}
				end()
			}
		})
	}
	all.Wait()
	if most.Load() > 1000 {
		t.Errorf("%d bytes were held of 1000", most.Load())
	}
}
