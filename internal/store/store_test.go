package store_test

import (
	"testing"
	"time"

	"hutch"
	"hutch/internal/driver"
	"hutch/internal/store"
)

func TestMemoryStoresAreApart(t *testing.T) {
	ctx := t.Context()
	a, err := store.Open(ctx, store.Memory)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	b, err := store.Open(ctx, store.Memory)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	if err := a.Put(ctx, record("x", time.Now())); err != nil {
		t.Fatal(err)
	}
	if all, err := b.All(ctx); err != nil || len(all) != 0 {
		t.Fatalf("the other store has %v, %v", all, err)
	}
}

func TestUsed(t *testing.T) {
	t.Parallel()
	var u store.Used
	at := time.Unix(1000, 0)
	u.Begin(at)
	u.Note(at.Add(10*time.Second), driver.Usage{CPUSeconds: 3, Memory: 1 << 30, MemoryPeak: 2 << 30})
	u.Note(at.Add(20*time.Second), driver.Usage{CPUSeconds: 4, Memory: 1 << 30})
	u.End() // the sandbox sleeps, and wakes in another instance
	u.Begin(at.Add(time.Hour))
	u.Note(at.Add(time.Hour+10*time.Second), driver.Usage{CPUSeconds: 1})
	want := hutch.Usage{CPUSeconds: 5, MemorySeconds: 15, MemoryPeak: 2048, WallTime: 30}
	if u.Usage != want {
		t.Errorf("%+v, want %+v", u.Usage, want)
	}
	if cost := (hutch.Prices{CPUSecond: 1, MemoryGBSecond: 0.1, WallSecond: 0.01}).Of(u.Usage); cost != 6.8 {
		t.Errorf("cost %v", cost)

	}
}
