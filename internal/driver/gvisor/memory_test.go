package gvisor

import (
	"context"
	"testing"
	"time"
)

// An instance that waits in the pool already has a watch of its memory. Beginning a watch takes the kernel tens of
// milliseconds, and the guard of a sandbox that gets the instance must not wait for that.
func TestMemoryWatchBeginsWithInstance(t *testing.T) {
	t.Parallel()
	d := newDriver(t, t.TempDir())
	if d.tree == nil {
		skip(t, "without control groups there is no watch")
	}
	inst, err := d.Create(t.Context(), spec("watched"))
	if err != nil {
		t.Fatal(err)
	}
	defer inst.Destroy(context.Background())
	i := inst.(*instance)
	await(t, "the watch", func() bool { return len(i.early) == 1 })
	guarded := make(chan error, 1)
	go func() { guarded <- i.GuardMemory(t.Context(), nil) }()
	await(t, "the guard to take the watch", func() bool { return len(i.early) == 0 })
	if err := inst.Destroy(context.Background()); err != nil {
		t.Fatal(err)
	}
	if err := <-guarded; err != nil {
		t.Errorf("the guard ended with %v", err)
	}
}

// A watch that no guard has taken is closed with its instance. A second guard of an instance begins its own watch.
func TestMemoryWatchEndsWithInstance(t *testing.T) {
	t.Parallel()
	d := newDriver(t, t.TempDir())
	if d.tree == nil {
		skip(t, "without control groups there is no watch")
	}
	inst, err := d.Create(t.Context(), spec("unwatched"))
	if err != nil {
		t.Fatal(err)
	}
	defer inst.Destroy(context.Background())
	i := inst.(*instance)
	first, err := i.memoryWatch(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer first.Close()
	second, err := i.memoryWatch(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer second.Close()
	if first == second {
		t.Error("two guards have the same watch")
	}
	again, err := d.Recover(t.Context(), "unwatched", inst.Handle())
	if err != nil {
		t.Fatal(err)
	}
	unused := again.(*instance)
	await(t, "the watch of the recovered instance", func() bool { return len(unused.early) == 1 })
	if err := inst.Destroy(context.Background()); err != nil {
		t.Fatal(err)
	}
	await(t, "the unused watch to be closed", func() bool { return len(unused.early) == 0 })
}

func await(t *testing.T, what string, done func() bool) {
	t.Helper()
	for began := time.Now(); !done(); time.Sleep(5 * time.Millisecond) {
		if time.Since(began) > 2*time.Minute {
			t.Fatalf("no sign of %s", what)
		}
	}
}
