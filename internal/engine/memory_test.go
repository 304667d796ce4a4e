package engine_test

import (
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"hutch"
	"hutch/internal/driver"
	"hutch/internal/driver/fake"
	"hutch/internal/engine"
)

// While memory is short, no program starts and no sandbox wakes. Running programs continue, and
// nothing is lost.
func TestMemoryShort(t *testing.T) {
	var short atomic.Bool
	b := start(t, func(o *engine.Options) { o.Memory.Exhausted = short.Load })
	b.create(t, hutch.CreateRequest{ID: "runs"})
	b.create(t, hutch.CreateRequest{ID: "sleeps", SleepAfter: 0.01, OnIdle: hutch.IdleStop})
	b.run(t, "sleeps", "echo kept > file")
	b.until(t, "sleeps", hutch.Stopped)
	short.Store(true)
	<-time.After(100 * time.Millisecond) // a measurement is reused for a moment
	_, err := b.Create(t.Context(), hutch.CreateRequest{ID: "new"})
	wantShort(t, err)
	_, err = b.Exec(t.Context(), "sleeps", hutch.ExecRequest{Command: "true"}, nil)
	wantShort(t, err)
	if b.create(t, hutch.CreateRequest{ID: "runs"}); b.run(t, "runs", "echo on") != "on\n" {
		t.Error("what runs does not continue")
	}
	short.Store(false)
	<-time.After(100 * time.Millisecond)
	b.create(t, hutch.CreateRequest{ID: "new"})
	if got := b.run(t, "sleeps", "cat file"); got != "kept\n" {
		t.Errorf("the file says %q", got)
	}
}

// An instance that the kernel kills for lack of memory while it is created is not a fault of the runtime.
func TestKilledForWantOfMemory(t *testing.T) {
	var kills atomic.Int32
	b := start(t, func(o *engine.Options) { o.Memory.Kills = func() int { return int(kills.Load()) } })
	died := hutch.Errorf(hutch.Unavailable, "the runtime could not start a sandbox")
	b.driver.Break(fake.Faults{Create: func(string) error { return died }})
	if _, err := b.Create(t.Context(), hutch.CreateRequest{}); err == nil || err.Error() != died.Error() {
		t.Errorf("without a kill: %v", err)
	}
	b.driver.Break(fake.Faults{Create: func(string) error { kills.Add(1); return died }})
	_, err := b.Create(t.Context(), hutch.CreateRequest{})
	wantShort(t, err)
}

// While programs make no progress for lack of memory, the engine stops the sandbox that uses the most, one sandbox
// each time. The stopped sandbox keeps its files, its command ends with the cause, and the others continue.
func TestStoppedForShortage(t *testing.T) {
	var stalls atomic.Int32
	b := start(t, func(o *engine.Options) { o.Memory.Stalls = func() bool { return stalls.Add(-1) >= 0 } })
	b.driver.Break(fake.Faults{Usage: func(id string) (driver.Usage, error) {
		switch id {
		case "large":
			return driver.Usage{Memory: 3 << 20}, nil
		case "small":
			return driver.Usage{Memory: 2 << 20}, nil
		}
		return driver.Usage{}, errors.New("unknown")
	}})
	for _, id := range []string{"silent", "small", "large"} {
		b.create(t, hutch.CreateRequest{ID: id})
		b.run(t, id, "echo kept > file")
	}
	began, runs := make(chan bool), make(chan error, 1)
	go func() {
		_, err := b.Exec(t.Context(), "large", hutch.ExecRequest{Command: "echo up; sleep 300"}, func(hutch.Output) error { close(began); return nil })
		runs <- err
	}()
	<-began
	stalls.Store(1)
	stopped := b.until(t, "large", hutch.Stopped)
	err := <-runs
	wantShort(t, err)
	if err != nil && !strings.Contains(err.Error(), "files are kept") {
		t.Errorf("the command got: %v", err)
	}
	if !strings.Contains(stopped.Reason, "the server had no memory left") {
		t.Errorf("its reason is %q", stopped.Reason)
	}
	for _, id := range []string{"silent", "small"} {
		b.until(t, id, hutch.Running)
	}
	if got := b.run(t, "large", "cat file"); got != "kept\n" {
		t.Errorf("the file says %q", got)
	}
	b.until(t, "large", hutch.Running)
}

func wantShort(t *testing.T, err error) {
	t.Helper()
	e, _ := errors.AsType[*hutch.Error](err)
	if e == nil || e.Kind != hutch.Exhausted || e.Data["limit"] != "memory of the server" || e.Data["retryAfter"] == nil {
		t.Errorf("it is not told that memory is short: %v", err)
	}
}
